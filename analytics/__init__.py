"""Analytics on Spark: event log in, DataFrames out. Only importing this room loads PySpark."""

from .clocks import drift
from .events import load
from .flows import flow, inboxes
from .lag import lag
from .latency import latency
from .measures import happenings
from .monitors import burrow, lag_exporter, monitor_errors
from .ownership import outages, ownership
from .rebalances import rebalances
from .session import JavaMissingError, session
from .throughput import throughput

__all__ = [
    "JavaMissingError",
    "burrow",
    "drift",
    "flow",
    "happenings",
    "inboxes",
    "lag",
    "lag_exporter",
    "latency",
    "load",
    "monitor_errors",
    "outages",
    "ownership",
    "rebalances",
    "session",
    "throughput",
]
