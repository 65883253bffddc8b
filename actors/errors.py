"""The namespace `wt.errors`: everything that Wavetank raises, and two errors of Pykka's.

All but Pykka's are `WavetankError`.
"""

from pykka import ActorDeadError, Timeout

from ..model.errors import (
    BadValueError,
    CommitFailedError,
    HandlerError,
    PayloadError,
    ProducerFencedError,
    ScenarioError,
    SimulationDeadlockError,
    SimulationLivelockError,
    UnhandledMessageError,
    UnknownNameError,
    WavetankError,
)

__all__ = [
    "ActorDeadError",
    "BadValueError",
    "CommitFailedError",
    "HandlerError",
    "PayloadError",
    "ProducerFencedError",
    "ScenarioError",
    "SimulationDeadlockError",
    "SimulationLivelockError",
    "Timeout",
    "UnhandledMessageError",
    "UnknownNameError",
    "WavetankError",
]
