"""The producer that makes its own records: a load model, and a sender that sends them.

Once in every `resolution` of the load it makes all records that have arrived since the last time,
at once and in columns: a thousand records cost about as much as one. At a low rate arrivals are
drawn for many intervals ahead, so that an interval without arrivals costs nothing. Users can send
records of their own through it, as through any producer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from ...model.log.batch import Batch
from ...model.messages.client import Send, SendMany, SetRate, SetRunning
from ...model.topics import partitions_of
from ...strategies.batching import cut
from ..engine.actor import receives
from .accumulator import LingerOver, RecordAccumulator
from .sending_client import SendingClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model.settings import ProducerSettings
    from ...model.topics import Topic, TopicPartition
    from ...strategies.partitioning import Partitioner
    from ...strategies.workload import Load
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from ..engine.timers import Timer
    from .metadata import MetadataCache
    from .sender import Sender


_PLAN_US: Final = 100_000
"""How far ahead arrivals are drawn."""


@attrs.frozen
class EmitRecords:
    """Time to make the records that have arrived since the last time."""


class LoadModel:
    """Makes the records of a load and passes them to the sender, a batch for each partition."""

    def __init__(
        self,
        effects: Effects,
        settings: ProducerSettings,
        partitioner: Partitioner,
        load: Load,
        metadata: MetadataCache,
        sender: Sender,
        accumulator: RecordAccumulator,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._partitioner = partitioner
        self._load = load
        self._metadata = metadata
        self._sender = sender
        self._accumulator = accumulator
        self._last_us = self._drawn_us = effects.now
        """When records were made last, and up to when arrivals have been drawn."""
        self._planned: deque[tuple[int, int]] = deque()
        """The next times at which to make records, and how many."""
        self._timer: Timer | None = None
        self._partitions: list[TopicPartition] = []
        """The partitions of the load's topic."""
        self.running = True

    def start(self) -> None:
        """Make records from now on."""
        self._plan(self._effects.now, 0)

    def emit(self) -> None:
        """Make the records that have arrived since the last time; none while it does not run."""
        now_us = self._effects.now
        count = self._take_arrived(now_us)
        if self.running and count:
            self._make(count)
        self._plan(now_us, count)

    def _take_arrived(self, now_us: int) -> int:
        """The number of records that have arrived since the last time."""
        count = 0
        if now_us < self._last_us:  # the clock of the node was set back
            self._planned.clear()
            self._drawn_us = now_us
        self._last_us = now_us
        while self._planned and self._planned[0][0] <= now_us:
            count += self._planned.popleft()[1]
        if now_us > self._drawn_us:
            random = self._effects.numpy_random
            count += self._load.arrivals.count_in(self._drawn_us, now_us, random)
            self._drawn_us = now_us
        return count

    def _plan(self, now_us: int, made: int) -> None:
        """Set the timer for the next records; `made` is how many there were this time.

        Where there are few at a time, most intervals have none: arrivals are drawn ahead.
        """
        steps = _PLAN_US // self._load.resolution_us
        if self._drawn_us <= now_us and made <= 1 < steps:
            self._draw(steps)
        self._set_timer(now_us)

    def _draw(self, steps: int) -> None:
        """Draw the arrivals of the next intervals."""
        start_us, step_us = self._drawn_us, self._load.resolution_us
        self._drawn_us += steps * step_us
        random = self._effects.numpy_random
        times = self._load.arrivals.times_in(start_us, self._drawn_us, random)
        counts = np.bincount((times - start_us) // step_us)
        for step in np.flatnonzero(counts).tolist():
            self._planned.append((start_us + (step + 1) * step_us, int(counts[step])))

    def _set_timer(self, now_us: int) -> None:
        next_us = max(self._drawn_us, now_us + self._load.resolution_us)
        if self._planned:
            next_us = self._planned[0][0]
        self._timer = self._effects.after(max(0, next_us - now_us), EmitRecords())

    def _make(self, count: int) -> None:
        load, now_us, random = self._load, self._effects.now, self._effects.numpy_random
        topic = self._metadata.current.topics.get(load.topic)
        if topic is None:
            self._metadata.refresh()
            return
        keys = load.keys.draw(count, random)
        sizes = load.sizes.draw(count, random)
        if len(self._partitions) != topic.partitions:
            self._partitions = partitions_of(topic.name, topic.partitions)
        sender, limit = self._sender, self._settings.batch_size
        batch = Batch(sender.producer_id, 0, count, keys=keys, timestamps_us=now_us, sizes=sizes)
        for number, piece in self._split(batch, keys, topic):
            partition = self._partitions[number]
            if piece.bytes <= limit:
                sender.enqueue(partition, piece, now_us)
                continue
            for part in cut(piece, limit):
                sender.enqueue(partition, part, now_us)
        self._accumulator.change_sticky_partition(topic.name)

    def scale(self, factor: float) -> None:
        """Multiply the rate by a factor, from the next interval on."""
        self._load = attrs.evolve(self._load, arrivals=self._load.arrivals.scaled(factor))
        now_us, step_us = self._effects.now, self._load.resolution_us
        if self._drawn_us > now_us:
            self._drawn_us -= (self._drawn_us - now_us) // step_us * step_us
            while self._planned and self._planned[-1][0] > self._drawn_us:
                self._planned.pop()
            if self._timer is not None:
                self._timer.cancel()
            self._set_timer(now_us)

    def needs_metadata(self) -> bool:
        """Whether the load's topic is unknown."""
        return self._load.topic not in self._metadata.current.topics

    def _split(self, batch: Batch, keys: Any, topic: Topic) -> Iterable[tuple[int, Batch]]:
        """Split a batch by partition."""
        count, requested, random = batch.count, self._load.partition, self._effects.numpy_random
        if keys is None and requested is None:
            counts = self._partitioner.counts(count, topic.partitions, random)
            if counts is not None:
                ends = np.cumsum(counts).tolist()
                starts = [0, *ends]
                parts = enumerate(zip(starts, ends, strict=False))
                return [(number, batch.part(a, b)) for number, (a, b) in parts if a < b]
        sticky = self._accumulator.sticky_partition(topic)
        chosen = self._partitioner.choose_many(
            keys, None, count, topic.partitions, requested=requested, sticky=sticky, random=random
        )
        return batch.split_by(chosen, topic.partitions).items()


class LoadGenerator(SendingClient):
    """Sends the records of a load, and those of users."""

    accumulator: RecordAccumulator
    load_model: LoadModel

    def __init__(
        self,
        controllers: tuple[Ref, ...],
        settings: ProducerSettings,
        partitioner: Partitioner,
        load: Load,
    ) -> None:
        super().__init__(controllers, settings)
        self.partitioner = partitioner
        self.load = load

    def started(self) -> None:
        super().started()
        self.accumulator = RecordAccumulator(
            self.effects, self.settings, self.partitioner, self.cluster, self.batch_sender
        )
        self.load_model = LoadModel(
            self.effects, self.settings, self.partitioner, self.load, self.cluster,
            self.batch_sender, self.accumulator,
        )  # fmt: skip
        self.cluster.start()
        self.load_model.start()

    @receives(EmitRecords)
    def on_emit(self, emit: EmitRecords) -> None:
        self.load_model.emit()

    @receives(SetRate)
    def on_set_rate(self, change: SetRate) -> None:
        self.load_model.scale(change.factor)

    @receives(SetRunning)
    def on_set_running(self, change: SetRunning) -> None:
        self.load_model.running = change.running

    def misses_something(self) -> bool:
        return self.load_model.needs_metadata() or super().misses_something()

    @receives(Send)
    def on_send(self, send: Send) -> None:
        self.accumulator.append(send, self.sender)

    @receives(SendMany)
    def on_send_many(self, send: SendMany) -> None:
        self.accumulator.append(send, self.sender)

    @receives(LingerOver)
    def on_linger_over(self, over: LingerOver) -> None:
        self.accumulator.end_linger(over)
