"""What a sweep is asked for: variants, seeds and what is good enough, all checked beforehand."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Final

import attrs

from .actors.runner import load_handler
from .model.errors import BadValueError
from .strategies import scenario_files
from .strategies.choosing import by_cost
from .strategies.scenario import Scenario
from .strategies.varying import Axis, Variant, variants

SHARE: Final = 0.95
"""So many of all seeds must meet the objectives, unless said otherwise."""
MOST_RUNS: Final = 1_000_000


@attrs.frozen(kw_only=True)
class Question:
    """What is to be run: checked, and ready to be."""

    variants: tuple[Variant, ...]
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    share: float
    cost: str | None
    code: Mapping[str, str]
    """The text of each module with a handler."""

    @property
    def runs(self) -> int:
        """How many there are in the whole grid."""
        return len(self.variants) * len(self.seeds)

    @property
    def has_objectives(self) -> bool:
        """Whether there is anything to be good enough for."""
        return bool(self.variants[0].scenario.objectives)

    def order(self) -> list[Variant]:
        """Cheapest first."""
        return by_cost(self.variants, self.cost)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "name": self.variants[0].scenario.name,
            "vary": {axis.path: list(axis.values) for axis in self.axes},
            "seeds": list(self.seeds),
            "share": self.share,
            "cost": self.cost,
        }


def ask(
    scenario: Scenario | Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]] | Sequence[Axis],
    seeds: int | Sequence[int] = 10,
    *,
    share: float = SHARE,
    cost: str | None = None,
    folder: str | PathLike[str] = ".",
) -> Question:
    """Check everything that can be known before a run: paths, values, combinations, costs.

    A number of seeds means those from the scenario's own on.
    """
    data = scenario_files.to_dict(scenario) if isinstance(scenario, Scenario) else dict(scenario)
    found = variants(data, _axes(vary), folder)
    chosen = _seeds(seeds, found[0].scenario.seed)
    if len(found) * len(chosen) > MOST_RUNS:
        count = len(found) * len(chosen)
        raise BadValueError(f"seeds: expected at most {MOST_RUNS:,} runs, but there are {count:,}")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadValueError(f"share = {share!r}: expected more than 0 and at most 1")
    by_cost(found, cost)
    names = {plan.handler for variant in found for plan in variant.scenario.groups if plan.handler}
    code = dict(filter(None, (_code(name) for name in sorted(names))))
    return Question(
        variants=found, axes=_axes(vary), seeds=chosen, share=share, cost=cost, code=code
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
        raise BadValueError(f"seeds = {seeds!r}: expected a number, or seeds that all differ")
    return tuple(seeds)


def _code(handler: str) -> tuple[str, str] | None:
    """The text of a handler's module, if that is a file of the user's own; else it is installed."""
    load_handler(handler)
    name = handler.partition(":")[0]
    spec = find_spec(name)
    if spec is None or not spec.origin or not spec.origin.endswith(".py") or "." in name:
        return None
    if "site-packages" in Path(spec.origin).parts:
        return None
    return name, Path(spec.origin).read_text(encoding="utf-8")
