"""Details of a run: its origin, its scenario, and the limits of the model."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...model.settings import describe_ignored, ignored_settings
from . import formatting
from .analysis import Analysis
from .page import CodeBlock, PageTable, TableCell, TextList

_LIMITS: Final = (
    "Modelled: brokers, partitions and their leaders; producers with batching, retries and "
    "idempotence; consumer groups with Kafka's rebalance protocol; committed offsets and "
    "acknowledged records; retention and compaction; the network between nodes; disks with one "
    "queue each, and what they lose; crashes, power losses, pauses, cut links and skewed clocks.",
    "Not modelled: replication (the partitions of a crashed broker wait for it; in memory, "
    "another broker takes them over empty), transactions, the page cache beyond "
    "log_cache_bytes, CPU time of brokers, compression, TLS, and TCP connections.",
    "In a simulation, time is virtual: handlers take as long as their service-time model says. "
    "Latencies below a producer's resolution cannot be measured.",
    "Percentiles are over records and accurate to 1 %. Lag is exact at each sample; between "
    "samples it is not measured.",
)


def model_limits(analyses: Sequence[Analysis]) -> TextList:
    """Return what is modelled and what is not, with the settings that have no effect."""
    ignored = [name for each in analyses for name in ignored_settings(each.scenario)]
    text = describe_ignored(ignored)
    items = (*_LIMITS, f"{text[0].upper()}{text[1:]}.") if ignored else _LIMITS
    return TextList("What is modelled and what is not", items)


def run_table(analysis: Analysis) -> PageTable:
    """Return where the figures come from."""
    info = analysis.info
    rows: list[tuple[str | TableCell, ...]] = [
        ("directory", str(analysis.directory)),
        ("seed", str(info.seed)),
        ("engine", info.engine),
        ("state", info.state),
        ("events", f"{analysis.events:,}"),
        ("digest", info.digest or "–"),
        ("started", info.wall_started),
        ("wall time", formatting.time(info.wall_seconds * 1e6) if info.wall_seconds else "–"),
        ("versions", ", ".join(f"{name} {version}" for name, version in info.versions.items())),
    ]
    return PageTable("Run", ("", "value"), tuple(rows), texts=frozenset({"value"}))


def scenario_code(analysis: Analysis) -> CodeBlock | None:
    """Return the scenario, nearly as in a scenario file."""
    if not analysis.scenario:
        return None
    return CodeBlock("Scenario, including all defaults", to_toml(analysis.scenario))


def to_toml(plain: dict[str, Any]) -> str:
    """Format a scenario as TOML, without absent values and empty lists."""
    lines = [f"{key} = {_value(value)}" for key, value in plain.items() if _is_inline(value)]
    for key, value in plain.items():
        if isinstance(value, dict) and value:
            lines += ["", f"[{key}]", *_entries(value)]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for each in value:
                lines += ["", f"[[{key}]]", *_entries(each)]
    return "\n".join(lines)


def _is_inline(value: Any) -> bool:
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
