"""The specification of a sweep: the first step, before anything runs.

`build_spec` checks everything that can be checked without a run: paths, values, combinations,
seeds, the cost expression, handlers. So a mistake is reported before Spark starts.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, Final

import attrs

from ...model.errors import BadValueError
from ..files import scenario_file
from ..runner import load_handler
from ..scenario import Scenario
from .costs import by_cost, cost_of
from .grid import Axis, Variant, own_values, variants

SHARE: Final = 0.95
"""The default share of seeds that must meet the objectives."""
MOST_RUNS: Final = 1_000_000


@attrs.frozen(kw_only=True)
class SweepSpec:
    """A checked specification: what to run, and when a variant is good enough."""

    variants: tuple[Variant, ...]
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    share: float
    """The share of seeds that must meet the objectives."""
    cost: str | None
    """The cost expression; `None` compares consumers, then partitions, then brokers."""
    own: Mapping[str, Any]
    """The values that the scenario itself has, by path, where they are among the varied ones."""
    code: Mapping[str, str]
    """The source of each module that has a handler, by the module's name."""

    @property
    def runs(self) -> int:
        """The number of runs in the whole grid."""
        return len(self.variants) * len(self.seeds)

    @property
    def has_objectives(self) -> bool:
        """Whether the scenario has objectives to meet."""
        return bool(self.variants[0].scenario.objectives)

    def order(self) -> list[Variant]:
        """The variants, cheapest first."""
        return by_cost(self.variants, self.cost)

    def ranks(self) -> list[list[Variant]]:
        """The variants in ranks of equal cost, cheapest first."""
        ranks = groupby(self.order(), key=lambda variant: cost_of(variant, self.cost))
        return [list(rank) for _, rank in ranks]

    def to_dict(self) -> dict[str, Any]:
        """The specification as JSON-compatible data."""
        return {
            "name": self.variants[0].scenario.name,
            "vary": {axis.path: list(axis.values) for axis in self.axes},
            "seeds": list(self.seeds),
            "share": self.share,
            "cost": self.cost,
        }


def build_spec(
    scenario: Scenario | Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]] | Sequence[Axis],
    seeds: int | Sequence[int] = 10,
    *,
    share: float = SHARE,
    cost: str | None = None,
    folder: str | PathLike[str] = ".",
) -> SweepSpec:
    """Check the arguments of `sweep` or `plan`, and build the specification.

    `scenario` may be plain data; then `folder` is the folder of its traces. A number of seeds means
    consecutive seeds, starting with the scenario's own.
    """
    data = scenario_file.to_dict(scenario) if isinstance(scenario, Scenario) else dict(scenario)
    axes = _axes(vary)
    grid = variants(data, axes, folder)
    chosen = _seeds(seeds, grid[0].scenario.seed)
    runs = len(grid) * len(chosen)
    if runs > MOST_RUNS:
        raise BadValueError(f"seeds: expected at most {MOST_RUNS:,} runs, but there are {runs:,}")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadValueError(f"share = {share!r}: expected more than 0 and at most 1")
    by_cost(grid, cost)  # raises for a bad expression
    names = {plan.handler for variant in grid for plan in variant.scenario.groups if plan.handler}
    code = dict(filter(None, (_code(name) for name in sorted(names))))
    own = own_values(data, axes, folder)
    return SweepSpec(
        variants=grid, axes=axes, seeds=chosen, share=share, cost=cost, own=own, code=code
    )


def _axes(vary: Mapping[str, Sequence[Any]] | Sequence[Axis]) -> tuple[Axis, ...]:
    if not isinstance(vary, Mapping):
        return tuple(vary)
    for path, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise BadValueError(f"vary: {path} = {values!r}: expected a list of values")
    return tuple(Axis(path, tuple(values)) for path, values in vary.items())


def _seeds(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
    if isinstance(seeds, int):
        if isinstance(seeds, bool) or not 1 <= seeds <= MOST_RUNS:
            raise BadValueError(f"seeds = {seeds}: expected from 1 to {MOST_RUNS:,}")
        return tuple(range(first, first + seeds))
    if not seeds or len(set(seeds)) < len(seeds):
        raise BadValueError(f"seeds = {seeds!r}: expected a number, or a list of different seeds")
    return tuple(seeds)


def _code(handler: str) -> tuple[str, str] | None:
    """The name and source of a handler's module; `None` if the module is an installed package."""
    load_handler(handler)
    name = handler.partition(":")[0]
    spec = find_spec(name)
    if spec is None or not spec.origin or not spec.origin.endswith(".py") or "." in name:
        return None
    if "site-packages" in Path(spec.origin).parts:
        return None
    return name, Path(spec.origin).read_text(encoding="utf-8")
