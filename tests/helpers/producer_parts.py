"""The parts of a producer without an engine: a sender and an accumulator on fake effects."""

from itertools import count
from typing import Any

import attrs

import wavetank as wt
from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.client.accumulator import RecordAccumulator
from wavetank.actors.client.metadata import MetadataCache
from wavetank.actors.client.sender import Sender
from wavetank.actors.controller_finder import ControllerFinder
from wavetank.model.log.batch import Batch
from wavetank.model.messages.client import Append, Appended
from wavetank.model.messages.cluster import Leader, Metadata, ProducerEpoch
from wavetank.model.settings import ProducerSettings
from wavetank.model.topics import Topic
from wavetank.strategies.partitioning import partitioner

ORDERS = wt.TopicPartition("orders", 0)
OTHER = wt.TopicPartition("orders", 1)
CONTROLLER, LEADER = FakeRef("controller"), FakeRef("leader")
METADATA = Metadata(
    1,
    {"orders": Topic("orders", 2)},
    {tp: Leader(LEADER, "broker-0", 0) for tp in (ORDERS, OTHER)},
    {},
    ("broker-0",),
)


def batch(*values: Any) -> Batch:
    return Batch.of("shop", 0, values, timestamps_us=0, sizes=1)


@attrs.define(eq=False, slots=False)
class ProducerParts:
    """A sender with an epoch, and an accumulator, which know the topic "orders"."""

    settings: ProducerSettings = attrs.Factory(ProducerSettings)
    rule: Any = "key"
    epoch: int | None = 0
    metadata: Metadata | None = METADATA

    def __attrs_post_init__(self) -> None:
        self.effects = FakeEffects(FakeRef("shop"))
        effects: Any = self.effects
        controllers = ControllerFinder((CONTROLLER,))  # type: ignore[arg-type]
        self.cache = MetadataCache(effects, controllers, self.settings)
        self.sender = Sender(effects, self.settings, self.cache, controllers, count(1))
        self.accumulator = RecordAccumulator(
            effects, self.settings, partitioner(self.rule), self.cache, self.sender
        )
        if self.metadata is not None:
            self.cache.update(self.metadata)
        if self.epoch is not None:
            self.sender.set_epoch(ProducerEpoch(1, "shop", self.epoch))

    def enqueue(self, *values: Any, partition: Any = ORDERS) -> list[Any]:
        """Enqueue a batch; the list that is returned gets its outcome."""
        outcome: list[Any] = []
        self.sender.enqueue(
            partition, batch(*values), self.effects.now, lambda *told: outcome.append(told)
        )
        return outcome

    def appends(self) -> list[Append]:
        """All requests to the leader."""
        return self.effects.messages(Append)

    def sequences(self) -> list[int]:
        """The first sequence number of each request to the leader."""
        return [append.batch.sequence for append in self.appends()]

    def store(self, append: Append, base_offset: int = 0) -> None:
        """Let the leader acknowledge a request."""
        self.sender.acknowledge(Appended(append.request, base_offset, 77))

    def timers(self, kind: type) -> list[Any]:
        """The timers with messages of a type that have been set and not cancelled."""
        timers = self.effects.timers
        return [t for t in timers if type(t.message) is kind and not t.cancelled]
