"""Who talks to whom: the live and the simulated engine, and one file per kind of actor."""
