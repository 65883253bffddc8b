"""The cheapest variant that is good enough, from a full grid or by a race that needs less of it.

The rule is one: a variant is good enough if at least `needed` of all seeds meet the objectives; of
those, the one that comes first in order of cost is chosen. `Race` finds the same one: it drops a
variant as soon as too many seeds have failed for it ever to be good enough, and stops when the
first that is left has been run with all seeds. So nothing is guessed; only what cannot change
the answer is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from ..model.shares import needed
from .costs import cost
from .varying import Variant

NO_COST: Final = "consumers, then partitions, then brokers"


def by_cost(variants: Sequence[Variant], expression: str | None = None) -> list[Variant]:
    """Cheapest first: by an expression, or fewest consumers, partitions and brokers in turn.

    Of equally cheap ones, the first of the grid comes first.
    """
    costs = {variant.number: cost_of(variant, expression) for variant in variants}
    return sorted(variants, key=lambda variant: (costs[variant.number], variant.number))


def cost_of(variant: Variant, expression: str | None = None) -> tuple[float, ...]:
    """What a variant is ordered by."""
    sizes = variant.sizes()
    if expression is None:
        return tuple(sizes.values())
    return (cost(expression, sizes | dict(variant.settings)),)


@attrs.frozen
class Tally:
    """What is known of a variant."""

    variant: int
    met: int
    runs: int

    def reaches(self, share: float) -> bool:
        """Whether it is good enough, all seeds having been run."""
        return self.met >= needed(share, self.runs) and self.runs > 0


def cheapest(order: Iterable[int], tallies: Mapping[int, Tally], share: float) -> int | None:
    """The first that is good enough."""
    return next((number for number in order if tallies[number].reaches(share)), None)


class Race:
    """A search for the cheapest variant that is good enough."""

    def __init__(self, order: Sequence[int], seeds: Sequence[int], share: float) -> None:
        """Search among variants, cheapest first."""
        self._order = list(order)
        self._seeds = list(seeds)
        self._needed = needed(share, len(seeds))
        self._known: dict[int, dict[int, bool]] = {number: {} for number in order}
        self._failed = dict.fromkeys(order, 0)
        self._failures = dict.fromkeys(seeds, 0)

    @property
    def runs(self) -> int:
        """How many have been run."""
        return sum(len(known) for known in self._known.values())

    @property
    def left(self) -> list[int]:
        """The variants that may still be the answer, cheapest first."""
        return [number for number in self._order if self._spare(number) >= 0]

    def tally(self, number: int) -> Tally:
        """What is known of a variant."""
        known = self._known[number]
        return Tally(number, sum(known.values()), len(known))

    @property
    def winner(self) -> int | None:
        """The answer, once it is certain: every cheaper one has been dropped."""
        left = self.left
        return left[0] if left and self._is_complete(left[0]) else None

    @property
    def over(self) -> bool:
        """Whether there is nothing left to find out."""
        return not self.left or self.winner is not None

    def next(self, limit: int) -> list[tuple[int, int]]:
        """What to run now, about `limit` runs: pairs of variant and seed.

        The cheapest that is left gets as many seeds as could drop it, or as many as it has met
        if that is more; what remains goes to the next ones. Seeds that failed most elsewhere come
        first, for what is hard for one variant is hard for others.
        """
        wanted: list[tuple[int, int]] = []
        if self.over:
            return wanted
        hardest = sorted(self._seeds, key=lambda seed: -self._failures[seed])
        for number in self.left:
            known = self._known[number]
            ask = max(self._spare(number) + 1, sum(known.values()))
            room = limit - len(wanted)
            open_seeds = [seed for seed in hardest if seed not in known]
            wanted += [(number, seed) for seed in open_seeds[: min(ask, room)]]
            if len(wanted) >= limit:
                break
        return wanted

    def learn(self, number: int, seed: int, met: bool) -> None:
        """Take in what came of a run."""
        self._known[number][seed] = met
        self._failed[number] += not met
        self._failures[seed] += not met

    def _spare(self, number: int) -> int:
        """How many more seeds may fail; below 0 it is out."""
        return len(self._seeds) - self._needed - self._failed[number]

    def _is_complete(self, number: int) -> bool:
        return len(self._known[number]) == len(self._seeds)
