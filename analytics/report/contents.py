"""The contents of a report: the tables that Spark computes, and the sections that show them.

To add a chart, write a function from `Analysis` to `Chart` and list it in `SECTIONS`. If it needs a
table that is not in `TABLES` yet, list that as well.
"""

from collections.abc import Callable
from typing import Final

import attrs

from ...model.events import kinds
from ..measures.clocks import clock_drift
from ..measures.flows import message_counts
from ..measures.monitors import lag_exporter_errors
from ..measures.ownership import outages, ownership
from ..measures.rebalances import rebalances
from ..measures.record_faults import duplicates, losses, redeliveries
from ..measures.skew import hot_keys, skew
from . import tables
from .analysis import EVENTS_BY_KIND, Analysis
from .internals import clock_drift_chart, inbox_chart, message_counts_table
from .lag_charts import faults_table, lag_chart, partition_lag_chart, worst_partitions_table
from .monitor_charts import burrow_table, lag_exporter_chart, lag_exporter_errors_table
from .overview import figure_tiles, objectives_table
from .ownership_charts import ownership_chart, rebalances_table
from .page import PagePart
from .rate_charts import latency_chart, latency_table, throughput_chart
from .record_fault_tables import duplicates_table, losses_table, redeliveries_table
from .run_details import run_table, scenario_code
from .skew_charts import consumer_load_chart, hot_keys_table, partition_load_chart
from .tables import ReportTable
from .utilisation_charts import utilisation_chart, utilisation_table

MAX_ROWS: Final = 200
"""Limit for hot keys and message counts, the most frequent first."""


@attrs.frozen
class ReportSection:
    """A section of the report. A part that has nothing to show for a run returns `None`."""

    title: str
    parts: tuple[Callable[[Analysis], PagePart | None], ...]
    text: str = ""


TABLES: Final = (
    (
        ReportTable(EVENTS_BY_KIND, "reading events", tables.events_by_kind),
        ReportTable("faults", "faults", tables.fault_events),
        ReportTable("throughput", "throughput", tables.throughput_by_group),
        ReportTable("totals", "totals", tables.totals),
        ReportTable("latency_over_time", "latency over time", tables.latency_over_time),
        ReportTable("latency", "latency", tables.latency_of_run),
        ReportTable("ownership", "ownership", lambda run: ownership(run.events)),
        ReportTable("outages", "partitions without an owner", lambda run: outages(run.events)),
        ReportTable("delivery_gaps", "partitions without delivery", tables.delivery_gaps),
        ReportTable("skew_partition", "skew of partitions", lambda run: skew(run.events)),
        ReportTable("skew_member", "skew of members", lambda run: skew(run.events, "member")),
        ReportTable(
            "redeliveries", "redeliveries", lambda run: redeliveries(run.events, run.warm_up_us)
        ),
        ReportTable("losses", "losses", lambda run: losses(run.events)),
        ReportTable("utilisation", "utilisation of consumers", tables.utilisation_over_time),
        ReportTable("burrow_status", "status in Burrow", tables.burrow_over_time),
        ReportTable(
            "hot_keys",
            "hot keys",
            lambda run: hot_keys(run.events).limit(MAX_ROWS),
            frozenset({kinds.KEY_COUNTED}),
        ),
        ReportTable(
            "duplicates",
            "records sent again",
            lambda run: duplicates(run.events),
            frozenset({kinds.SEND_RETRIED, kinds.DEDUPLICATED}),
        ),
        ReportTable(
            "clock_drift",
            "clock drift",
            lambda run: clock_drift(run.events, run.window_seconds),
            frozenset({kinds.CLOCK_SKEWED}),
        ),
        ReportTable(
            "inbox_depths",
            "inbox depths",
            tables.inbox_depths_by_node,
            frozenset({kinds.INBOX_OBSERVED}),
        ),
        ReportTable(
            "message_counts",
            "messages between actors",
            lambda run: message_counts(run.events).limit(MAX_ROWS),
            frozenset({kinds.MESSAGES_OBSERVED}),
        ),
    ),
    (
        ReportTable("lag", "lag", tables.lag_over_time),
        ReportTable("lag_partition", "lag by partition", tables.partition_lag_over_time),
        ReportTable("worst_partitions", "partitions with the highest lag", tables.worst_partitions),
        ReportTable("lag_delivered", "lag to delivery", tables.delivered_lag_over_time),
        ReportTable("worst_lag", "worst lag", tables.worst_lag),
        ReportTable(
            "rebalances",
            "rebalances",
            lambda run: rebalances(run.events, run.delivered_reader_lag),
        ),
        ReportTable("lag_exporter", "lag in kafka-lag-exporter", tables.exporter_over_time),
        ReportTable(
            "lag_exporter_errors",
            "errors of kafka-lag-exporter",
            lambda run: lag_exporter_errors(run.exporter_samples, run.exact_at_samples),
        ),
    ),
)
"""The tables of a report, as `analyse` takes them. Those of the second list are about lag."""

SECTIONS: Final = (
    ReportSection("Overview", (figure_tiles, objectives_table)),
    ReportSection(
        "Lag",
        (lag_chart, faults_table, partition_lag_chart, worst_partitions_table),
        "The time axes of all charts are linked: drag to zoom, double-click to reset.",
    ),
    ReportSection("Utilisation", (utilisation_chart, utilisation_table)),
    ReportSection("Throughput", (throughput_chart,)),
    ReportSection("Latency", (latency_chart, latency_table)),
    ReportSection("Ownership", (ownership_chart, rebalances_table)),
    ReportSection("Skew", (partition_load_chart, consumer_load_chart, hot_keys_table)),
    ReportSection("Record faults", (losses_table, redeliveries_table, duplicates_table)),
    ReportSection(
        "Monitoring",
        (lag_exporter_chart, lag_exporter_errors_table, burrow_table),
        "What the tools that monitor a real cluster would have shown, compared with exact values.",
    ),
    ReportSection("Internals", (inbox_chart, clock_drift_chart, message_counts_table)),
    ReportSection("Run", (run_table, scenario_code)),
)
