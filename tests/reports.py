"""Runs to report on: small ones in which everything happens that a page shows."""

from pathlib import Path
from typing import Any

import attrs
from running import quick

import wavetank as wt

ROGUE = '<script>alert(1)</script> & "co"'
"""A name that would be markup if it were let."""


def scenario(**changes: Any) -> wt.Scenario:
    """Two groups; a crash, and objectives met and not met."""
    made = quick(
        duration=20,
        timeline=[wt.Crash(at=6, target="billing-1", for_=4)],
        objectives=[wt.Objective(max_lag=30), wt.Objective(group="billing", max_unavailability=0)],
    )
    second = wt.GroupPlan("audit", ["orders"], consumers=2, delivery="broadcast", service="1ms")
    return attrs.evolve(made, name=ROGUE, groups=[*made.groups, second], **changes)


def record(directory: Path, **changes: Any) -> wt.Run:
    """Run it; its events go to this directory."""
    return wt.run(scenario(**changes), out=directory)
