"""The summary of a run, counted while the run goes on."""
