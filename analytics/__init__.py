"""Analytics on Spark: event log in, DataFrames out. Only importing this room loads PySpark."""

from .clocks import drift
from .events import load
from .flows import flow, inboxes
from .lag import lag
from .latency import latency
from .measures import happenings
from .ownership import outages, ownership
from .rebalances import rebalances
from .session import JavaMissingError, session
from .throughput import throughput

__all__ = [
    "JavaMissingError",
    "drift",
    "flow",
    "happenings",
    "inboxes",
    "lag",
    "latency",
    "load",
    "outages",
    "ownership",
    "rebalances",
    "session",
    "throughput",
]
