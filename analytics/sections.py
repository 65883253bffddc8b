"""What a report says about one run, section by section."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from . import charts, loads, rates, timelines, troubled, wording
from .analysis import Analysis
from .figures import Figure, figures
from .page import Cell, Code, Part, Table, Text, Tile, Tiles

MAX_ROWS: Final = 60
"""Of a table; what is more is counted."""

MODELLED: Final = (
    "Modelled: brokers, partitions and their leaders, producers with batching, retries and "
    "idempotence, consumer groups with Kafka's rebalance conversation, committed and acknowledged "
    "delivery, retention and compaction, the network between nodes, crashes, pauses, cuts and "
    "skewed clocks.",
    "Not modelled: replication (what a crashed broker had is lost), transactions, the page cache "
    "and disks beyond a fixed time for each write, CPU time of brokers, compression, TLS, and the "
    "TCP connections beneath the messages.",
    "In a simulation time is virtual: handlers take as long as their service-time model says, and "
    "latencies below a producer's resolution cannot be told.",
    "Percentiles are over records and at most 1 % off; lag is exact at the times at which it is "
    "looked at, and between them it is not looked at.",
)


def tiles(analysis: Analysis) -> Tiles:
    """What to know first."""
    known = {figure.key: figure for figure in figures(analysis)}
    met = [bool(each["met"]) for each in analysis.objectives]
    found = []
    if met:
        found.append(Tile(f"{sum(met)} of {len(met)}", "objectives met", all(met)))
    found.append(Tile(wording.time(analysis.duration_us), _engine(analysis)))
    found.append(Tile(known["appended, records"].text, "records appended"))
    found.append(Tile(known["appended a second"].text, "appended a second"))
    for name, label in (
        ("worst lag, time", "worst lag"),
        ("99 % delivered within", "99 % delivered within"),
        ("longest time without an owner", "longest without an owner"),
    ):
        worst = _worst(known.values(), name)
        if worst:
            found.append(Tile(worst.text, f"{label}, {worst.group}"))
    return Tiles(tuple(found))


def _engine(analysis: Analysis) -> str:
    return "virtual time, simulated" if analysis.info.engine == "simulated" else "real time, live"


def _worst(known: Iterable[Figure], name: str) -> Figure | None:
    own = [each for each in known if each.name == name and each.value is not None]
    return max(own, key=lambda each: each.value or 0, default=None)


def objectives(analysis: Analysis) -> Table | None:
    """What was demanded, and whether it was met."""
    rows = tuple(
        (Cell("met", mark="met") if each["met"] else Cell("failed", mark="failed"), _demand(each))
        for each in analysis.objectives
    )
    return Table("Objectives", ("", "demand"), rows, texts=frozenset({"demand"})) if rows else None


def _demand(judgement: Any) -> str:
    return str(judgement["text"]).removesuffix(", met").removesuffix(", not met")


def latencies(analysis: Analysis) -> Table | None:
    """Percentiles of the whole run."""
    columns = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us", "mean_us")
    rows = sorted(
        analysis.rows("latency"), key=lambda row: (row["group"], row["stage"] == "acknowledged")
    )
    tints = charts.colours(analysis)
    return _table(
        "Latency from append on, over the whole run",
        ("group", "until", "records", "50 %", "90 %", "99 %", "99.9 %", "longest", "mean"),
        [
            (
                Cell(row["group"], tints.get(row["group"])), row["stage"],
                wording.count(row["records"]), *(wording.time(row[name]) for name in columns),
            )
            for row in rows
        ],
        texts={"until"},
    )  # fmt: skip


def rebalances(analysis: Analysis) -> Table | None:
    """Each rebalance with its cause and its costs."""
    tints = charts.colours(analysis)
    return _table(
        "Rebalances",
        (
            "group", "no.", "at", "cause", "generation", "took", "members", "moved",
            "partitions unowned", "unowned in all", "longest", "lag added (records)",
            "caught up after",
        ),
        [
            (
                Cell(row["group"], tints.get(row["group"])), str(row["number"]),
                wording.time(row["started_us"]), row["cause"] or "–", _plain(row["generation"]),
                wording.time(row["duration_us"]), _plain(row["members"]), _plain(row["moved"]),
                _plain(row["partitions_unavailable"]), wording.time(row["unavailable_us"]),
                wording.time(row["longest_us"]), wording.count(row["lag_added"]),
                wording.time(row["caught_up_us"]) if row["caught_up_us"] is not None else "never",
            )
            for row in analysis.rows("rebalances")
        ],
        texts={"cause"},
        caption="A partition is unowned from when its last owner gave it up, left or crashed. "
        "Caught up: when the lag is back where it was before.",
    )  # fmt: skip


def fault_table(analysis: Analysis) -> Table | None:
    """What was done to nodes and links."""
    found = timelines.faults(analysis)
    detailed = any(fault.detail for fault in found)
    heads = ("no.", "at", "for", "what", "node", "detail")
    return _table(
        "Faults",
        heads if detailed else heads[:-1],
        [
            (
                str(number), wording.time(fault.from_us), _lasted(fault), fault.what, fault.node,
                *([fault.detail or "–"] if detailed else []),
            )
            for number, fault in enumerate(found, 1)
        ],
        texts={"what", "node", "detail"},
    )  # fmt: skip


def _lasted(fault: timelines.Fault) -> str:
    if fault.until_us is None:
        return "the rest"
    return wording.time(fault.until_us - fault.from_us) if fault.until_us > fault.from_us else "–"


def _table(
    title: str,
    heads: tuple[str, ...],
    rows: list[tuple[str | Cell, ...]],
    texts: Iterable[str] = (),
    caption: str = "",
) -> Table | None:
    if not rows:
        return None
    more = f" The first {MAX_ROWS} of {len(rows):,}." if len(rows) > MAX_ROWS else ""
    return Table(title, heads, tuple(rows[:MAX_ROWS]), caption + more, frozenset(texts))


def _plain(value: Any) -> str:
    return "–" if value is None else str(value)


def scenario(analysis: Analysis) -> Code | None:
    """What was run, near to how it is written in a file."""
    if not analysis.scenario:
        return None
    return Code(
        "The scenario, with everything that was left at its default", toml(analysis.scenario)
    )


def toml(plain: dict[str, Any]) -> str:
    """A scenario as TOML has it; what is absent, or an empty list, is left out."""
    lines = [f"{key} = {_value(value)}" for key, value in plain.items() if _is_plain(value)]
    for key, value in plain.items():
        if isinstance(value, dict) and value:
            lines += ["", f"[{key}]", *_entries(value)]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for each in value:
                lines += ["", f"[[{key}]]", *_entries(each)]
    return "\n".join(lines)


def _is_plain(value: Any) -> bool:
    nested = isinstance(value, dict) or (
        isinstance(value, list) and value and isinstance(value[0], dict)
    )
    return value is not None and value not in ([], {}) and not nested


def _entries(plain: dict[str, Any]) -> Iterator[str]:
    return (
        f"{key} = {_value(value)}"
        for key, value in plain.items()
        if value is not None and value not in ([], {})
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(_entries(value))} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def origin(analysis: Analysis) -> Table:
    """Where the figures come from."""
    info = analysis.info
    rows: list[tuple[str | Cell, ...]] = [
        ("directory", str(analysis.directory)),
        ("seed", str(info.seed)),
        ("engine", info.engine),
        ("state", info.state),
        ("events", f"{analysis.events:,}"),
        ("digest", info.digest or "–"),
        ("started", info.wall_started),
        ("took", wording.time(info.wall_seconds * 1e6) if info.wall_seconds else "–"),
        ("versions", ", ".join(f"{name} {is_}" for name, is_ in info.versions.items())),
    ]
    return Table("The run", ("", "value"), tuple(rows), texts=frozenset({"value"}))


PARTS: Final[tuple[tuple[str, str, tuple[Callable[[Analysis], Part | None], ...]], ...]] = (
    ("Overview", "", (tiles, objectives)),
    (
        "Lag",
        "All charts over time are zoomed together: drag to zoom, double click to see all again.",
        (timelines.lag, fault_table),
    ),
    ("Throughput", "", (rates.throughput,)),
    ("Latency", "", (rates.latency, latencies)),
    ("Ownership", "", (timelines.ownership, rebalances)),
    ("Skew", "", (loads.partitions, loads.consumers, loads.hot_keys)),
    (
        "Troubles",
        "",
        (troubled.losses, troubled.redeliveries, troubled.duplicates),
    ),
    (
        "Monitoring",
        "What the tools that watch a real cluster would have shown. Here the truth is known, and "
        "they can be held against it.",
        (troubled.monitors, troubled.errors, troubled.burrow),
    ),
    ("Inside", "", (loads.inboxes, loads.drift, troubled.flow)),
    ("The run", "", (origin, scenario)),
)
"""Each section: title, text, and what is in it of each run, if it has any."""


def modelled() -> Text:
    """How far the figures can be believed."""
    return Text("What is modelled, and what is not", MODELLED)
