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
    ScenarioError,
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
from .reporting import Run, run
from .strategies.actions import (
    Crash,
    Cut,
    Delay,
    Disturb,
    Heal,
    Pause,
    Rate,
    Restart,
    Resume,
    Skew,
    Slow,
    Start,
    Stop,
)
from .strategies.arrivals import Bursts, Constant, Daily, Poisson, trace
from .strategies.assignment import cooperative
from .strategies.network import Network, constant, lognormal, uniform
from .strategies.scenario import (
    ClusterPlan,
    ConstantLatency,
    GroupPlan,
    LognormalLatency,
    Objective,
    ProducerPlan,
    Scenario,
    TopicPlan,
    UniformLatency,
)
from .strategies.scenario_files import load as load_scenario
from .strategies.timeline import (
    AddBroker,
    AddConsumers,
    AddPartitions,
    Replay,
    SwitchAssignor,
)
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
from .sweeping import Plan, Sweep, plan, sweep

__version__ = "0.1.0"

__all__ = [
    "DROP",
    "HOLD",
    "Actor",
    "ActorDeadError",
    "AddBroker",
    "AddConsumers",
    "AddPartitions",
    "BadValueError",
    "Bursts",
    "Cluster",
    "ClusterPlan",
    "Constant",
    "ConstantLatency",
    "ConstantService",
    "Crash",
    "Cut",
    "Daily",
    "DeadLetter",
    "Delay",
    "Disturb",
    "Ended",
    "Event",
    "EventLog",
    "ExponentialService",
    "Faults",
    "FixedSize",
    "Future",
    "GroupPlan",
    "Heal",
    "LiveSystem",
    "Load",
    "LognormalLatency",
    "LognormalService",
    "LognormalSizes",
    "Network",
    "NoKeys",
    "NothingLeftError",
    "Objective",
    "OneKey",
    "Pause",
    "Payload",
    "PayloadError",
    "Plan",
    "Poisson",
    "ProducerFencedError",
    "ProducerPlan",
    "Rate",
    "Receipt",
    "Record",
    "Records",
    "Ref",
    "Replay",
    "Restart",
    "Resume",
    "Run",
    "Scenario",
    "ScenarioError",
    "SimulatedSystem",
    "Skew",
    "Slow",
    "Start",
    "Stop",
    "Sweep",
    "SwitchAssignor",
    "TimeStandsStillError",
    "Timeout",
    "Timer",
    "Topic",
    "TopicPartition",
    "TopicPlan",
    "UnhandledMessageError",
    "UniformKeys",
    "UniformLatency",
    "UnknownNameError",
    "Verdict",
    "WavetankError",
    "ZipfKeys",
    "constant",
    "cooperative",
    "dead_letter",
    "load_scenario",
    "lognormal",
    "plan",
    "receives",
    "run",
    "sweep",
    "trace",
    "uniform",
]
