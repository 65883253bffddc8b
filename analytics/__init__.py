"""Analytics on Spark: event log in, DataFrames out. Only importing this room loads PySpark."""

from .events import load
from .measures import happenings
from .session import JavaMissingError, session

__all__ = ["JavaMissingError", "happenings", "load", "session"]
