"""Scenarios: the format, its files, running and evaluating them, and sweeps over variants."""
