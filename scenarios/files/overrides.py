"""Overrides of values in a scenario's plain data: `--set groups[0].assignor=range`."""

import copy
import re
import tomllib
from collections.abc import Iterator, Sequence
from datetime import date, time
from itertools import pairwise
from typing import Any, Final

import attrs

from ...model.errors import BadValueError, ScenarioError, UnknownNameError, WavetankError
from .converter import FAMILIES, Table
from .problems import inside, shown
from .settings_tables import flat, put_setting

_ASSIGNMENT: Final = re.compile(r"((?:\[[^\]]*\]|[^=\[])*)=(.*)", re.DOTALL)
_STEP: Final = re.compile(r"\[(?P<item>[^\[\]]+)\]|\.(?P<key>[^.\[\]]+)")
_SETTING: Final = re.compile(r"(?P<item>)\.(?P<key>.+)")


@attrs.frozen
class _Key:
    """A step of a path: a key of a table."""

    name: str


@attrs.frozen
class _Item:
    """A step of a path: an item of a list, by index or by name."""

    name: str


def change(data: Table, assignments: Sequence[str]) -> Table:
    """Return a copy with overrides, each "path=value".

    A path is for example `groups[0].consumers`, or by name `groups[billing].consumers`. A value
    that is not valid TOML is a string. Keys that the file leaves out can be set too. Values are
    validated later, when the data becomes a scenario.
    """
    changed = copy.deepcopy(data)
    problems = []
    for assignment in assignments:
        try:
            _assign(changed, assignment)
        except WavetankError as error:
            problems.append(str(error))
    if problems:
        raise ScenarioError(problems, "--set")
    return changed


def _assign(data: Table, assignment: str) -> None:
    path, text = split(assignment)
    put(data, path, read_value(text))


def put_all(data: Table, changes: Table) -> list[str]:
    """Set the values of a table by their paths, in place; return the problems.

    A table in the table is a path that TOML has split at its dots, unless it has a `kind` or is
    empty.
    """
    problems = []
    for path, value in _paths(changes):
        try:
            put(data, path, value)
        except WavetankError as error:
            problems.append(str(error))
    return problems


def _paths(changes: Table, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in changes.items():
        if isinstance(value, dict) and value and "kind" not in value:
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def split(assignment: str) -> tuple[str, str]:
    """Split "path=value"."""
    match = _ASSIGNMENT.fullmatch(assignment)
    if match is None or not match[1].strip():
        raise BadValueError(f"{assignment}: expected path=value")
    return match[1].strip(), match[2].strip()


def put(data: Table, path: str, value: object) -> None:
    """Set the value at a path, in place."""
    *steps, last = _steps(path)
    place: Any = data
    where = ""
    for step, after in pairwise([*steps, last]):
        place, where = _entered(place, where, step, after)
    slot = _slot(place, where, last)
    if steps and steps[-1] == _Key("settings"):
        put_setting(place, str(slot), value)
    else:
        place[slot] = value


def _steps(path: str) -> list[_Key | _Item]:
    """The steps of a path. After `settings` the rest is one name, as Kafka's names have dots."""
    steps: list[_Key | _Item] = []
    rest = "." + path
    while rest:
        setting = steps[-1:] == [_Key("settings")] and _SETTING.fullmatch(rest)
        match = setting or _STEP.match(rest)
        if not match or (not steps and match["item"]):
            raise BadValueError(f"{path}: expected a path such as groups[0].consumers")
        steps.append(_Item(match["item"]) if match["item"] else _Key(match["key"]))
        rest = rest[match.end() :]
    return steps


def _entered(place: Any, where: str, step: _Key | _Item, after: _Key | _Item) -> tuple[Any, str]:
    """Take a step: create a missing table, and expand a shorthand to its table."""
    slot = _slot(place, where, step)
    where = f"{where}[{slot}]" if isinstance(step, _Item) else inside(where, step.name)
    if isinstance(step, _Key) and isinstance(after, _Key):
        there = place.setdefault(step.name, {})
        if step.name in FAMILIES:
            place[step.name] = FAMILIES[step.name].expanded(there)
        elif step.name == "settings":
            place[step.name] = flat(there)
    elif slot not in place and isinstance(step, _Key):
        raise BadValueError(f"{where}: expected a list, but there is none")
    return place[slot], where


def _slot(place: Any, where: str, step: _Key | _Item) -> str | int:
    """The key or index of a step."""
    if isinstance(step, _Item):
        return _index(place, where, step.name)
    if isinstance(place, list):
        raise BadValueError(f"{where}: expected an index, such as {where}[0].{step.name}")
    if not isinstance(place, dict):
        raise BadValueError(f"{where} = {shown(place)}: expected a table, to set {step.name}")
    return step.name


def _index(place: Any, where: str, name: str) -> int:
    if not isinstance(place, list):
        raise BadValueError(f"{where} = {shown(place)}: expected a list, to use [{name}]")
    names = [one.get("name") if isinstance(one, dict) else None for one in place]
    if name in names:
        return names.index(name)
    if re.fullmatch(r"[0-9]{1,9}", name):
        if int(name) < len(place):
            return int(name)
        raise BadValueError(
            f"{where}[{name}]: expected an index below {len(place)}, the length of the list"
        )
    error = UnknownNameError("name", name, [one for one in names if isinstance(one, str)])
    raise BadValueError(f"{where}[{name}]: unknown name; {error.hint(shown)}")


def read_value(text: str) -> object:
    """Parse a value as TOML; if that fails, or gives a date, it is a string."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    value = read["value"]
    return text if len(read) > 1 or isinstance(value, date | time) else value
