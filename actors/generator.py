"""A running producer: makes up records on a load model, and sends them as any producer does.

It looks at the clock once in every `resolution` of its load and makes what has arrived since, all
at once and in columns: a thousand records cost about as much as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from ..model.batch import Batch
from ..model.exchange import SetRate, SetRunning
from ..model.topics import partitions_of
from ..strategies.batching import cut
from ..strategies.partitioning import next_sticky
from .actor import receives
from .producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..model.settings import ProducerSettings
    from ..model.topics import Topic, TopicPartition
    from ..strategies.partitioning import Partitioner
    from ..strategies.workload import Load
    from .ref import Ref


@attrs.frozen
class Emit:
    """Time for a running producer to make records."""


class Generator(Producer):
    """Produces by itself."""

    def __init__(
        self, controller: Ref, settings: ProducerSettings, partitioner: Partitioner, load: Load
    ) -> None:
        super().__init__(controller, settings, partitioner)
        self.load = load
        self.emitted_us = 0
        self.running = True
        self.partitions: list[TopicPartition] = []
        """Those of its topic."""

    def started(self) -> None:
        super().started()
        self.emitted_us = self.now
        self.every(self.load.resolution_us, Emit())

    @receives(Emit)
    def on_emit(self, emit: Emit) -> None:
        """Make the records that arrived since the last time, one batch for each partition."""
        load = self.load
        topic = self.metadata.topics.get(load.topic)
        since_us, self.emitted_us = self.emitted_us, self.now
        if not self.running:
            return
        if topic is None:
            self.refresh()
            return
        count = load.arrivals.count_in(since_us, self.now, self.numpy_random)
        if not count:
            return
        keys = load.keys.draw(count, self.numpy_random)
        sizes = load.sizes.draw(count, self.numpy_random)
        if len(self.partitions) != topic.partitions:
            self.partitions = partitions_of(topic.name, topic.partitions)
        batch = Batch(self.producer_id, 0, count, keys=keys, timestamps_us=self.now, sizes=sizes)
        limit = self.settings.batch_size
        for number, piece in self.spread(batch, keys, topic):
            partition = self.partitions[number]
            if piece.bytes <= limit:
                self.enqueue(partition, piece, ())
                continue
            for part in cut(piece, limit):
                self.enqueue(partition, part, ())
        if topic.name in self.stickies:
            old = self.stickies[topic.name]
            self.stickies[topic.name] = next_sticky(topic.partitions, old, self.random)

    def spread(self, batch: Batch, keys: Any, topic: Topic) -> Iterable[tuple[int, Batch]]:
        """Deal records out to partitions."""
        count, load, chance = batch.count, self.load, self.numpy_random
        if keys is None and load.partition is None:
            counts = self.partitioner.counts(count, topic.partitions, chance)
            if counts is not None:
                ends = np.cumsum(counts).tolist()
                starts = [0, *ends]
                parts = enumerate(zip(starts, ends, strict=False))
                return [(number, batch.part(a, b)) for number, (a, b) in parts if a < b]
        chosen = self.partitioner.choose_many(
            keys, None, count, topic.partitions,
            requested=load.partition, sticky=self.sticky(topic), random=chance,
        )  # fmt: skip
        return batch.split_by(chosen, topic.partitions).items()

    @receives(SetRate)
    def on_set_rate(self, change: SetRate) -> None:
        self.load = attrs.evolve(self.load, arrivals=self.load.arrivals.scaled(change.factor))

    @receives(SetRunning)
    def on_set_running(self, change: SetRunning) -> None:
        self.running = change.running

    def misses_something(self) -> bool:
        return self.load.topic not in self.metadata.topics or super().misses_something()
