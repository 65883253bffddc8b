"""Nouns and rules: messages, records, the log, events, configuration.

Nothing here knows a thread, a clock, Pykka or Spark.
"""
