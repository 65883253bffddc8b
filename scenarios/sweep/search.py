"""The search for the cheapest variant that is good enough (see `plan` in sweep.py).

A variant is good enough if a given share of all seeds meets the objectives. The answer is all such
variants of the least cost, and the cheaper ones that these seeds cannot exclude (choice.py). `Race`
finds it with fewer runs than the grid has: it drops a variant as soon as so many of its seeds have
failed that it is excluded, and ends when it knows all about the least cost at which a variant is
good enough. It leaves out only runs that cannot change the answer, and runs nothing itself.
"""

from collections.abc import Sequence

import attrs

from ...model.wilson import needed, not_excluded


@attrs.frozen
class VariantTally:
    """The results of one variant's runs so far."""

    variant: int
    met: int
    """The number of runs that met the objectives."""
    runs: int


class Race:
    """A search for the cheapest variants that are good enough: `next`, run, `learn`, repeat."""

    def __init__(self, ranks: Sequence[Sequence[int]], seeds: Sequence[int], share: float) -> None:
        """Search among variants, given by number: ranks of equal cost, cheapest first."""
        self._ranks = [list(rank) for rank in ranks]
        self._seeds = list(seeds)
        self._most_failed = len(self._seeds) - needed(share, len(self._seeds))
        """How many seeds of a variant that is good enough may fail."""
        self._most_open = len(self._seeds) - not_excluded(share, len(self._seeds))
        """How many seeds of a variant may fail before it is excluded."""
        numbers = [number for rank in self._ranks for number in rank]
        self._known: dict[int, dict[int, bool]] = {number: {} for number in numbers}
        self._failed = dict.fromkeys(numbers, 0)
        self._failures = dict.fromkeys(self._seeds, 0)

    @property
    def runs(self) -> int:
        """The number of runs learned so far."""
        return sum(len(known) for known in self._known.values())

    @property
    def left(self) -> list[int]:
        """The variants whose runs can still change the answer, cheapest first."""
        found = []
        for rank in self._ranks:
            found += [number for number in rank if self._is_open(number)]
            if any(self._is_good(number) for number in rank):
                break
        return found

    def tallies(self) -> dict[int, VariantTally]:
        """The results of all variants so far."""
        return {
            number: VariantTally(number, sum(known.values()), len(known))
            for number, known in self._known.items()
        }

    def next(self, limit: int) -> list[tuple[int, int]]:
        """The next runs, at most `limit` pairs of variant and seed; none once the race is over.

        The cheapest remaining variant gets as many seeds as could drop it, or as many as have met
        the objectives already if that is more; the rest goes to the next variants. Seeds that
        failed most with other variants come first: a seed that is hard for one is hard for others.
        """
        wanted: list[tuple[int, int]] = []
        hardest = sorted(self._seeds, key=lambda seed: -self._failures[seed])
        for number in self.left:
            known = self._known[number]
            count = max(self._most_open - self._failed[number] + 1, sum(known.values()))
            room = limit - len(wanted)
            open_seeds = [seed for seed in hardest if seed not in known]
            wanted += [(number, seed) for seed in open_seeds[: min(count, room)]]
            if len(wanted) >= limit:
                break
        return wanted

    def learn(self, number: int, seed: int, met: bool) -> None:
        """Add the result of a run."""
        self._known[number][seed] = met
        self._failed[number] += not met
        self._failures[seed] += not met

    def _is_open(self, number: int) -> bool:
        """Whether a variant has runs left and is not excluded."""
        return self._failed[number] <= self._most_open and not self._is_complete(number)

    def _is_good(self, number: int) -> bool:
        return self._is_complete(number) and self._failed[number] <= self._most_failed

    def _is_complete(self, number: int) -> bool:
        return len(self._known[number]) == len(self._seeds)
