"""The part of a replica that follows: it fetches from the leader, and has what the leader has.

One fetch is on its way at a time. What it brings is written to the disk, if there is one, before
the next fetch tells the leader that it is here. If the leader says that the logs diverge, the end
of this one is cut off, by leader epoch and end offset (KIP-101, KIP-279), never at the high
watermark: what is above it here may be committed all the same.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.events import kinds
from ...model.log.producer_state import ProducerStateManager
from ...model.log.record import NOT_IDEMPOTENT
from ...model.messages.client import make_tuple
from ...model.messages.replication import ReplicaFetch
from .loss_audit import judge_own

if TYPE_CHECKING:
    from ...model.log.batch import Batch
    from ...model.log.log import MemoryLog
    from ...model.messages.replication import (
        ReplicaDiverged,
        ReplicaFetched,
        ReplicaFetchRefused,
        ReplicaOutOfRange,
    )
    from ...model.partition_journal import JournaledState
    from ...model.settings import ClusterSettings
    from ...model.topics import TopicPartition
    from ..engine.effects import Effects
    from .loss_audit import PartitionAudit
    from .partition_storage import PartitionStorage
    from .record_loader import RecordLoader

NO_ANSWER_US: Final = 1_000_000
"""Time after the maximum wait of a fetch after which it is sent again, as it may have been lost;
and the pause after a refusal, Kafka's replica.fetch.backoff.ms."""


@attrs.frozen
class FetchCheck:
    """Time to send a fetch that was refused, or to which there is no answer."""


@attrs.frozen
class FetchedWritten:
    """Everything that a fetch has brought is on the disk."""

    request: int
    """Number of the fetch."""


