"""Decisions that a user can replace, such as partitioners, assignors and the network model.

A strategy is a pure function: everything it needs is in its arguments, and it keeps no state.
"""
