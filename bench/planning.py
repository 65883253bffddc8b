"""How much of a grid does a plan need? Three of the examples, their grids whole and searched.

Each example is run with every variant and 20 seeds, and then planned from nothing; that the plan
chooses what the whole grid would is asserted. The figures are runs, so less is better, and how
many it takes depends on the scenario: a plan that finds its answer among the cheapest variants, or
drops the cheap ones by their first seeds, needs little; one for which every variant is nearly good
enough would need almost all. The examples are shortened, and their producers send once a second.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
from measure import Figure

import wavetank as wt
from wavetank import analytics
from wavetank.scenarios.sweep.spec import build_spec
from wavetank.scenarios.sweep.sweep import run_plan, run_sweep

EXAMPLES = Path(__file__).parents[1] / "examples" / "scenarios"
SEEDS = 20
SHARE = 0.9


@attrs.frozen
class Case:
    """An example, what is changed of it, and what is varied."""

    name: str
    changes: tuple[str, ...]
    vary: dict[str, list[int]]


CASES = (
    Case(
        "flash_crowd",
        (
            "duration=16", "timeline[0].at=4", "timeline[0].for=5", "timeline[1].at=5",
            'objectives=[{group="fixed",max_lag="6s",after="5s"}]',
        ),
        {"groups[fixed].consumers": list(range(4, 21, 2))},
    ),
    Case(
        "broker_failure",
        (
            "duration=20", "timeline[0].at=8", "timeline[0].for=4", 'groups[0].service="2ms"',
            'objectives=[{max_lag="4500ms",after="5s"}]', 'cluster.storage="memory"',
        ),
        {"groups[0].consumers": [1, 2, 3, 4], "topics[0].partitions": [3, 6, 12]},
    ),
    Case(
        "slow_consumer",
        (
            "duration=20", "timeline[0].at=6", "timeline[0].for=8", "timeline[1].at=6",
            "timeline[1].for=8", 'objectives=[{group="exclusive",max_lag="6s",after="5s"}]',
        ),
        {"groups[exclusive].consumers": list(range(2, 11))},
    ),
)  # fmt: skip


def planned(case: Case, seeds: int = SEEDS) -> Figure:
    """An example whole and searched."""
    coarse = 'producers[0].resolution="1s"'
    scenario = wt.load_scenario(EXAMPLES / f"{case.name}.toml", [*case.changes, coarse])
    spec = build_spec(scenario, case.vary, seeds, share=SHARE)
    spark = analytics.session("local[2]")
    with TemporaryDirectory() as folder:
        grid = run_sweep(spec, spark=spark, out=Path(folder) / "grid")
        plan = run_plan(spec, spark=spark, out=Path(folder) / "plan")
    assert plan.choice == grid.choice
    assert plan.reused == 0
    answer = "none" if plan.choice is None else plan.choice.label
    return Figure(f"plan, {case.name}: {answer}", plan.runs, "the whole grid", spec.runs, "runs")


def run() -> list[Figure]:
    """Plan all of them."""
    return [planned(case) for case in CASES]


if __name__ == "__main__":
    for figure in run():
        print(f"{figure.name}: {figure.ours:.0f} of {figure.theirs:.0f} runs, {figure.ratio:.0%}")
