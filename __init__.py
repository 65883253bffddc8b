"""Wavetank: a wave tank for event-streaming systems.

Everything a user imports: `import wavetank as wt`. Analytics is not here, because it loads Spark:
`from wavetank import analytics`.
"""

from pykka import ActorDeadError, Future, Timeout

from .actors.actor import Actor, Ended, receives
from .actors.burial import DeadLetter, dead_letter
from .actors.cluster import Cluster
from .actors.eventlog import EventLog
from .actors.live import LiveSystem
from .actors.ref import Ref
from .actors.simulated import SimulatedSystem
from .actors.timers import Timer
from .model.errors import (
    BadValueError,
    NothingLeftError,
    PayloadError,
    ProducerFencedError,
    TimeStandsStillError,
    UnhandledMessageError,
    UnknownNameError,
    WavetankError,
)
from .model.events import Event
from .model.exchange import Receipt
from .model.network import DROP, HOLD, Faults, Verdict
from .model.payloads import Payload
from .model.record import Record
from .model.records import Records
from .model.topics import Topic, TopicPartition
from .strategies.arrivals import Bursts, Constant, Daily, Poisson, trace
from .strategies.assignment import cooperative
from .strategies.network import Network, constant, lognormal, uniform
from .strategies.workload import (
    ConstantService,
    ExponentialService,
    FixedSize,
    Load,
    LognormalService,
    LognormalSizes,
    NoKeys,
    OneKey,
    UniformKeys,
    ZipfKeys,
)

__version__ = "0.1.0"

__all__ = [
    "DROP",
    "HOLD",
    "Actor",
    "ActorDeadError",
    "BadValueError",
    "Bursts",
    "Cluster",
    "Constant",
    "ConstantService",
    "Daily",
    "DeadLetter",
    "Ended",
    "Event",
    "EventLog",
    "ExponentialService",
    "Faults",
    "FixedSize",
    "Future",
    "LiveSystem",
    "Load",
    "LognormalService",
    "LognormalSizes",
    "Network",
    "NoKeys",
    "NothingLeftError",
    "OneKey",
    "Payload",
    "PayloadError",
    "Poisson",
    "ProducerFencedError",
    "Receipt",
    "Record",
    "Records",
    "Ref",
    "SimulatedSystem",
    "TimeStandsStillError",
    "Timeout",
    "Timer",
    "Topic",
    "TopicPartition",
    "UnhandledMessageError",
    "UniformKeys",
    "UnknownNameError",
    "Verdict",
    "WavetankError",
    "ZipfKeys",
    "constant",
    "cooperative",
    "dead_letter",
    "lognormal",
    "receives",
    "trace",
    "uniform",
]
