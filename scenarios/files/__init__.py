"""Scenario files: read TOML, validate it, override values, report problems."""
