"""Made-up results of a sweep, so that tests of pages need no Spark."""

from itertools import product
from typing import Any

from wavetank.analytics.measures.sweep_results import INTERACTIONS, METRICS, SEEDS, SweepResults
from wavetank.model.wilson import wilson

CONSUMERS, ASSIGNOR = "groups[0].consumers", "groups[0].assignor"
AXES = {CONSUMERS: ["1", "2", "4", "8"], ASSIGNOR: ["range", "<b>sticky</b>"]}
RUNS = 20


def sweep_results(axes: dict[str, list[str]] | None = None, **changed: Any) -> SweepResults:
    """Results of eight variants, unless other axes are given; the fifth is the chosen one."""
    known = AXES if axes is None else axes
    settings = [dict(zip(known, values, strict=True)) for values in product(*known.values())]
    labels = [", ".join(f"{path}={text}" for path, text in each.items()) for each in settings]
    about = [{"variant": number, "label": label} for number, label in enumerate(labels)]
    spread = [
        {**each, "figure": figure, "runs": RUNS, "p5": low, "median": 2 * low, "p95": 3 * low}
        for each in about
        for figure, low in (
            ("worst_lag_us", 400_000.0 * (8 - each["variant"])),
            ("worst_lag_records", 100.0 + 10 * each["variant"]),
        )
    ]
    spread += [
        {**each, "figure": "lost_records", "runs": RUNS, "p5": 0.0, "median": 0.0, "p95": 0.0}
        for each in about
    ]
    made = {
        "name": "sale",
        "axes": known,
        "short": {path: path.rpartition(".")[2] for path in known},
        "settings": dict(enumerate(settings)),
        "spread": spread,
        "shares": [_share(each, min(RUNS, 5 * each["variant"])) for each in about],
        "effects": [
            {"figure": "worst_lag_us", "setting": setting, "share": share}
            for setting, share in zip(
                [*known, INTERACTIONS, SEEDS], (0.8, 0.1, 0.06, 0.04), strict=False
            )
        ],
        "differences": [{"setting": path, "compared": RUNS, "different": RUNS} for path in known],
        "figures": METRICS,
        "shown": ["worst_lag_us"],
        "against": 4,
        "compared": [
            {**each, "seeds": RUNS, "median": -5e5, "less": 15, "more": 4, "same": 1}
            for each in about
            if each["variant"] != 4
        ],
        "target_share": 0.95,
        "chosen": 4,
        "tied": [],
        "indifferent": [],
        "undecided": [],
        "answer": ["cheapest: 4 consumers"],
    }
    return SweepResults(**(made | changed))


def _share(about: dict[str, Any], met: int) -> dict[str, Any]:
    low, high = wilson(met, RUNS)
    return {
        **about, "runs": RUNS, "met": met, "failed": int(about["variant"] == 1),
        "share": met / RUNS, "low": low, "high": high,
    }  # fmt: skip
