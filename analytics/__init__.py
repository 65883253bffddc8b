"""Analytics on Spark: event log in, DataFrames out. Only importing this room loads PySpark."""

from .answers import compare, effects, shares, spread
from .clocks import drift
from .events import SparkFailedError, load
from .flows import flow, inboxes
from .lag import lag
from .latency import latency
from .measures import happenings
from .monitors import burrow, lag_exporter, monitor_errors
from .ownership import outages, ownership
from .rebalances import rebalances
from .session import JavaMissingError, SparkUnreachableError, session
from .skew import hot_keys, skew
from .stream import Watch, stream
from .throughput import throughput
from .troubles import duplicates, losses, redeliveries

__all__ = [
    "JavaMissingError",
    "SparkFailedError",
    "SparkUnreachableError",
    "Watch",
    "burrow",
    "compare",
    "drift",
    "duplicates",
    "effects",
    "flow",
    "happenings",
    "hot_keys",
    "inboxes",
    "lag",
    "lag_exporter",
    "latency",
    "load",
    "losses",
    "monitor_errors",
    "outages",
    "ownership",
    "rebalances",
    "redeliveries",
    "session",
    "shares",
    "skew",
    "spread",
    "stream",
    "throughput",
]
