"""Changes to the plain data of a scenario: `--set groups[0].assignor=range`."""

import copy
import re
import tomllib
from collections.abc import Sequence
from datetime import date, time
from itertools import pairwise
from typing import Any, Final

import attrs

from ..model.errors import BadValueError, ScenarioError, UnknownNameError, WavetankError
from .explaining import inside, shown
from .tables import FAMILIES, Table

_ASSIGNMENT: Final = re.compile(r"((?:\[[^\]]*\]|[^=\[])*)=(.*)", re.DOTALL)
_STEP: Final = re.compile(r"\[(?P<item>[^\[\]]+)\]|\.(?P<key>[^.\[\]]+)")
_SETTING: Final = re.compile(r"(?P<item>)\.(?P<key>.+)")


@attrs.frozen
class _Key:
    """What is under a key of a table."""

    name: str


@attrs.frozen
class _Item:
    """One of a list, by number or by name."""

    name: str


def change(data: Table, assignments: Sequence[str]) -> Table:
    """A copy with some values changed, each as "path=value".

    A path is one such as `groups[0].consumers`, or by name `groups[billing].consumers`. A value
    is TOML, or else taken as text. What a file leaves out can be set as well; whether it can be
    meant is seen when a scenario is made of it.
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


def split(assignment: str) -> tuple[str, str]:
    """The path and the text of the value in "path=value"."""
    match = _ASSIGNMENT.fullmatch(assignment)
    if match is None or not match[1].strip():
        raise BadValueError(f"{assignment}: expected path=value")
    return match[1].strip(), match[2].strip()


def put(data: Table, path: str, value: object) -> None:
    """Set what is at a path, in place."""
    *steps, last = _steps(path)
    place: Any = data
    where = ""
    for step, after in pairwise([*steps, last]):
        place, where = _entered(place, where, step, after)
    place[_slot(place, where, last)] = value


def _steps(path: str) -> list[_Key | _Item]:
    """A path's parts; after `settings` comes a name that may have dots."""
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
    """Take a step: into a table that is made if need be, or into what a shorthand stands for."""
    slot = _slot(place, where, step)
    where = f"{where}[{slot}]" if isinstance(step, _Item) else inside(where, step.name)
    if isinstance(step, _Key) and isinstance(after, _Key):
        there = place.setdefault(step.name, {})
        if step.name in FAMILIES:
            place[step.name] = FAMILIES[step.name].expanded(there)
    elif slot not in place and isinstance(step, _Key):
        raise BadValueError(f"{where}: expected a list, but there is none")
    return place[slot], where


def _slot(place: Any, where: str, step: _Key | _Item) -> str | int:
    """Where in a table or a list a step leads to."""
    if isinstance(step, _Item):
        return _index(place, where, step.name)
    if isinstance(place, list):
        raise BadValueError(f"{where}: expected one of the list, such as {where}[0].{step.name}")
    if not isinstance(place, dict):
        raise BadValueError(f"{where} = {shown(place)}: expected a table to set {step.name} in")
    return step.name


def _index(place: Any, where: str, name: str) -> int:
    if not isinstance(place, list):
        raise BadValueError(f"{where} = {shown(place)}: expected a list to take [{name}] of")
    names = [one.get("name") if isinstance(one, dict) else None for one in place]
    if name in names:
        return names.index(name)
    if re.fullmatch(r"[0-9]{1,9}", name):
        if int(name) < len(place):
            return int(name)
        raise BadValueError(f"{where}[{name}]: there are only {len(place)}, counted from 0")
    error = UnknownNameError("name", name, [one for one in names if isinstance(one, str)])
    raise BadValueError(f"{where}[{name}]: unknown name; {error.hint(shown)}")


def read_value(text: str) -> object:
    """What TOML makes of a text, or the text; a name that looks like a date is a name."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    value = read["value"]
    return text if len(read) > 1 or isinstance(value, date | time) else value
