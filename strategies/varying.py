"""The variants of a scenario that a sweep runs: `--vary groups[0].consumers=4..16`.

A path and its values are those of `--set` (changing.py). All values of all paths are combined, and
every combination is made into a scenario before anything runs: one that cannot be meant is an
error that names it.
"""

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from os import PathLike
from typing import Any, Final

import attrs

from ..model.errors import BadValueError, ScenarioError, WavetankError
from .changing import put, read_value, split
from .explaining import shown
from .scenario import Scenario
from .scenario_files import from_dict, to_dict
from .tables import Table

MOST_VALUES: Final = 1_000
MOST_VARIANTS: Final = 10_000
_RANGE: Final = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?::(\d{1,18}))?")
_OPENING: Final = {"[": "]", "{": "}", "(": ")"}
_SHOWN_VARIANTS: Final = 3


@attrs.frozen
class Axis:
    """A setting and the values it takes."""

    path: str
    values: tuple[Any, ...]


@attrs.frozen
class Variant:
    """One combination of values, and the scenario it makes."""

    number: int
    """Its place in the grid, the last setting changing fastest."""
    settings: Mapping[str, Any]
    """The varied paths and their values."""
    label: str
    """The same for a person."""
    scenario: Scenario
    plain: Table = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda own: to_dict(own.scenario), True)
    )

    def text(self, seed: int) -> str:
        """The scenario with a seed as canonical JSON: what a run is known by."""
        return json.dumps(self.plain | {"seed": seed}, sort_keys=True, separators=(",", ":"))

    def sizes(self) -> dict[str, int]:
        """What it takes, for a cost."""
        scenario = self.scenario
        return {
            "consumers": sum(plan.consumers for plan in scenario.groups),
            "partitions": sum(plan.partitions for plan in scenario.topics),
            "brokers": scenario.cluster.brokers,
        }


def read_axes(texts: Iterable[str]) -> tuple[Axis, ...]:
    """Read what was typed: "path=value,value" or "path=4..16", or "path=4..16:4" in steps."""
    axes, problems = [], []
    for text in texts:
        try:
            path, values = split(text)
            axes.append(Axis(path, tuple(_read_values(path, values))))
        except WavetankError as error:
            problems.append(str(error))
    if problems:
        raise ScenarioError(problems, "--vary")
    return tuple(axes)


def _read_values(path: str, text: str) -> Iterable[Any]:
    for part in _parts(text):
        match = _RANGE.fullmatch(part)
        if not part:
            raise BadValueError(f"{path}={text}: expected values between the commas")
        if match is None:
            yield read_value(part)
        else:
            yield from _read_range(path, part, int(match[1]), int(match[2]), int(match[3] or 1))


def _read_range(path: str, text: str, first: int, last: int, step: int) -> range:
    if step < 1 or last < first:
        raise BadValueError(f"{path}={text}: expected a range such as 4..16 or 4..16:4")
    found = range(first, last + 1, step)
    if len(found) > MOST_VALUES:
        raise BadValueError(f"{path}={text}: expected at most {MOST_VALUES:,} values")
    return found


def _parts(text: str) -> list[str]:
    """Split at commas, except within quotes and brackets."""
    parts, part, closing, quote = [], "", [], ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in _OPENING:
            closing.append(_OPENING[sign])
        elif closing and sign == closing[-1]:
            closing.pop()
        if sign == "," and not closing and not quote:
            parts.append(part.strip())
            part = ""
        else:
            part += sign
    return [*parts, part.strip()]


def variants(
    data: Table, axes: Sequence[Axis], folder: str | PathLike[str] = "."
) -> tuple[Variant, ...]:
    """Every combination as a scenario, or everything that is wrong with any of them.

    `data` is a scenario's plain data, `folder` where its traces are.
    """
    _check(axes)
    found: list[Variant] = []
    problems: dict[str, list[str]] = {}
    count = prod(len(axis.values) for axis in axes)
    for values in product(*(axis.values for axis in axes)):
        settings = {axis.path: value for axis, value in zip(axes, values, strict=True)}
        label = describe(settings)
        try:
            scenario = _changed(data, settings, folder)
        except ScenarioError as error:
            for problem in error.problems:
                problems.setdefault(problem, []).append(label)
        else:
            found.append(Variant(len(found), settings, label, scenario))
    if problems:
        raise ScenarioError(list(_told(problems, count)), "variants")
    return tuple(found)


def _check(axes: Sequence[Axis]) -> None:
    problems = []
    for number, axis in enumerate(axes):
        if axis.path in [earlier.path for earlier in axes[:number]]:
            problems.append(f"{axis.path}: it is varied twice")
        if axis.path == "seed":
            problems.append("seed: expected another path; how many seeds is said by seeds")
        if not axis.values:
            problems.append(f"{axis.path}: expected at least one value")
        twice = [value for at, value in enumerate(axis.values) if value in axis.values[:at]]
        problems += [f"{axis.path}: {shown(value)} is there twice" for value in twice]
    count = prod(len(axis.values) for axis in axes)
    if count > MOST_VARIANTS:
        problems.append(f"expected at most {MOST_VARIANTS:,} variants, but there are {count:,}")
    if problems:
        raise ScenarioError(problems, "vary")


def _changed(data: Table, settings: Mapping[str, Any], folder: str | PathLike[str]) -> Scenario:
    changed = copy.deepcopy(data)
    problems = []
    for path, value in settings.items():
        try:
            put(changed, path, copy.deepcopy(value))
        except WavetankError as error:
            problems.append(str(error))
    if problems:
        raise ScenarioError(problems)
    scenario = from_dict(changed, folder)
    if scenario.engine != "simulated":
        raise ScenarioError([f'engine = "{scenario.engine}": expected "simulated"'])
    return scenario


def _told(problems: Mapping[str, Sequence[str]], count: int) -> Iterable[str]:
    """Each problem once, with the variants that have it if others have not."""
    for problem, labels in problems.items():
        if len(labels) == count:
            yield problem
            continue
        more = len(labels) - _SHOWN_VARIANTS
        rest = f" and {more:,} more" if more > 0 else ""
        yield f"{problem} (with {'; '.join(labels[:_SHOWN_VARIANTS])}{rest})"


def describe(settings: Mapping[str, Any]) -> str:
    """Settings for a person: by the last part of their paths, where that tells them apart."""
    short = short_names(settings)
    return ", ".join(f"{short[path]}={as_text(value)}" for path, value in settings.items())


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """The last part of each path, or all of it if another one ends in the same way."""
    last = {path: re.split(r"[.\]]", path)[-1] or path for path in paths}
    names = list(last.values())
    return {path: name if names.count(name) == 1 else path for path, name in last.items()}


def as_text(value: object) -> str:
    """A value as it would be typed."""
    return value if isinstance(value, str) else shown(value)
