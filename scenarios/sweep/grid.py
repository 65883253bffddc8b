"""The variants of a sweep: `--vary groups[0].consumers=4..16` (see spec.py).

Paths and values are those of `--set` (files/overrides.py). The grid is every combination of the
values of all paths. Each combination is turned into a scenario before anything runs, so an invalid
one is an error that names it.
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

from ...actors.cluster import DEFAULTS
from ...model.errors import BadValueError, ScenarioError, WavetankError
from ...model.settings import ClusterSettings, ConsumerSettings, ProducerSettings, from_mapping
from ..files.converter import Table
from ..files.overrides import put, read_value, split
from ..files.problems import shown
from ..files.scenario_file import from_dict, to_dict
from ..scenario import Scenario

MOST_VALUES: Final = 1_000
MOST_VARIANTS: Final = 10_000
_RANGE: Final = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?::(\d{1,18}))?")
_OPENING: Final = {"[": "]", "{": "}", "(": ")"}
_SHOWN_VARIANTS: Final = 3


@attrs.frozen
class Axis:
    """A varied setting: its path and its values."""

    path: str
    values: tuple[Any, ...]


@attrs.frozen
class Variant:
    """One combination of values, and its scenario."""

    number: int
    """The position in the grid; the last setting changes fastest."""
    settings: Mapping[str, Any]
    """The values by path."""
    label: str
    """The values, for display."""
    scenario: Scenario
    plain: Table = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda own: to_dict(own.scenario), True)
    )

    def text(self, seed: int) -> str:
        """The scenario with a seed as canonical JSON, which identifies the run."""
        return json.dumps(self.plain | {"seed": seed}, sort_keys=True, separators=(",", ":"))

    def totals(self) -> dict[str, int]:
        """The numbers of consumers, partitions and brokers, which costs refer to."""
        scenario = self.scenario
        return {
            "consumers": sum(plan.consumers for plan in scenario.groups),
            "partitions": sum(plan.partitions for plan in scenario.topics),
            "brokers": scenario.cluster.brokers,
        }


def read_axes(texts: Iterable[str]) -> tuple[Axis, ...]:
    """Parse "path=value,value", "path=4..16", or with a step "path=4..16:4"."""
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
            raise BadValueError(f"{path}={text}: expected a value before and after each comma")
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
    """Split at commas, except inside quotes and brackets."""
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
    """All combinations as scenarios; raises an error that lists all problems of all combinations.

    `data` is a scenario as plain data, `folder` the folder of its traces.
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
        raise ScenarioError(list(_summarised(problems, count)), "variants")
    return tuple(found)


def _check(axes: Sequence[Axis]) -> None:
    problems = []
    for number, axis in enumerate(axes):
        if axis.path in [earlier.path for earlier in axes[:number]]:
            problems.append(f"{axis.path}: expected once, but it is varied twice")
        if axis.path == "seed":
            problems.append("seed: it cannot be varied; use seeds for the number of seeds")
        if not axis.values:
            problems.append(f"{axis.path}: expected at least one value")
        twice = [value for at, value in enumerate(axis.values) if value in axis.values[:at]]
        problems += [
            f"{axis.path}: expected different values, but {shown(value)} appears twice"
            for value in twice
        ]
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


def own_values(
    data: Table, axes: Sequence[Axis], folder: str | PathLike[str] = "."
) -> dict[str, Any]:
    """The value of each path with which the scenario stays as it is, if the axis has that value.

    A setting that the scenario leaves out has its default.
    """
    try:
        unchanged = _resolved(_changed(data, {}, folder))
    except ScenarioError:
        return {}  # the scenario alone is not valid: it needs the varied values
    found: dict[str, Any] = {}
    for axis in axes:
        for value in axis.values:
            try:
                same = _resolved(_changed(data, {axis.path: value}, folder)) == unchanged
            except ScenarioError:
                continue  # valid only together with the values of other paths
            if same:
                found[axis.path] = value
                break
    return found


def _resolved(scenario: Scenario) -> list[object]:
    """The scenario and its settings, with their defaults filled in."""
    cluster = scenario.cluster
    return [
        attrs.evolve(
            scenario,
            cluster=attrs.evolve(cluster, settings={}),
            groups=[attrs.evolve(plan, settings={}) for plan in scenario.groups],
            producers=[attrs.evolve(plan, settings={}) for plan in scenario.producers],
        ),
        from_mapping(ClusterSettings, DEFAULTS, cluster.settings).settings,
        *(from_mapping(ConsumerSettings, plan.settings).settings for plan in scenario.groups),
        *(from_mapping(ProducerSettings, plan.settings).settings for plan in scenario.producers),
    ]


def _summarised(problems: Mapping[str, Sequence[str]], count: int) -> Iterable[str]:
    """Each problem once, with the variants that have it unless all have it."""
    for problem, labels in problems.items():
        if len(labels) == count:
            yield problem
            continue
        more = len(labels) - _SHOWN_VARIANTS
        rest = f" and {more:,} more" if more > 0 else ""
        yield f"{problem} (with {'; '.join(labels[:_SHOWN_VARIANTS])}{rest})"


def describe(settings: Mapping[str, Any]) -> str:
    """Settings as text, with short names where they are unambiguous."""
    short = short_names(settings)
    return ", ".join(f"{short[path]}={as_text(value)}" for path, value in settings.items())


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """The last part of each path, or the whole path if two have the same last part."""
    last = {path: re.split(r"[.\]]", path)[-1] or path for path in paths}
    names = list(last.values())
    return {path: name if names.count(name) == 1 else path for path, name in last.items()}


def as_text(value: object) -> str:
    """A value as it is typed on the command line."""
    return value if isinstance(value, str) else shown(value)
