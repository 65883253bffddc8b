"""Wavetank: a wave tank for event-streaming systems.

Everything a user imports: `import wavetank as wt`. Analytics is not here, because it loads Spark:
`from wavetank import analytics`.
"""

from pykka import ActorDeadError, Future, Timeout

from .actors.actor import Actor, Ended, receives
from .actors.eventlog import EventLog
from .actors.live import LiveSystem
from .actors.ref import Ref
from .actors.simulated import SimulatedSystem
from .actors.timers import Timer
from .model.errors import (
    BadValueError,
    NothingLeftError,
    TimeStandsStillError,
    UnhandledMessageError,
    UnknownNameError,
    WavetankError,
)
from .model.events import Event
from .model.network import DROP, HOLD, Faults, Verdict
from .strategies.network import Network, constant, lognormal, uniform

__version__ = "0.1.0"

__all__ = [
    "DROP",
    "HOLD",
    "Actor",
    "ActorDeadError",
    "BadValueError",
    "Ended",
    "Event",
    "EventLog",
    "Faults",
    "Future",
    "LiveSystem",
    "Network",
    "NothingLeftError",
    "Ref",
    "SimulatedSystem",
    "TimeStandsStillError",
    "Timeout",
    "Timer",
    "UnhandledMessageError",
    "UnknownNameError",
    "Verdict",
    "WavetankError",
    "constant",
    "lognormal",
    "receives",
    "uniform",
]
