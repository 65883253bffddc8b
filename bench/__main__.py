"""`make bench`: every comparison in one run, as a table and in bench/results.json.

`make bench ONLY=sweeps,analytics` measures only some questions again.
"""

import sys

import assignors
import attrs
import delivery
import engines
import eventlog
import measure
import planning
import replication
import results
import storage
import streaming
import sweeps

import analytics

MODULES = {
    module.__name__: module
    for module in (
        engines, eventlog, assignors, streaming, delivery, storage, replication, analytics, sweeps,
        planning,
    )
}  # fmt: skip


def verdict(figure: measure.Figure) -> str:
    """What was to be reached, and whether it was; nothing if it is only good to know."""
    if figure.target is None:
        return ""
    target = results.number(figure.target) + (f" {figure.unit}" if figure.absolute else "")
    return f"{target} {'met' if figure.met else 'MISSED'}"


def main() -> None:
    """Measure, print and write down."""
    names = results.chosen(list(MODULES), sys.argv[1] if len(sys.argv) > 1 else "")
    missed = False
    head = f"{'what':40} {'ours':>12} {'peer':28} {'peer':>12} {'ratio':>6}  target"
    print(head, "-" * len(head), sep="\n")
    for name in names:
        figures = MODULES[name].run()
        for figure in figures:
            print(
                f"{figure.name:40} {results.number(figure.ours):>12} {figure.peer:28} "
                f"{results.number(figure.theirs):>12} {figure.ratio:6.2f}  "
                f"{verdict(figure)}".rstrip(),
                flush=True,
            )
            missed = missed or not figure.met
        results.put(
            name,
            MODULES[name].__doc__ or "",
            [attrs.asdict(each) | {"ratio": each.ratio, "met": each.met} for each in figures],
        )
    print(f"written to {results.RESULTS.parent.name}/{results.RESULTS.name}")
    sys.exit(missed)


if __name__ == "__main__":
    main()
