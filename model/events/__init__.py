"""The event log: its schema, the table of kinds, and run directories."""
