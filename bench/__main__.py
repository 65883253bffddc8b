"""`make bench`: every comparison in one run, as a table and as bench/results.json."""

import json
import platform
import sys
from pathlib import Path

import assignors
import attrs
import delivery
import engines
import eventlog
import measure
import streaming
import sweeps

import analytics
import wavetank

RESULTS = Path(__file__).with_name("results.json")


def number(value: float) -> str:
    """Rates without decimals, shares with two."""
    return f"{value:,.0f}" if value > 1 else f"{value:.2f}"


def verdict(figure: measure.Figure) -> str:
    """What was to be reached, and whether it was; nothing if it is only good to know."""
    if figure.target is None:
        return ""
    target = f"{figure.target:,.0f} {figure.unit}" if figure.absolute else figure.target
    return f"{target} {'met' if figure.met else 'MISSED'}"


def main() -> None:
    """Measure, print and write down."""
    figures = []
    head = f"{'what':40} {'ours':>12} {'peer':28} {'peer':>12} {'ratio':>6}  target"
    print(head, "-" * len(head), sep="\n")
    for module in (engines, eventlog, assignors, streaming, delivery, analytics, sweeps):
        for figure in module.run():
            figures.append(figure)
            print(
                f"{figure.name:40} {number(figure.ours):>12} {figure.peer:28} "
                f"{number(figure.theirs):>12} {figure.ratio:6.2f}  {verdict(figure)}".rstrip(),
                flush=True,
            )
    results = {
        "wavetank": wavetank.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "figures": [
            {**attrs.asdict(figure), "ratio": figure.ratio, "met": figure.met} for figure in figures
        ],
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {RESULTS.parent.name}/{RESULTS.name}")
    sys.exit(0 if all(figure.met for figure in figures) else 1)


if __name__ == "__main__":
    main()
