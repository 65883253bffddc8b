"""Scenario files: TOML in, a `Scenario` out, or everything that is wrong with it.

Between the two lies plain data, as `tomllib` reads it and as a run directory keeps it: what
`--set` changes, and what `to_dict` makes of a scenario.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ..model.errors import ScenarioError, WavetankError
from . import tables
from .changing import change
from .explaining import explain, find, inside, shown
from .fields import LEAST_WHOLE, MOST_WHOLE
from .scenario import Scenario
from .tables import Table

_WHERE: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_DEEPEST: Final = 10

__all__ = ["change", "from_dict", "load", "parse", "read", "to_dict"]


def load(path: str | PathLike[str], changes: Sequence[str] = ()) -> Scenario:
    """Read a scenario from a file, with some changes as `change` takes them."""
    source, data = str(path), read(path)
    return _build(change(data, changes) if changes else data, source, Path(path).parent)


def read(path: str | PathLike[str]) -> Table:
    """The plain data of a file, whether a scenario can be made of it or not."""
    source = str(path)
    try:
        return _parse(Path(path).read_text("utf-8-sig"), source)
    except FileNotFoundError:
        why = "there is no such file"
    except IsADirectoryError:
        why = "this is a folder, not a file"
    except UnicodeDecodeError:
        why = "this is no text in UTF-8, as TOML has to be"
    except (OSError, ValueError) as error:
        why = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
    raise ScenarioError([why], source)


def parse(text: str, source: str = "scenario", folder: str | PathLike[str] = ".") -> Scenario:
    """Read a scenario from a text; `source` names it in errors, `folder` is where traces are."""
    return _build(_parse(text, source), source, Path(folder))


def _parse(text: str, source: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([_syntax_error(str(error), text)], source) from None
    except (ValueError, RecursionError):
        # A number of thousands of digits, or brackets in brackets by the hundred.
        raise ScenarioError(["there is more in it than can be meant"], source) from None


def _syntax_error(message: str, text: str) -> str:
    """The place first: tomllib has it last, and does not count for what is wrong at the end."""
    match = _WHERE.fullmatch(message)
    if match is None:
        return message
    lines = text.split("\n")
    line, column = match[2] or len(lines), match[3] or len(lines[-1]) + 1
    return f"line {line}, column {column}: {match[1]}"


def from_dict(data: object, folder: str | PathLike[str] = ".") -> Scenario:
    """Read a scenario from plain data; `folder` is where traces are."""
    return _build(data, "scenario", Path(folder))


def to_dict(scenario: Scenario) -> Table:
    """A scenario as plain data, of which `from_dict` makes the same again.

    All defaults are written down, and traces as what they hold: what a run was made of must not
    change with a new version, or with a file.
    """
    plain: Table = tables.unstructure(scenario)
    return plain


def _build(data: object, source: str, folder: Path) -> Scenario:
    if not isinstance(data, dict):
        raise ScenarioError([f"{shown(data)}: expected a table"], source)
    problems = list(_beyond_reason(data))
    if problems:
        raise ScenarioError(problems, source)
    try:
        scenario = tables.structure(_anchored(data, folder))
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


def _beyond_reason(data: object) -> Iterator[str]:
    """Find numbers that TOML does not have, and what nobody nests: Python cannot print either."""
    left = [("", data, 0)]
    while left:
        path, value, depth = left.pop()
        if isinstance(value, int) and not LEAST_WHOLE <= value <= MOST_WHOLE:
            yield f"{path} = {shown(value)}: expected a whole number of at most 64 bits"
        elif isinstance(value, dict | list | tuple) and depth == _DEEPEST:
            yield f"{path}: expected less that is nested"
        elif isinstance(value, dict):
            inner = [(inside(path, str(key)), one, depth + 1) for key, one in value.items()]
            left += reversed(inner)
        elif isinstance(value, list | tuple):
            inner = [(f"{path}[{index}]", one, depth + 1) for index, one in enumerate(value)]
            left += reversed(inner)


def _anchored(data: Table, folder: Path) -> Table:
    """The same with the paths of traces taken from the scenario's folder."""
    producers = data.get("producers")
    if not isinstance(producers, list):
        return data
    return data | {"producers": [_anchored_producer(one, folder) for one in producers]}


def _anchored_producer(table: Any, folder: Path) -> Any:
    path = find(table, "arrivals.path")
    if not isinstance(path, str) or not path:
        return table
    return table | {"arrivals": table["arrivals"] | {"path": str(folder / path)}}
