"""Decisions: pure functions a user can swap, such as a partitioner, an assignor or the network.

What a strategy must know is in its arguments; it keeps no memory of its own.
"""
