"""Data and rules: messages, records, the log, events, settings, state machines.

Nothing here does I/O on its own, reads a clock, starts a thread, or imports Pykka or Spark.
"""
