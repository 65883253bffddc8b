"""The answer of a sweep or a plan: the cheapest variants that are good enough.

Several variants can cost the same and be as good as each other: then all of them are the answer.
The one that changes the scenario least is recommended. A setting of which every value is as good
makes no difference, and is not recommended.

A few seeds show a share only roughly. Variants of the same cost are as good as each other if they
are good enough and their confidence intervals overlap. A variant is undecided if it is not good
enough with these seeds, but its interval still reaches the required share.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ...model.wilson import needed, not_excluded, proving_runs, wilson
from .costs import DEFAULT_ORDER, cost_of
from .grid import Variant, as_text, describe, short_names
from .search import VariantTally
from .spec import SweepSpec

_MOST_LISTED: Final = 5


@attrs.frozen
class Candidate:
    """A variant that has run with all seeds."""

    variant: Variant
    met: int
    """The number of seeds that met the objectives."""
    runs: int

    @property
    def share(self) -> float:
        """The share of its seeds that met the objectives."""
        return self.met / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % confidence interval of the share over all possible seeds."""
        return wilson(self.met, self.runs)

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible data."""
        low, high = self.interval
        return {
            "variant": self.variant.number,
            "label": self.variant.label,
            "settings": dict(self.variant.settings),
            "met": self.met,
            "runs": self.runs,
            "share": self.share,
            "low": low,
            "high": high,
        }


@attrs.frozen
class Choice:
    """The cheapest variants that are good enough, and the one of them that is recommended."""

    recommended: Candidate
    """Of the cheapest variants, the one with the most values that the scenario itself has; among
    equals the first of the grid."""
    cost: tuple[float, ...]
    tied: tuple[Candidate, ...]
    """The other variants of this cost that are as good, in the grid's order."""
    indifferent: tuple[str, ...]
    """The paths of the settings that make no difference: every value is as good at this cost."""
    is_certain: bool
    """Whether the confidence interval of the recommended variant is above the required share."""

    @property
    def settings(self) -> dict[str, Any]:
        """The recommended values by path, without settings that make no difference."""
        settings = self.recommended.variant.settings
        return {path: value for path, value in settings.items() if path not in self.indifferent}

    @property
    def label(self) -> str:
        """The recommended values, for display."""
        return describe(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible data."""
        return {
            **self.recommended.to_dict(),
            "cost": list(self.cost),
            "recommended": self.settings,
            "indifferent": list(self.indifferent),
            "tied": [one.to_dict() for one in self.tied],
            "certain": self.is_certain,
        }


def choose(spec: SweepSpec, tallies: Mapping[int, VariantTally]) -> Choice | None:
    """The cheapest variants that are good enough; `None` if no variant is."""
    least = needed(spec.share, len(spec.seeds))
    for rank in spec.ranks():
        good = [one for one in _candidates(spec, rank, tallies) if one.met >= least]
        if good:
            break
    else:
        return None
    low = max(one.interval[0] for one in good)
    cheapest = [one for one in good if one.interval[1] >= low]
    best = min(cheapest, key=lambda one: (_changes(spec, one.variant), one.variant.number))
    return Choice(
        recommended=best,
        cost=cost_of(best.variant, spec.cost),
        tied=tuple(one for one in cheapest if one is not best),
        indifferent=_indifferent(spec, [one.variant for one in cheapest]),
        is_certain=best.interval[0] >= spec.share,
    )


def find_undecided(
    spec: SweepSpec, tallies: Mapping[int, VariantTally], choice: Choice | None
) -> tuple[Candidate, ...]:
    """The undecided variants that are not dearer than the choice, cheapest first."""
    seeds = len(spec.seeds)
    undecided = range(not_excluded(spec.share, seeds), needed(spec.share, seeds))
    order = [
        variant
        for variant in spec.order()
        if choice is None or cost_of(variant, spec.cost) <= choice.cost
    ]
    return tuple(one for one in _candidates(spec, order, tallies) if one.met in undecided)


def chosen_by_cost(
    spec: SweepSpec, tallies: Mapping[int, VariantTally], choice: Choice
) -> tuple[str, ...]:
    """The settings of which every value is as good, though the others cost more.

    A plan cannot tell, because it does not run the dearer variants.
    """
    best = choice.recommended
    least = needed(spec.share, len(spec.seeds))

    def is_as_good(one: Candidate) -> bool:
        return one.met >= least and one.interval[1] >= best.interval[0]

    found = []
    for axis in spec.axes:
        near = [
            variant
            for variant in spec.variants
            if all(
                best.variant.settings[path] == value
                for path, value in variant.settings.items()
                if path != axis.path
            )
        ]
        if (
            len(near) > 1
            and axis.path not in choice.indifferent
            and all(cost_of(one, spec.cost) >= choice.cost for one in near)
            and all(map(is_as_good, _candidates(spec, near, tallies)))
        ):
            found.append(axis.path)
    return tuple(found)


def describe_answer(
    spec: SweepSpec, choice: Choice | None, undecided: Sequence[Candidate]
) -> list[str]:
    """The answer in a few lines: the choice, its equals, and how certain it is."""
    if choice is None:
        lines = [f"no variant meets the objectives with {spec.share:.0%} of the seeds"]
        more = "more seeds may show that these do"
    else:
        lines = [*_describe_choice(spec, choice), *_describe_certainty(spec, choice)]
        more = "may be enough too, and not dearer"
    return [*lines, f"{more}: {_list(undecided)}"] if undecided else lines


def _describe_choice(spec: SweepSpec, choice: Choice) -> Iterable[str]:
    cost = ", ".join(f"{part:g}" for part in choice.cost)
    best = choice.recommended
    label = choice.label or ("any variant" if spec.axes else "the scenario as it is")
    yield f"cheapest: {label} (by {spec.cost or DEFAULT_ORDER}: {cost})"
    low, high = best.interval
    yield (
        f"meets the objectives with {best.met} of {best.runs} seeds ({best.share:.0%}), "
        f"95% confidence interval {low:.1%} to {high:.1%}"
    )
    short = short_names(best.variant.settings)
    for axis in spec.axes:
        if axis.path in choice.indifferent:
            values = [
                as_text(value)
                + (" (the scenario's own)" if _is_own(spec, axis.path, value) else "")
                for value in axis.values
            ]
            name = short[axis.path]
            yield f"{name} makes no difference to the objectives: {_join(values)} are as good"
    others = [
        one
        for one in choice.tied
        if all(one.variant.settings[p] == best.variant.settings[p] for p in choice.indifferent)
    ]
    if others:
        yield f"as good at the same cost: {_list(others)}"


def _describe_certainty(spec: SweepSpec, choice: Choice) -> Iterable[str]:
    if choice.is_certain:
        return
    seeds, least = len(spec.seeds), proving_runs(spec.share)
    what = f"that {spec.share:.0%} of all seeds meet the objectives"
    if least is None:
        yield f"not certain: no number of seeds can show {what}"
    elif seeds < least:
        yield f"not certain: it takes at least {least:,} seeds, not {seeds:,}, to show {what}"
    else:
        yield f"not certain: the confidence interval does not show {what}"


def _candidates(
    spec: SweepSpec, variants: Iterable[Variant], tallies: Mapping[int, VariantTally]
) -> Iterable[Candidate]:
    """The variants that have run with all seeds."""
    for variant in variants:
        tally = tallies[variant.number]
        if tally.runs == len(spec.seeds):
            yield Candidate(variant, tally.met, tally.runs)


def _changes(spec: SweepSpec, variant: Variant) -> int:
    """The number of settings with another value than the scenario's own."""
    return sum(not _is_own(spec, path, value) for path, value in variant.settings.items())


def _is_own(spec: SweepSpec, path: str, value: object) -> bool:
    return path in spec.own and spec.own[path] == value


def _indifferent(spec: SweepSpec, cheapest: Sequence[Variant]) -> tuple[str, ...]:
    """The settings that can have any of their values, whatever the other settings are."""
    index = {axis.path: axis.values.index for axis in spec.axes}
    found = {tuple(index[p](v) for p, v in each.settings.items()) for each in cheapest}
    return tuple(
        axis.path
        for at, axis in enumerate(spec.axes)
        if len(axis.values) > 1
        and all(
            (*one[:at], value, *one[at + 1 :]) in found
            for one in found
            for value in range(len(axis.values))
        )
    )


def _list(candidates: Sequence[Candidate]) -> str:
    listed = [f"{one.variant.label} ({one.met} of {one.runs} seeds)" for one in candidates]
    more = len(listed) - _MOST_LISTED
    return "; ".join([*listed[:_MOST_LISTED], *([f"{more:,} more"] if more > 0 else [])])


def _join(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
