"""Reads scenario files: TOML to a `Scenario`, or to an error that lists all problems.

The step between is plain data, as `tomllib` returns it: `--set` overrides it, run directories
store it, and `to_dict` converts a scenario back to it. A file may extend another one; then the data
is that of both.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ...model.durations import Duration, to_us
from ...model.errors import ScenarioError, WavetankError
from ..scenario import Scenario
from . import converter
from .check import LEAST_WHOLE, MOST_WHOLE
from .converter import Table
from .overrides import change, put_all
from .problems import explain, find, inside, shown
from .settings_tables import resolve

_WHERE: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_DEEPEST: Final = 10

__all__ = ["change", "cut", "from_dict", "load", "parse", "read", "to_dict"]


def load(path: str | PathLike[str], changes: Sequence[str] = ()) -> Scenario:
    """Read a scenario from a file, with overrides such as "groups[0].consumers=8"."""
    source, data = str(path), read(path)
    return _build(change(data, changes) if changes else data, source, Path(path).parent)


def read(path: str | PathLike[str]) -> Table:
    """The plain data of a file and of those that it extends, not validated as a scenario."""
    return _extended(_read_alone(path), str(path), Path(path).parent, (Path(path).resolve(),))


def _read_alone(path: str | PathLike[str]) -> Table:
    source = str(path)
    try:
        return _parse(Path(path).read_text("utf-8-sig"), source)
    except FileNotFoundError:
        why = "there is no such file"
    except IsADirectoryError:
        why = "this is a folder, not a file"
    except UnicodeDecodeError:
        why = "expected text in UTF-8, as TOML requires"
    except (OSError, ValueError) as error:
        why = f"cannot read it: {getattr(error, 'strerror', None) or error}"
    raise ScenarioError([why], source)


def parse(text: str, source: str = "scenario", folder: str | PathLike[str] = ".") -> Scenario:
    """Read a scenario from TOML text; `source` names it in errors, `folder` has its traces."""
    data = _extended(_parse(text, source), source, Path(folder), ())
    return _build(data, source, Path(folder))


def _extended(data: Table, source: str, folder: Path, chain: tuple[Path, ...]) -> Table:
    """The data of the file that `extends` names, with the changes of this one.

    A key of this file replaces the other's. `changes` has values by path, as `--set` does.
    """
    if "extends" not in data:
        if "changes" in data:
            raise ScenarioError(["changes: expected extends as well, a scenario file"], source)
        return data
    own = {key: value for key, value in data.items() if key not in ("extends", "changes")}
    other, changes = data["extends"], data.get("changes", {})
    if not isinstance(other, str) or not other:
        why = f"extends = {shown(other)}: expected the path of a scenario file"
        raise ScenarioError([why], source)
    if not isinstance(changes, dict):
        why = f"changes = {shown(changes)}: expected a table of paths and values"
        raise ScenarioError([why], source)
    path = folder / other
    if path.resolve() in chain:
        raise ScenarioError([f"extends = {shown(other)}: expected no circle of files"], source)
    base = _extended(_read_alone(path), str(path), path.parent, (*chain, path.resolve()))
    # Paths are made absolute, as those of this file are relative to another folder.
    merged = _anchored(base, path.parent.resolve()) | own
    problems = put_all(merged, changes)
    if problems:
        raise ScenarioError([f"changes: {problem}" for problem in problems], source)
    return merged


def _parse(text: str, source: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([_syntax_error(str(error), text)], source) from None
    except (ValueError, RecursionError):
        raise ScenarioError(["number too long, or tables nested too deeply"], source) from None


def _syntax_error(message: str, text: str) -> str:
    """Put the position first; tomllib has it last, and gives none for the end of the file."""
    match = _WHERE.fullmatch(message)
    if match is None:
        return message
    lines = text.split("\n")
    line, column = match[2] or len(lines), match[3] or len(lines[-1]) + 1
    return f"line {line}, column {column}: {match[1]}"


def from_dict(
    data: object, folder: str | PathLike[str] = ".", source: str = "scenario"
) -> Scenario:
    """Read a scenario from plain data; `folder` has its traces, `source` names it in errors."""
    return _build(data, source, Path(folder))


def cut(data: Table, duration: Duration) -> tuple[Table, int]:
    """Return a copy with another duration, without the actions after its end, and their number."""
    timeline = data.get("timeline")
    if not isinstance(timeline, list):
        return data | {"duration": duration}, 0
    kept = [action for action in timeline if not _is_later(action, duration)]
    return data | {"duration": duration, "timeline": kept}, len(timeline) - len(kept)


def _is_later(action: Any, duration: Duration) -> bool:
    """Whether an action is after a duration; bad values are left to be reported."""
    try:
        return to_us(action["at"], "at") > to_us(duration, "duration")
    except (LookupError, TypeError, OverflowError, WavetankError):
        return False


def to_dict(scenario: Scenario) -> Table:
    """Convert a scenario to plain data, which `from_dict` converts back.

    It contains all defaults and the content of traces, so that a stored scenario does not change
    with a new version or a changed file.
    """
    plain: Table = converter.unstructure(scenario)
    return plain


def _build(data: object, source: str, folder: Path) -> Scenario:
    if not isinstance(data, dict):
        raise ScenarioError([f"{shown(data)}: expected a table"], source)
    problems = list(_too_large(data))
    if problems:
        raise ScenarioError(problems, source)
    data, problems = resolve(data, folder)
    if problems:
        raise ScenarioError(problems, source)
    try:
        scenario = converter.structure(_anchored(data, folder))
    except (WavetankError, ExceptionGroup) as error:
        raise ScenarioError(explain(error, "", data), source) from None
    unfit = [
        problem
        for path, error in scenario.problems()
        for problem in explain(error, path, find(data, path))
    ]
    if unfit:
        raise ScenarioError(unfit, source)
    return scenario


def _too_large(data: object) -> Iterator[str]:
    """Find numbers beyond 64 bits and deep nesting, which Python fails to print."""
    left = [("", data, 0)]
    while left:
        path, value, depth = left.pop()
        if isinstance(value, int) and not LEAST_WHOLE <= value <= MOST_WHOLE:
            yield f"{path} = {shown(value)}: expected a whole number of at most 64 bits"
        elif isinstance(value, dict | list | tuple) and depth == _DEEPEST:
            yield f"{path}: expected at most {_DEEPEST} levels of nesting"
        elif isinstance(value, dict):
            inner = [(inside(path, str(key)), one, depth + 1) for key, one in value.items()]
            left += reversed(inner)
        elif isinstance(value, list | tuple):
            inner = [(f"{path}[{index}]", one, depth + 1) for index, one in enumerate(value)]
            left += reversed(inner)


def _anchored(data: Table, folder: Path) -> Table:
    """A copy in which the paths of traces and settings are relative to the scenario's folder."""
    anchored = dict(data)
    for kind in ("producers", "groups"):
        if isinstance(data.get(kind), list):
            anchored[kind] = [_anchored_part(one, folder) for one in data[kind]]
    if "cluster" in data:
        anchored["cluster"] = _anchored_part(data["cluster"], folder)
    return anchored


def _anchored_part(table: Any, folder: Path) -> Any:
    for steps in (("arrivals", "path"), ("settings", "extends"), ("settings",)):
        path = find(table, ".".join(steps))
        if isinstance(path, str) and path:
            table = _with(table, steps, str(folder / path))
    return table


def _with(table: Table, steps: tuple[str, ...], value: str) -> Table:
    first, *rest = steps
    return table | {first: _with(table[first], tuple(rest), value) if rest else value}
