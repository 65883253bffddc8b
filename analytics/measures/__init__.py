"""Measures over the event log: each is a function from DataFrame to DataFrame."""
