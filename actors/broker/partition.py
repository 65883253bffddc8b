"""One replica of a partition: its log, and one cursor for each group. It lives on its broker.

One replica leads: it answers requests. The work is done by the log and the cursors (model/log/) and
by the parts it holds: the followers it serves, the fetches that wait, one share partition for each
group that acknowledges record by record, and the log cleaner. The others follow: they fetch the log
and the changes of all else from the leader (replica_follower.py), and can lead next.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from ...model.errors import BadValueError
from ...model.events import kinds
from ...model.events.schema import NULL_INT
from ...model.log.cursor import Cursor
from ...model.log.log import MemoryLog
from ...model.log.producer_state import APPEND, FENCED, AppendVerdict, ProducerStateManager, Stored
from ...model.log.record import NOT_IDEMPOTENT, NOWHERE
from ...model.messages.client import (
    ALL,
    Append,
    Appended,
    AppendFailed,
    Claim,
    Claimed,
    Fenced,
    Fetch,
    FindOffset,
    FoundOffset,
    GroupCommitted,
    Inspect,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrder,
    PartitionView,
    ProducerFenced,
    TooFarAhead,
    make_tuple,
)
from ...model.messages.cluster import (
    Drop,
    NotController,
    RecordsReserved,
    Reservation,
    Reserve,
    Reserved,
    ReserveRecords,
    StorageFailed,
)
from ...model.messages.partition_state import PartitionState
from ...model.messages.replication import (
    AlterPartition,
    AlterRefused,
    InspectReplica,
    PartitionAltered,
    ReplicaDiverged,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaFetchRefused,
    ReplicaLeads,
    ReplicaOrder,
    ReplicaOutOfRange,
    ReplicaState,
    ReplicaView,
)
from ...model.messages.share import (
    AcknowledgeRecords,
    Acquire,
    Attach,
    Attached,
    Detach,
    InspectKeys,
    KeysView,
    NotAttached,
    ShareHeartbeat,
    SubscriptionConfig,
)
from ...model.partition_journal import JournaledState, cursor_entry, entries_of, terms_entry
from ..controller_finder import ControllerFinder
from ..engine.actor import Actor, Ended, receives
from ..engine.disk import DiskFailed, FolderRead, FramesRead
from .change_log import ChangeLog
from .dead_letters import DeadLetterProducer, DeadLettersWritten
from .delayed_fetches import DelayedFetches, WaitOver
from .file_codec import FileCodec
from .group_writer import GroupWritten
from .journal import RetryJournal, SnapshotDurable
from .log_cleaner import CleanUp, GroupLease, LogCleaner
from .loss_audit import begin_epoch
from .partition_director import RESERVE
from .partition_storage import (
    CompactionStored,
    FlushDue,
    Flushed,
    KeptFrames,
    PartitionStorage,
    SegmentCleaned,
    StartStored,
)
from .record_loader import RecordLoader
from .replica_follower import FetchCheck, FetchedWritten, ReplicaFollower
from .replication import FollowersWait, InSyncCheck, Replication
from .share_partition import Due, SharePartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...model.log.batch import Batch
    from ...model.log.offset_ranges import OffsetRange
    from ...model.settings import ClusterSettings
    from ..engine.effects import Recorder
    from ..engine.ref import Ref
    from .journal import Entry
    from .loss_audit import LedEpoch, LossAudit
    from .partition_storage import FrameCodec

RETRY_RESERVE_US: Final = 500_000
"""Time after which a leader asks again for offsets, if it has none left."""

LIVENESS_CHECK_US: Final = 1_000_000
"""Interval between two checks of the members of share groups."""

BALANCE_EVERY: Final = 5
"""The slots of key-shared groups are balanced at most once in this many liveness checks."""

NO_REQUEST: Final = 0
"""The request number of an answer to a heartbeat, which has none."""


@attrs.frozen
class RetryReserve:
    """Time to ask again for offsets."""


@attrs.frozen
class LivenessCheck:
    """The interval between two liveness checks has passed."""


def _nothing() -> None:
    """Nothing is left to be done."""


class Partition(Actor):
    """One replica of one partition."""

    delayed_fetches: DelayedFetches
    log_cleaner: LogCleaner
    follower: ReplicaFollower
    changes: ChangeLog
    led: LedEpoch
    loader: RecordLoader | None = None
    """Reads records from the disk that are not in memory."""

    def __init__(
        self,
        order: ReplicaOrder,
        broker: Ref,
        broker_epoch: int,
        settings: ClusterSettings,
        controllers: tuple[Ref, ...],
        audit: LossAudit,
    ) -> None:
        """Be a replica on a broker, as the first order says."""
        self.partition = order.partition
        self.topic = order.topic
        self.order = order
        """The newest order that was taken."""
        self.next_order: ReplicaOrder | None = order
        """An order that waits until the log is read, or until what was fetched is written."""
        self.broker_ref = broker
        self.broker = broker.name
        self.broker_epoch = broker_epoch
        self.settings = settings
        self.controllers = controllers
        self.finder = ControllerFinder(controllers)
        self.audit = audit.of(order.partition)
        self.is_ready = False
        """Whether the log is read."""
        self.epoch = -1
        """The leader epoch."""
        self.cursors: dict[str, Cursor] = {}
        """The positions of all groups, of both kinds."""
        self.lost_before = order.start_offset
        self.log = MemoryLog(start_offset=order.start_offset)
        self.producers = ProducerStateManager()
        self.replication: Replication | None = None
        """The followers, if this replica leads and there are any."""
        self.share_partitions: dict[str, SharePartition] = {}
        """The groups that acknowledge, by the name of their cursor."""
        self.on_disk = settings.storage == "disk"
        self.storage: PartitionStorage | None = None
        """The files of the partition, if it is on a disk."""
        self.waiting_appends: deque[tuple[Append, Ref]] = deque()
        """Batches that wait for the disk to be free."""
        self.writing: list[tuple[Batch, Append, Ref]] = []
        """Batches on their way to the disk."""
        self.reserved = 0
        """Offsets below this may be given to records."""
        self.reserve_requested = 0
        self.awaits_offsets = False
        """Whether it is about to ask again for offsets."""
        self.append_recorders: dict[str, Recorder] = {}
        """Record appended batches, by producer."""
        self.commit_recorders: dict[tuple[str, str], Recorder] = {}
        """Record commits, by group and member."""
        self.watched: dict[Ref, None] = {}
        """The actors of members of share groups whose end is reported here."""
        self.liveness_checks = 0
        self.dead_letter_ref: Ref | None = None
        self.resigned = True
        """Whether it does not lead."""
        self.cleans = self.checks_followers = False
        """Whether the timers for clean-ups and for lagging followers are set."""

    def started(self) -> None:
        if not self.on_disk:
            self.get_ready(JournaledState())
            return
        codec: FrameCodec = KeptFrames()
        if not self.effects.time_is_virtual:
            codec = FileCodec(self.topic.make_serializer(), self.effects.origin_us)
        self.storage = PartitionStorage(
            self.effects, self.partition, self.topic, self.settings, codec, self.describe,
            alone=self.is_alone,
        )  # fmt: skip
        self.storage.open()

    @property
    def is_alone(self) -> bool:
        """Whether there is no other replica."""
        assert self.next_order is not None
        return len(self.next_order.state.replicas) == 1

    def describe(self) -> Iterator[Entry]:
        """Describe everything but the log."""
        if self.resigned:
            return entries_of(self.follower.state.state(self.log.snapshot(), ()))
        return entries_of(self.snapshot())

    @receives(FolderRead)
    def on_folder_read(self, read: FolderRead) -> None:
        storage = self.storage
        assert storage is not None
        found = storage.on_read(read)
        if found is not None:
            self.log = MemoryLog.from_snapshot(found.log)
            self.producers = ProducerStateManager(found.producers)
            if storage.cache_bytes is not None:
                self.loader = RecordLoader(
                    self.effects, storage, self.log, storage.cache_bytes, self.windows
                )
            self.get_ready(storage.state)
            storage.begin(self.log)

    def get_ready(self, state: JournaledState) -> None:
        """Make what a follower has; then it can take orders, if nothing has to be written first."""
        self.follower = ReplicaFollower(
            self.effects, self.partition, self.settings, self.log, self.producers, state,
            self.audit, broker=self.broker, broker_epoch=self.broker_epoch, storage=self.storage,
            loader=self.loader,
        )  # fmt: skip
        self.changes = ChangeLog(self.effects, None)
        if self.storage is None:
            self.is_ready = True
            self.take_order()

    def windows(self) -> list[OffsetRange]:
        """The ranges of offsets that share groups are at, whose records stay in memory."""
        return [share.window for share in self.share_partitions.values()]

    @receives(FramesRead)
    def on_frames_read(self, read: FramesRead) -> None:
        if self.loader is not None:
            self.loader.on_read(read)

    def stopped(self) -> None:
        if self.storage is not None and self.is_ready and not self.is_writing:
            self.storage.close(self.log.end_offset)

    @property
    def is_writing(self) -> bool:
        """Whether batches are on their way to the disk."""
        return bool(self.writing) or self.follower.is_writing

    @receives(StartStored)
    def on_start_stored(self, stored: StartStored) -> None:
        assert self.storage is not None
        self.storage.on_start_stored(stored)
        if stored.synced and not self.resigned:
            self.log_cleaner.payload_drops.start_stored(stored.offset)

    @receives(SegmentCleaned)
    def on_cleaned(self, cleaned: SegmentCleaned) -> None:
        assert self.storage is not None
        self.storage.on_cleaned(cleaned)

    @receives(CompactionStored)
    def on_compaction_stored(self, stored: CompactionStored) -> None:
        if not self.resigned:
            self.log_cleaner.payload_drops.compaction_stored(stored.number)

    @receives(SnapshotDurable)
    def on_snapshot_durable(self, durable: SnapshotDurable) -> None:
        assert self.storage is not None
        if self.storage.journal.on_snapshot_durable(durable):
            # From now on everything that is promised can be found again.
            self.is_ready = True
            interval_ms = self.settings.log_flush_interval_ms
            if interval_ms is not None:
                self.every(interval_ms * 1_000, FlushDue(), exactly=False)
            self.take_order()

    # Orders

    @receives(ReplicaOrder)
    def on_order(self, order: ReplicaOrder) -> None:
        """Take an order, unless a newer one is known."""
        known = self.next_order or self.order
        if _epochs(order.state) > _epochs(known.state) or (
            self.next_order is None and order.state == known.state
        ):
            self.next_order = order
            self.take_order()

    def take_order(self) -> None:
        """Carry out the newest order, once the disk is free."""
        order = self.next_order
        if order is None or not self.is_ready:
            return
        state = order.state
        if state.leader == self.broker and not self.resigned and state.leader_epoch == self.epoch:
            self.next_order = None
            self.topic, self.order = order.topic, order
            self.confirm(state)
            self.tell_leading()
            return
        if self.is_writing:
            if not self.resigned:
                self.resign()  # nothing is accepted any more; what is written stays
            return
        self.next_order = None
        again = state == self.order.state and self.epoch == state.leader_epoch
        self.topic, self.order = order.topic, order
        if not self.resigned:
            self.resign()
        if state.leader == self.broker:
            self.follower.stop()
            self.lead(state)
        elif not again:
            self.epoch = state.leader_epoch
            self.follower.follow(order.leader_address, state.leader_epoch)

    def lead(self, state: ReplicaState) -> None:
        """Lead in a new epoch, with the records that share groups have in flight in memory."""
        self.epoch = state.leader_epoch
        self.begin(state)
        if self.loader is None or not self.windows():
            self.tell_leading()
            return
        *others, last = self.windows()
        for window in others:
            self.loader.when_loaded(*window, _nothing)
        self.loader.when_loaded(*last, partial(self.loaded, self.epoch))

    def loaded(self, epoch: int) -> None:
        """Begin to lead with the records that were read, unless another replica leads by now."""
        if epoch == self.epoch and not self.resigned:
            self.tell_leading()

    def tell_leading(self) -> None:
        """Tell the broker, and by it the controller, that clients can come."""
        self.send(self.broker_ref, ReplicaLeads(self.partition, self.epoch, self.ref))

    def begin(self, order: ReplicaState) -> None:
        """Make the parts of a leader, with the state there is."""
        effects, storage, log = self.effects, self.storage, self.log
        state = self.follower.state.state(log.snapshot(), ())
        self.producers = self.follower.producers
        self.resigned = False
        log.begin_epoch(self.epoch)
        if storage is not None:
            storage.write_epochs(log)
        self.changes = ChangeLog(effects, None if storage is None else storage.journal)
        self.led = begin_epoch(
            self.audit, effects, self.partition, self.epoch, log,
            alone=len(order.replicas) == 1, unclean=order.unclean,
        )  # fmt: skip
        self.cursors = {name: Cursor.from_snapshot(cursor) for name, cursor in state.cursors}
        self.delayed_fetches = DelayedFetches(effects, log, self.cursors, self.loader)
        self.log_cleaner = LogCleaner(
            effects, self.partition, self.topic, self.epoch, log, self.cursors,
            self.share_partitions, state.leases, state.reservations,
            storage=storage, changes=self.changes, loader=self.loader,
        )  # fmt: skip
        for lease in self.log_cleaner.leases.values():
            lease.heard_us = self.now  # the former leader has heard of the group since
        self.reserved = self.reserve_requested = 2**62 if self.on_disk else self.order.reserved
        if len(order.replicas) > 1:
            self.replicate(order)
        else:
            self.advance_alone()
        self.reserve(self.order.reservations)
        if not self.cleans:
            self.cleans = True
            check_us = self.settings.log_retention_check_interval_ms * 1_000
            effects.every(check_us, CleanUp(), exactly=False)
        for former in state.share_partitions:
            cursor = self.cursors[former.name]
            self.add_share_partition(former.name, former.terms, cursor).restore(former)

    def replicate(self, state: ReplicaState) -> None:
        """Serve followers from now on."""
        self.replication = Replication(
            self.effects, self.partition, self.topic, self.settings, self.log, self.changes,
            lambda: entries_of(self.snapshot()), self.record_appended, self.propose,
            broker=self.broker, broker_epoch=self.broker_epoch, state=state, led=self.led,
            audit=self.audit, loader=self.loader,
        )  # fmt: skip
        self.replication.advance()
        if not self.checks_followers:
            self.checks_followers = True
            half_us = self.settings.replica_lag_time_max_ms * 500
            self.effects.every(half_us, InSyncCheck(), exactly=False)

    def resign(self) -> None:
        """Lead no more: send clients away, and keep the state for the follower."""
        self.follower.state = JournaledState()
        for entry in entries_of(self.snapshot()):
            self.follower.state.apply(entry)
        self.follower.producers = self.producers
        self.resigned = True
        self.delayed_fetches.resign()
        for share in self.share_partitions.values():
            share.resign()
        if self.replication is not None:
            self.replication.resign()
            self.replication = None
        for append, asker in self.waiting_appends:
            self.send(asker, NotLeader(append.request))
        self.waiting_appends.clear()
        self.share_partitions.clear()
        self.cursors.clear()

    def advance_alone(self) -> None:
        """Make the whole log visible, as there is no other replica."""
        log, audit = self.log, self.audit
        for batch in log.pieces(audit.visible_to, log.end_offset):
            self.record_appended(batch)  # written, but not yet recorded when the process ended
        audit.visible_to = log.high_watermark = log.end_offset

    def note(self, entry: Entry) -> None:
        """Write a change of the state, and replicate it."""
        self.changes.add(entry)

    def record_here(self, kind: str, **fields: str | int | None) -> None:
        """Record an event of this partition."""
        topic, number = self.partition
        self.record(kind, topic=topic, partition=number, **fields)

    # Replication

    @receives(ReplicaFetch)
    def on_replica_fetch(self, fetch: ReplicaFetch) -> None:
        replication = self.replication
        if replication is None:
            self.reply(ReplicaFetchRefused(fetch.request, self.epoch))
        elif replication.on_fetch(fetch, self.effects.sender):
            self.serve()

    @receives(ReplicaFetched)
    def on_replica_fetched(self, fetched: ReplicaFetched) -> None:
        self.follower.on_fetched(fetched)

    @receives(ReplicaDiverged)
    def on_replica_diverged(self, diverged: ReplicaDiverged) -> None:
        self.follower.on_diverged(diverged)

    @receives(ReplicaOutOfRange)
    def on_replica_out_of_range(self, out: ReplicaOutOfRange) -> None:
        self.follower.on_out_of_range(out)

    @receives(ReplicaFetchRefused)
    def on_replica_fetch_refused(self, refused: ReplicaFetchRefused) -> None:
        self.follower.on_refused(refused)

    @receives(FetchCheck)
    def on_fetch_check(self, check: FetchCheck) -> None:
        self.follower.check()

    @receives(FetchedWritten)
    def on_fetched_written(self, written: FetchedWritten) -> None:
        self.follower.on_written(written)
        self.take_order()

    @receives(FollowersWait)
    def on_followers_wait(self, wait: FollowersWait) -> None:
        if self.replication is not None:
            self.replication.on_wait_over()

    @receives(InSyncCheck)
    def on_in_sync_check(self, check: InSyncCheck) -> None:
        if self.replication is not None:
            self.replication.check()

    @property
    def knows_committed(self) -> bool:
        """Whether it leads and has a high watermark that is not behind that of the last leader.

        Until its followers have fetched, a new leader does not know how much is committed. Whoever
        asks where the log ends has to ask again (KIP-207).
        """
        if self.resigned or self.replication is None:
            return not self.resigned
        return self.log.high_watermark >= self.replication.set.epoch_start

    def propose(self, proposal: AlterPartition) -> None:
        """Ask the controller to change the in-sync set."""
        self.send(self.finder.to_ask(), proposal)

    @receives(PartitionAltered)
    def on_partition_altered(self, altered: PartitionAltered) -> None:
        self.finder.answered()
        if altered.state.leader_epoch == self.epoch and not self.resigned:
            self.confirm(altered.state)

    @receives(AlterRefused)
    def on_alter_refused(self, refused: AlterRefused) -> None:
        self.finder.answered()
        if self.replication is not None:
            self.replication.refuse(refused.leader_epoch, refused.partition_epoch)

    def confirm(self, state: ReplicaState) -> None:
        """Take a newer state of the same epoch."""
        if self.replication is None and len(state.replicas) > 1:
            self.replicate(state)  # the partition had no followers so far
        elif self.replication is not None and self.replication.confirm(state):
            self.serve()

    @receives(InspectReplica)
    def on_inspect_replica(self, inspect: InspectReplica) -> None:
        log = self.log
        self.reply(
            ReplicaView(
                self.broker,
                not self.resigned,
                self.epoch,
                log.start_offset,
                log.end_offset,
                log.high_watermark,
            )
        )

    # Producing

    @receives(Append)
    def on_append(self, append: Append) -> None:
        asker, storage = self.effects.sender, self.storage
        if (
            storage is not None
            and (storage.writer.busy or storage.names_producers)
            and not self.resigned
            and storage.must_wait(append.batch)
        ):
            self.waiting_appends.append((append, asker))
            return
        batch = self.accept(append, asker, self.producers, self.log.end_offset)
        if batch is None:
            return
        if storage is None or storage.write_at_once(batch) or storage.write([batch]):
            self.store(batch, append, asker)
        else:
            self.writing.append((batch, append, asker))

    def accept(
        self, append: Append, asker: Ref, producers: ProducerStateManager, offset: int
    ) -> Batch | None:
        """Return a batch with its offsets; or answer why it is not appended."""
        request, batch, acks, producer_epoch, floor = append
        effects = self.effects
        if self.resigned:
            effects.send(asker, NotLeader(request))
            return None
        if batch.count < 1:
            raise BadValueError(f"{batch!r}: expected at least one record to append")
        replication = self.replication
        if replication is not None and acks == ALL and replication.is_under_min:
            effects.send(asker, NotEnoughReplicas(request))
            return None
        if producer_epoch != NOT_IDEMPOTENT:
            verdict = producers.check(producer_epoch, floor, batch)
            if verdict is not APPEND:
                if isinstance(verdict, Stored) and verdict.base_offset >= self.log.end_offset:
                    self.waiting_appends.append((append, asker))  # its first copy is on its way
                else:
                    self.refuse(append, verdict, asker)
                return None
        end_offset = offset + batch.count
        if end_offset + RESERVE // 2 > self.reserve_requested:
            self.reserve_requested = end_offset + RESERVE
            self.request_offsets()
        if end_offset > self.reserved:
            effects.send(asker, TooFarAhead(request))
            self.await_offsets()
            return None
        return batch.stamped(offset, effects.true_now, self.epoch, producer_epoch)

    def store(self, batch: Batch, append: Append, asker: Ref) -> None:
        """Add a batch to the log; it is visible once all in-sync replicas have it."""
        request, _, acks, producer_epoch, floor = append
        effects, log, replication = self.effects, self.log, self.replication
        log.add(batch)
        if producer_epoch != NOT_IDEMPOTENT:
            self.producers.appended(floor, batch)
        if self.loader is not None:
            self.loader.added(batch)
        if replication is None:
            # In this order: a process that is killed in between has recorded what it has moved.
            self.record_appended(batch)
            log.high_watermark = log.end_offset
        if acks:
            stored = (request, batch.base_offset, batch.append_time_us)
            answer = make_tuple(Appended, stored)
            if replication is None or acks != ALL:
                effects.send(asker, answer)
            else:
                end_offset = batch.base_offset + batch.count
                replication.answer_when_committed(end_offset, asker, request, answer)
        if replication is None:
            self.serve()
            return
        if acks == 1:
            replication.answered_early(batch)
        if replication.appended(batch):
            self.serve()

    def record_appended(self, batch: Batch) -> None:
        """Record that a batch is visible to consumers."""
        recorder = self.append_recorders.get(batch.producer)
        if recorder is None:
            recorder = self.append_recorders[batch.producer] = self.effects.recorder(
                kinds.APPENDED, self.partition, producer=batch.producer
            )
        recorder.batch(batch, batch.epoch)

    def serve(self) -> None:
        """Deliver new records to waiting consumers."""
        if self.delayed_fetches.waiting:
            self.delayed_fetches.try_complete()
        for share in self.share_partitions.values():
            share.dispatch(notify=True)

    # Waiting for the disk

    def write_waiting(self) -> None:
        """Write the batches that have waited, as one group."""
        storage = self.storage
        assert storage is not None
        if not self.waiting_appends or storage.is_busy():
            return
        waiting, self.waiting_appends = self.waiting_appends, deque()
        for append, _ in waiting:
            storage.knows(append.batch)
        if storage.is_busy():
            self.waiting_appends = waiting
            return
        tried, offset = self.producers.fork(), self.log.end_offset
        for append, asker in waiting:
            batch = self.accept(append, asker, tried, offset)
            if batch is not None:
                offset += batch.count
                if batch.producer_epoch != NOT_IDEMPOTENT:
                    tried.appended(append.floor, batch)
                self.writing.append((batch, append, asker))
        batches = [batch for batch, _, _ in self.writing]
        if batches and storage.write(batches):
            self.store_written()

    def store_written(self) -> None:
        """Make the batches visible that were on their way."""
        written, self.writing = self.writing, []
        for batch, append, asker in written:
            if self.resigned:  # it stays in the log, for the next leader to keep or not
                self.log.add(batch)
                if append.epoch != NOT_IDEMPOTENT:
                    self.follower.producers.restored(batch)
                self.send(asker, NotLeader(append.request))
            else:
                self.store(batch, append, asker)

    @receives(GroupWritten)
    def on_group_written(self, written: GroupWritten) -> None:
        storage = self.storage
        assert storage is not None
        if storage.is_written(written):
            if self.writing:
                self.store_written()
            else:
                self.follower.batches_written()
        else:
            storage.journal.on_written(written)
            self.follower.write_waiting()
        self.write_waiting()
        self.take_order()

    @receives(DiskFailed)
    def on_disk_failed(self, failed: DiskFailed) -> None:
        storage = self.storage
        assert storage is not None
        if failed.operation == "sync":
            # Nobody knows what the disk holds now. A later sync that succeeds proves nothing.
            self.resigned = True
            self.send(self.broker_ref, StorageFailed(f"{failed.file}: {failed.reason}"))
        elif storage.has_failed(failed):
            refused, self.writing = self.writing, []
            for _, append, asker in refused:
                self.send(asker, AppendFailed(append.request, failed.reason))
            self.follower.batches_failed()
            self.write_waiting()
            self.take_order()
        elif not storage.has_failed_to_clean(failed):
            storage.journal.on_failed(failed)

    @receives(RetryJournal)
    def on_retry_journal(self, retry: RetryJournal) -> None:
        assert self.storage is not None
        self.storage.journal.retry()
        self.write_waiting()

    @receives(Flushed)
    def on_flushed(self, flushed: Flushed) -> None:
        assert self.storage is not None
        self.storage.on_flushed(flushed)

    @receives(FlushDue)
    def on_flush_due(self, due: FlushDue) -> None:
        assert self.storage is not None
        self.storage.flush()

    def refuse(self, append: Append, verdict: AppendVerdict | Stored, asker: Ref) -> None:
        """Answer a batch that is a duplicate, out of order, or of a fenced producer."""
        batch = append.batch
        if isinstance(verdict, Stored):
            known = verdict.base_offset != NOWHERE
            self.record_here(
                kinds.DEDUPLICATED,
                producer=batch.producer, count=batch.count, bytes=batch.bytes, epoch=self.epoch,
                base_offset=verdict.base_offset if known else NULL_INT,
                append_time_us=verdict.append_time_us if known else NULL_INT,
            )  # fmt: skip
            answer = Appended(append.request, verdict.base_offset, verdict.append_time_us)
            if self.replication is None or append.acks != ALL:
                self.send(asker, answer)
            else:
                end = verdict.base_offset + batch.count
                self.replication.answer_when_committed(end, asker, append.request, answer)
        elif verdict is FENCED:
            self.record_here(
                kinds.FENCED, producer=batch.producer, count=batch.count, epoch=append.epoch
            )
            self.send(asker, ProducerFenced(append.request))
        else:
            self.send(asker, OutOfOrder(append.request))

    def request_offsets(self) -> None:
        """Ask for the offsets that are needed beyond those that are reserved."""
        reserve = Reserve(self.partition, self.epoch, self.reserve_requested)
        self.send(self.finder.to_ask(), reserve)

    def await_offsets(self) -> None:
        """Ask again after a while: the request or the answer may be lost."""
        if not self.awaits_offsets:
            self.awaits_offsets = True
            self.after(RETRY_RESERVE_US, RetryReserve(), background=True)

    @receives(RetryReserve)
    def on_retry_reserve(self, retry: RetryReserve) -> None:
        self.awaits_offsets = False
        if self.reserved < self.reserve_requested and not self.resigned:
            self.request_offsets()
            self.await_offsets()

    @receives(NotController)
    def on_not_controller(self, refused: NotController) -> None:
        if not self.finder.refused(self.sender, refused.active):
            return
        if self.reserved < self.reserve_requested and not self.resigned:
            self.request_offsets()
        if self.replication is not None:
            self.replication.check()

    @receives(Reserved)
    def on_reserved(self, reserved: Reserved) -> None:
        self.reserved = max(self.reserved, reserved.up_to)
        self.finder.answered()

    # Consuming: groups that commit offsets

    @receives(Fetch)
    def on_fetch(self, fetch: Fetch) -> None:
        if self.resigned:
            self.reply(NotLeader(fetch.request))
            return
        now_us = self.effects.now
        if fetch.group is not None:
            lease = self.log_cleaner.leases.get(fetch.group)
            if lease is not None:
                lease.heard_us = now_us
        self.delayed_fetches.answer_or_delay(fetch, self.effects.sender, now_us)

    @receives(WaitOver)
    def on_wait_over(self, over: WaitOver) -> None:
        self.delayed_fetches.expire()

    @receives(Claim)
    def on_claim(self, claim: Claim) -> None:
        if not self.knows_committed:
            self.reply(NotLeader(claim.request))
            return
        cursor = self.cursors.setdefault(claim.group, Cursor())
        self.log_cleaner.leases[claim.group] = GroupLease(self.now, claim.ttl_us)
        self.note(("lease", claim.group, self.now, claim.ttl_us))
        if self.log_cleaner.reservations.pop(claim.group, None) is not None:
            self.note(("unreserve", claim.group))
        if not cursor.claim(claim.member, claim.generation):
            self.reply(Fenced(claim.request, cursor.generation))
            return
        self.note(("claim", claim.group, claim.member, claim.generation))
        self.record_here(
            kinds.CLAIMED, group=claim.group, member=claim.member, consumer=self.sender.name,
            epoch=claim.generation,
        )  # fmt: skip
        log, unconsumed = self.log, self.first_offset("unconsumed")
        self.reply(Claimed(claim.request, log.start_offset, log.high_watermark, unconsumed))
        # The fetches of the owner before are fenced now.
        self.delayed_fetches.try_complete()

    @receives(GroupCommitted)
    def on_group_committed(self, committed: GroupCommitted) -> None:
        if self.resigned:
            return  # the coordinator tells the next leader as well
        group, epoch, member, consumer, generation, offset, begun = committed
        cursor = self.cursors.setdefault(group, Cursor())
        if epoch < cursor.coordinator_epoch:
            return
        cursor.coordinator_epoch = epoch
        lease = self.log_cleaner.leases.get(group)
        if lease is not None:
            lease.heard_us = self.effects.now
        offset = min(offset, self.log.end_offset)  # the log may be lost since
        before = cursor.commit(offset)
        self.note(("commit", group, offset, epoch))
        if begun is not None:
            before = max(before, begun)
        if not member:
            return
        if offset < before and begun is None:
            self.record_here(
                kinds.OFFSET_REWOUND, group=group, member=member, consumer=consumer,
                base_offset=offset, epoch=generation,
            )  # fmt: skip
            return
        recorder = self.commit_recorders.get((group, member))
        if recorder is None:
            recorder = self.commit_recorders[group, member] = self.effects.recorder(
                kinds.ACKNOWLEDGED, self.partition, group=group, member=member,
                consumer=consumer, mode=kinds.COMMIT,
            )  # fmt: skip
        if self.loader is None:
            recorder.batches(self.log.pieces(before, offset), generation)
        else:
            self.loader.when_divisible(
                (before, offset),
                partial(self.record_commit, recorder, before, offset, generation),
            )

    def record_commit(self, recorder: Recorder, before: int, offset: int, generation: int) -> None:
        """Record that a group is done with the records between two offsets."""
        recorder.batches(self.log.pieces(before, offset), generation)

    def first_offset(self, start: str) -> int:
        """Find the offset at which a new group begins."""
        log = self.log
        if start in ("latest", "none"):
            return log.high_watermark
        if start == "earliest":
            return log.start_offset
        committed = [c.committed for c in self.cursors.values() if c.committed is not None]
        return max([log.start_offset, *committed])

    # Consuming: groups that acknowledge record by record

    @receives(Attach)
    def on_attach(self, attach: Attach) -> None:
        if not self.knows_committed:
            self.reply(NotLeader(attach.request))
            return
        terms, member = attach.terms, self.sender
        share = self.share_partitions.get(attach.subscription)
        if share is None:
            cursor = Cursor(terms.max_deliveries, keyed=terms.delivery == "key_shared")
            reserved = self.log_cleaner.reservations.pop(terms.group, None)
            if reserved is not None:
                self.note(("unreserve", terms.group))
            first = self.first_offset(terms.start) if reserved is None else reserved.offset
            cursor.begin(max(first, self.log.start_offset))
            share = self.add_share_partition(attach.subscription, terms, cursor)
            self.note(cursor_entry(share.name, cursor.snapshot()))
        if share.terms != terms or not share.members:
            self.note(terms_entry(share.name, terms))
        answer = share.attach(attach, member)
        if isinstance(answer, Attached) and member not in self.watched:
            self.watched[member] = None
            self.watch(member)
        share.send(self.sender, answer)

    def add_share_partition(
        self, name: str, terms: SubscriptionConfig, cursor: Cursor
    ) -> SharePartition:
        """Begin to deliver to a group."""
        share = self.share_partitions[name] = SharePartition(
            self.effects, self.partition, name, terms, self.log, cursor,
            self.dead_letter_producer, self.changes, self.loader,
        )  # fmt: skip
        self.cursors[name] = cursor
        if not self.liveness_checks:
            self.every(LIVENESS_CHECK_US, LivenessCheck(), exactly=False)
            self.liveness_checks = 1
        return share

    @receives(Detach)
    def on_detach(self, detach: Detach) -> None:
        share = self.share_partitions.get(detach.subscription)
        if share is not None and not self.resigned:
            share.detach(detach)

    @receives(ShareHeartbeat)
    def on_still_here(self, here: ShareHeartbeat) -> None:
        if self.resigned:
            self.reply(NotLeader(NO_REQUEST))
            return
        share = self.share_partitions.get(here.subscription)
        if (share is None or not share.heartbeat(here)) and here.active:
            self.reply(NotAttached(here.subscription))

    @receives(Acquire)
    def on_acquire(self, acquire: Acquire) -> None:
        share = self.share_partitions.get(acquire.subscription)
        if self.resigned or share is None or not share.acquire(acquire):
            self.refuse_member(acquire)

    @receives(AcknowledgeRecords)
    def on_settle(self, settle: AcknowledgeRecords) -> None:
        share = self.share_partitions.get(settle.subscription)
        if self.resigned or share is None or not share.settle(settle):
            self.refuse_member(settle)

    def refuse_member(self, message: Acquire | AcknowledgeRecords) -> None:
        """Answer a member that is not attached."""
        if self.resigned:
            self.reply(NotLeader(message.request))
        else:
            self.reply(NotAttached(message.subscription))

    @receives(Due)
    def on_due(self, due: Due) -> None:
        share = self.share_partitions.get(due.subscription)
        if share is not None and not self.resigned:
            share.expire()

    @receives(LivenessCheck)
    def on_patrol(self, patrol: LivenessCheck) -> None:
        if self.resigned:
            return
        self.liveness_checks += 1
        # Partitions take turns: if all relieved the same member at once, it would be idle.
        turns = max(BALANCE_EVERY, self.topic.partitions)
        balances = (self.liveness_checks - self.partition.partition) % turns == 0
        for share in list(self.share_partitions.values()):
            share.check_liveness()
            if share.is_expired():
                del self.share_partitions[share.name], self.cursors[share.name]
                self.note(("forget", share.name))
                share.record_expired()
                continue
            if balances:
                share.balance_slots(turns * LIVENESS_CHECK_US / 1e6)
            share.dispatch(notify=True)

    @receives(Ended)
    def on_ended(self, ended: Ended) -> None:
        self.watched.pop(ended.ref, None)
        for share in self.share_partitions.values():
            share.member_ended(ended.ref, ended.reason)

    @receives(InspectKeys)
    def on_inspect_keys(self, inspect: InspectKeys) -> None:
        share = self.share_partitions.get(inspect.subscription)
        self.reply(share.keys_view() if share is not None else KeysView())

    def dead_letter_producer(self) -> Ref:
        """Return the actor that writes dead letters, and start it first if necessary."""
        if self.dead_letter_ref is None:
            name = f"{self.partition}@{self.ref.name}/dead-letters"
            self.dead_letter_ref = self.spawn(
                DeadLetterProducer, name, self.controllers, on_failure="restart"
            )
        return self.dead_letter_ref

    @receives(DeadLettersWritten)
    def on_buried(self, buried: DeadLettersWritten) -> None:
        share = self.share_partitions.get(buried.subscription)
        if share is not None and not self.resigned:
            share.dead_lettered(buried.span, buried.reason)

    # Both kinds of groups

    @receives(ReserveRecords)
    def on_reserve_records(self, order: ReserveRecords) -> None:
        if not self.resigned:
            self.reserve(order.reservations)
            groups = tuple(reservation.group for reservation in order.reservations)
            self.reply(RecordsReserved(self.partition, groups))

    def reserve(self, reservations: tuple[Reservation, ...]) -> None:
        """Keep records for groups, unless they are known here."""
        cleaner = self.log_cleaner
        known = {share.terms.group for share in self.share_partitions.values()}
        for each in reservations:
            group = each.group
            if (
                group not in cleaner.reservations
                and group not in self.cursors
                and group not in known
            ):
                cleaner.reserve(group, self.first_offset(each.start), each.ttl_us)

    @receives(FindOffset)
    def on_find_offset(self, find: FindOffset) -> None:
        if not self.knows_committed:
            self.reply(NotLeader(find.request))
        else:
            end = self.log.high_watermark
            offset = min(self.log.offset_at_append_time(find.since_us), end)
            self.reply(FoundOffset(find.request, offset, end))

    @receives(Inspect)
    def on_inspect(self, inspect: Inspect) -> None:
        log, cursors = self.log, self.cursors
        self.reply(
            PartitionView(
                self.partition,
                self.broker,
                self.epoch,
                log.start_offset,
                log.high_watermark,
                {n: c.committed for n, c in cursors.items() if c.committed is not None},
                {n: c.owner for n, c in cursors.items() if c.owner is not None},
                log.count_between(log.start_offset, log.high_watermark),
                {n: self.lag(c) for n, c in cursors.items()},
                self.lost_before,
            )
        )

    def lag(self, cursor: Cursor) -> int:
        """Count the records that a group has not consumed."""
        log = self.log
        if cursor.committed is None:
            return log.count_between(log.start_offset, log.high_watermark)
        return cursor.undone() + log.count_between(cursor.next, log.high_watermark)

    @receives(CleanUp)
    def on_clean_up(self, clean_up: CleanUp) -> None:
        if not self.resigned:
            self.log_cleaner.clean_up()

    # The end of an epoch

    def snapshot(self) -> PartitionState:
        """Return the log and everything else."""
        leases = self.log_cleaner.leases
        return PartitionState(
            self.log.snapshot(),
            tuple((name, cursor.snapshot()) for name, cursor in self.cursors.items()),
            tuple(share.snapshot() for share in self.share_partitions.values()),
            tuple((group, lease.heard_us, lease.ttl_us) for group, lease in leases.items()),
            self.producers.snapshot(),
            tuple(
                (group, each.offset, each.since_us, each.ttl_us)
                for group, each in self.log_cleaner.reservations.items()
            ),
            self.lost_before,
        )

    @receives(Drop)
    def on_drop(self, drop: Drop) -> None:
        if drop.lost:
            self.killed()
            self.stop()
        elif drop.deleted and not self.resigned:
            self.audit.clear()
            self.log_cleaner.drop_all_payloads(self.remove)
        else:
            self.remove()
        self.follower.stop()
        self.resigned = True

    def remove(self) -> None:
        """Remove the files, and end."""
        if self.storage is not None:
            self.storage.remove()
        self.is_ready = False  # nothing is to be written any more
        self.stop()

    def killed(self) -> None:
        """Record the loss of a log that is in memory and has no replica."""
        log = self.log
        # With an empty log the positions of groups are lost: they begin again, after a gap.
        if self.on_disk or self.replication is not None:
            return
        if not self.resigned and (log.end_offset > log.start_offset or self.cursors):
            self.record_here(
                kinds.LOST,
                base_offset=log.start_offset,
                count=log.count_between(log.start_offset, log.end_offset),
                epoch=self.epoch,
                reason="unreplicated, in memory",
            )


def _epochs(state: ReplicaState) -> tuple[int, int]:
    """By which states are ordered."""
    return state.leader_epoch, state.partition_epoch
