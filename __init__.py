"""Wavetank: a wave tank for event-streaming systems.

Everything a user imports: `import wavetank as wt`. Families of names are in namespaces:

- `wt.actions`: what the timeline of a scenario does
- `wt.load`: arrivals, keys, sizes and service times
- `wt.network`: latencies, verdicts and faults of links
- `wt.errors`: everything that is raised

Analytics is not here, because it loads Spark: `from wavetank import analytics`.
"""

from .actors import errors
from .actors.broker.dead_letters import DeadLetter, dead_letter
from .actors.cluster import Cluster
from .actors.engine.actor import Actor, Ended, receives
from .actors.engine.event_log import EventLog
from .actors.engine.live import LiveSystem
from .actors.engine.ref import Ref
from .actors.engine.simulated import SimulatedSystem
from .actors.engine.timers import Timer
from .actors.groups import ConsumerGroup, ConsumerHandle
from .actors.handles import ProducerHandle
from .actors.history import HistoryPage
from .model.disk import DiskModel
from .model.events.schema import Event
from .model.log.record import Record
from .model.log.records import Records
from .model.messages.client import RecordMetadata
from .model.payloads import Payload
from .model.topics import Topic, TopicPartition
from .scenarios import actions, network
from .scenarios.files.scenario_file import load as load_scenario
from .scenarios.runner import Run, run
from .scenarios.scenario import (
    ClusterPlan,
    GroupPlan,
    Objective,
    ProducerPlan,
    Scenario,
    TopicPlan,
)
from .scenarios.sweep.sweep import Plan, Sweep, plan, sweep
from .strategies import load
from .strategies.assignment import cooperative

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "Cluster",
    "ClusterPlan",
    "ConsumerGroup",
    "ConsumerHandle",
    "DeadLetter",
    "DiskModel",
    "Ended",
    "Event",
    "EventLog",
    "GroupPlan",
    "HistoryPage",
    "LiveSystem",
    "Objective",
    "Payload",
    "Plan",
    "ProducerHandle",
    "ProducerPlan",
    "Record",
    "RecordMetadata",
    "Records",
    "Ref",
    "Run",
    "Scenario",
    "SimulatedSystem",
    "Sweep",
    "Timer",
    "Topic",
    "TopicPartition",
    "TopicPlan",
    "actions",
    "cooperative",
    "dead_letter",
    "errors",
    "load",
    "load_scenario",
    "network",
    "plan",
    "receives",
    "run",
    "sweep",
]
