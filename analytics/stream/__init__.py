"""Streaming analytics: a run is followed while it is running."""
