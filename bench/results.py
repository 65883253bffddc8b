"""What `make bench` has found, and the page that `make bench-report` makes of it.

Each question has an entry of its own in bench/results.json, with when and on what it was measured:
some of them can be measured again (`make bench ONLY=sweeps`) and the others stay.
"""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
REPORT = Path(__file__).with_name("REPORT.md")
PACKAGES = (
    "wavetank", "pyspark", "pyarrow", "numpy", "pykka",
    "simpy", "confluent-kafka", "kafka-python", "duckdb", "polars",
)  # fmt: skip

Entry = dict[str, Any]


def chosen(names: Sequence[str], only: str) -> list[str]:
    """The questions that were asked for, "sweeps,analytics"; all of them if that is empty."""
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SystemExit(f"ONLY = {', '.join(unknown)}: expected some of {', '.join(names)}")
    return [name for name in names if name in wanted or not wanted]


def read(path: Path = RESULTS) -> dict[str, Entry]:
    """What has been measured so far, by question."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def put(name: str, about: str, figures: Iterable[Mapping[str, Any]], path: Path = RESULTS) -> None:
    """Put the figures of a question in the place of those that may be there."""
    entry = {
        "about": about,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "figures": list(figures),
    }
    path.write_text(json.dumps(read(path) | {name: entry}, indent=2) + "\n", encoding="utf-8")


def machine() -> dict[str, str]:
    """What it was measured on, without anything that tells whose it is."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{pages / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    """Its model where Linux tells it, else what Python knows."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Of Python and of every package that takes part, peers included."""
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def report(results: Mapping[str, Entry]) -> str:
    """The page: each question with what is compared, our figures and the peers', and targets."""
    verdicts = [f["met"] for e in results.values() for f in e["figures"] if f["target"] is not None]
    parts = [
        "# Benchmarks\n",
        "Written by `make bench-report` from what `make bench` has measured. Ours and the peers' "
        "are measured in turns, in one run, on the same work; more is better unless the unit says "
        "otherwise. A ratio is ours by theirs.\n",
        f"{sum(verdicts)} of {len(verdicts)} targets are met.\n",
        *_conditions(results),
        *(_question(name, entry) for name, entry in results.items()),
    ]
    return "\n".join(parts)


def _conditions(results: Mapping[str, Entry]) -> Iterable[str]:
    """When and on what, with the questions if they were not all measured in the same way."""
    groups: dict[str, list[str]] = {}
    for name, entry in results.items():
        lines = [f"| date | {entry['date']} |"]
        lines += [f"| {what} | {text} |" for what, text in entry["machine"].items()]
        packages = ", ".join(f"{name} {text}" for name, text in entry["versions"].items())
        lines += [f"| versions | {packages} |"]
        groups.setdefault("\n".join(lines), []).append(name)
    for lines, names in groups.items():
        of = "all" if len(groups) == 1 else ", ".join(names)
        yield f"| measured | {of} |\n|---|---|\n{lines}\n"


def _question(name: str, entry: Entry) -> str:
    title, _, text = entry["about"].strip().partition("\n")
    rows = "\n".join(map(_row, entry["figures"]))
    return (
        f"## {name}: {title}\n\n{text.strip()}\n\n"
        "| what | ours | peer | theirs | unit | ratio | target | |\n"
        f"|---|---:|---|---:|---|---:|---:|---|\n{rows}\n"
    )


def _row(figure: Mapping[str, Any]) -> str:
    target, verdict = "", ""
    if figure["target"] is not None:
        least = number(figure["target"])
        target = f"≥ {least} {figure['unit']}" if figure["absolute"] else f"≥ {least}×"
        verdict = "met" if figure["met"] else "**missed**"
    cells = (
        figure["name"], number(figure["ours"]), figure["peer"], number(figure["theirs"]),
        figure["unit"], f"{figure['ratio']:.2f}", target, verdict,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """Large ones without decimals, small ones with what tells them apart."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def main() -> None:
    """Write the page."""
    results = read()
    if not results:
        raise SystemExit("there is nothing to report: run make bench first")
    REPORT.write_text(report(results), encoding="utf-8")
    print(f"written to {REPORT.parent.name}/{REPORT.name}")


if __name__ == "__main__":
    main()
