"""Analytics on Spark: event logs in, DataFrames out. Importing this package loads PySpark."""

from .events import SparkFailedError, load_events
from .measures.clocks import clock_drift
from .measures.event_counts import event_counts
from .measures.flows import inbox_depths, message_counts
from .measures.lag import lag
from .measures.latency import latency
from .measures.monitors import burrow_status, lag_exporter, lag_exporter_errors
from .measures.ownership import outages, ownership
from .measures.rebalances import rebalances
from .measures.record_faults import duplicates, losses, redeliveries
from .measures.skew import hot_keys, skew
from .measures.sweep_results import (
    compare_variants,
    figure_spread,
    objective_shares,
    setting_differences,
    setting_effects,
)
from .measures.throughput import throughput
from .measures.undelivered import undelivered
from .measures.utilisation import utilisation
from .session import JavaMissingError, SparkUnreachableError, session
from .stream.stream import Watch, stream

__all__ = [
    "JavaMissingError",
    "SparkFailedError",
    "SparkUnreachableError",
    "Watch",
    "burrow_status",
    "clock_drift",
    "compare_variants",
    "duplicates",
    "event_counts",
    "figure_spread",
    "hot_keys",
    "inbox_depths",
    "lag",
    "lag_exporter",
    "lag_exporter_errors",
    "latency",
    "load_events",
    "losses",
    "message_counts",
    "objective_shares",
    "outages",
    "ownership",
    "rebalances",
    "redeliveries",
    "session",
    "setting_differences",
    "setting_effects",
    "skew",
    "stream",
    "throughput",
    "undelivered",
    "utilisation",
]