class ReplicaFollower:
    """Keeps a log and the state beside it the same as the leader's."""

    def __init__(
        self,
        effects: Effects,
        partition: TopicPartition,
        settings: ClusterSettings,
        log: MemoryLog,
        producers: ProducerStateManager,
        state: JournaledState,
        audit: PartitionAudit,
        *,
        broker: str,
        broker_epoch: int,
        storage: PartitionStorage | None,
        loader: RecordLoader | None,
    ) -> None:
        """Begin with what there is."""
        self._effects = effects
        self._partition = partition
        self._wait_us = settings.replica_fetch_wait_max_ms * 1_000
        self._max_bytes = settings.replica_fetch_max_bytes
        self._log = log
        self.producers = producers
        self.state = state
        """Everything beside the log."""
        self._audit = audit
        self._broker = broker
        self._broker_epoch = broker_epoch
        self._storage = storage
        self._loader = loader
        self._leader: str | None = None
        """Name of the leader's actor."""
        self._leader_epoch = -1
        self._changes = -1
        """Number of changes of this leader epoch that are applied."""
        self._request = effects.life << 32
        self._fetching = False
        """Whether a fetch is on its way."""
        self._due_us = 0
        """When to send a fetch (again) unless something happens before."""
        self._has_timer = False
        self._writing: deque[Batch] = deque()
        """Batches that wait for the disk."""
        self._on_disk: list[Batch] = []
        """Batches on their way to the disk."""
        self._fetched: ReplicaFetched | None = None
        """The answer whose batches are being written."""
        self._judged = False
        """Whether the records that former leaders have promised were looked for in this epoch."""

    @property
    def is_writing(self) -> bool:
        """Whether something that was fetched is on its way to the disk."""
        return self._fetched is not None

    def follow(self, leader: str | None, leader_epoch: int) -> None:
        """Fetch from the leader of an epoch; without one, wait."""
        if leader_epoch != self._leader_epoch:
            self._changes = -1  # the state of this epoch begins with a snapshot
            self._judged = False
        self._leader, self._leader_epoch = leader, leader_epoch
        self._fetching = False
        self._request += 1  # an answer that is still on its way does not count
        if not self.is_writing:
            self._fetch()

    def stop(self) -> None:
        """Fetch no more: this replica leads, or ends."""
        self._leader = None
        self._fetching = False
        self._request += 1

    def _fetch(self) -> None:
        """Ask for what comes next."""
        if self._leader is None or self._fetching:
            return
        leader = self._effects.find(self._leader)
        wait_us = self._wait_us
        self._due_us = self._effects.now + wait_us + NO_ANSWER_US
        if leader is not None:
            self._request += 1
            self._fetching = True
            log = self._log
            fetch = (
                self._request, self._broker, self._broker_epoch, self._leader_epoch,
                log.end_offset, log.last_epoch, self._changes,
                self._max_bytes, wait_us,
            )  # fmt: skip
            self._effects.send(leader, make_tuple(ReplicaFetch, fetch))
        if not self._has_timer:
            self._set_timer()

    def _set_timer(self) -> None:
        if not self._has_timer:
            self._has_timer = True
            wait_us = max(1_000, self._due_us - self._effects.now)
            self._effects.after(wait_us, FetchCheck(), background=True)

    def check(self) -> None:
        """Send a fetch again to which there was no answer in time, or that was refused."""
        self._has_timer = False
        if self._leader is None or self.is_writing:
            return
        if self._effects.now >= self._due_us:
            self._fetching = False
            self._fetch()
        else:
            self._set_timer()

    # Answers

    def _is_awaited(self, request: int, leader_epoch: int) -> bool:
        return self._fetching and request == self._request and leader_epoch == self._leader_epoch

    def on_refused(self, refused: ReplicaFetchRefused) -> None:
        """Try again later: the leader does not lead yet, or this replica hears of another soon."""
        if self._fetching and refused.request == self._request:
            self._fetching = False
            self._due_us = self._effects.now + NO_ANSWER_US
            self._set_timer()

    def on_diverged(self, diverged: ReplicaDiverged) -> None:
        """Cut off the records that the leader does not have."""
        if self._is_awaited(diverged.request, diverged.leader_epoch):
            self._fetching = False
            _, own_end = self._log.end_of_epoch(diverged.epoch)
            self._cut(min(own_end, diverged.end_offset))
            self._fetch()

    def _cut(self, offset: int) -> None:
        removed = self._log.truncate_after(offset)
        self._after_cut()
        if not removed:
            return
        self._record(
            kinds.REPLICA_TRUNCATED,
            base_offset=removed[0].base_offset,
            count=sum(batch.count for batch in removed),
            epoch=removed[0].epoch,
        )

    def _after_cut(self) -> None:
        """Cut off the files as the log was, and forget what is known of the records."""
        if self._storage is not None:
            self._storage.truncate_after(self._log)
        if self._loader is not None:
            self._loader.truncated()
        self._remember_producers()

    def _remember_producers(self) -> None:
        """Make the state of producers from the batches that are left."""
        log = self._log
        self.producers = ProducerStateManager()
        for batch in log.pieces(log.start_offset, log.end_offset):
            self._note_producer(batch)

    def _note_producer(self, batch: Batch) -> None:
        if batch.producer_epoch != NOT_IDEMPOTENT:
            self.producers.restored(batch)

    def on_out_of_range(self, out: ReplicaOutOfRange) -> None:
        """Begin anew where the leader's log begins."""
        if self._is_awaited(out.request, out.leader_epoch):
            self._fetching = False
            self._log.start_over(out.start_offset)
            self._after_cut()
            self._fetch()

    def on_fetched(self, fetched: ReplicaFetched) -> None:
        """Take what the leader has sent."""
        if not self._is_awaited(fetched.request, fetched.leader_epoch):
            return
        self._fetching = False
        if not self._judged:
            self._judged = True
            judge_own(self._audit, self._effects, self._partition, self._log)
        if self._storage is None:
            for batch in fetched.batches:
                self._add(batch)
            self._take_state(fetched)
            self._fetch()
            return
        self._fetched = fetched
        self._writing.extend(fetched.batches)
        self.write()

    def _add(self, batch: Batch) -> None:
        self._log.add(batch)
        if batch.producer_epoch != NOT_IDEMPOTENT:
            self.producers.restored(batch)
        if self._loader is not None:
            self._loader.added(batch)

    def _take_state(self, fetched: ReplicaFetched) -> None:
        """Apply changes, and move the start and the high watermark of the log.

        They count only if the epoch is still the same after the records were written.
        """
        if fetched.leader_epoch != self._leader_epoch:
            return
        storage, state, log = self._storage, self.state, self._log
        changes = fetched.changes
        if fetched.snapshot is not None:
            changes = (("reset", fetched.snapshot), *changes)
        for change in changes:
            state.apply(change)
            if storage is not None:
                storage.journal.add(change)
        self._changes = fetched.change_count
        if fetched.start_offset > log.start_offset:
            start = min(fetched.start_offset, log.end_offset)
            if start > log.start_offset:
                log.truncate_before(start)
                if storage is not None:
                    storage.start_moved(start)
        reached = min(fetched.high_watermark, log.end_offset)
        if reached > log.high_watermark:
            log.high_watermark = reached

    # The disk

    def write(self) -> None:
        """Write what was fetched, as far as the disk takes it now."""
        storage = self._storage
        assert storage is not None
        while self._writing and not self._on_disk:
            for batch in self._writing:
                storage.knows(batch)
            if storage.is_busy():
                return
            batches = list(self._writing)
            self._writing.clear()
            self._on_disk = batches
            if (len(batches) == 1 and storage.write_at_once(batches[0])) or storage.write(batches):
                self._add_written()
        if not self._writing and not self._on_disk and self._fetched is not None:
            self._take_state(self._fetched)
            written = FetchedWritten(self._fetched.request)
            if storage.journal.is_written:
                self.on_written(written)
            else:
                storage.journal.send(self._effects.ref, written)

    def _add_written(self) -> None:
        written, self._on_disk = self._on_disk, []
        for batch in written:
            self._add(batch)

    def write_waiting(self) -> None:
        """Go on writing, if the disk was busy with something else."""
        if self._writing:
            self.write()

    def batches_written(self) -> None:
        """Add the batches to the log that are on the disk now."""
        self._add_written()
        self.write()

    def batches_failed(self) -> None:
        """Fetch again later what could not be written."""
        self._on_disk.clear()
        self._writing.clear()
        self._fetched = None
        self._due_us = self._effects.now + NO_ANSWER_US
        self._set_timer()

    def on_written(self, written: FetchedWritten) -> None:
        """Fetch what comes next: the leader may count on what was fetched."""
        if self._fetched is not None and self._fetched.request == written.request:
            self._fetched = None
            self._fetch()

    def _record(self, kind: str, **fields: Any) -> None:
        topic, number = self._partition
        self._effects.record(kind, topic=topic, partition=number, **fields)
