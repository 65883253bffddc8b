"""A partition: its log, and one cursor for each group. It lives on the broker that leads it.

The actor answers requests; the work is done by the log and the cursors (model/log/) and by the
parts it holds: the fetches that wait, one share partition for each group that acknowledges record
by record, and the log cleaner.
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
    NotLeader,
    OutOfOrder,
    PartitionView,
    ProducerFenced,
    TooFarAhead,
    make_tuple,
)
from ...model.messages.cluster import (
    Drop,
    HandOver,
    Lead,
    Leading,
    RecordsReserved,
    Reservation,
    Reserve,
    Reserved,
    ReserveRecords,
    StorageFailed,
)
from ...model.messages.partition_state import PartitionState
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
from ...model.partition_journal import cursor_entry, entries_of, terms_entry
from ..engine.actor import Actor, Ended, receives
from ..engine.disk import DiskFailed, FolderRead, FramesRead
from .dead_letters import DeadLetterProducer, DeadLettersWritten
from .delayed_fetches import DelayedFetches, WaitOver
from .file_codec import FileCodec
from .group_writer import GroupWritten
from .journal import RETRY_US, RetryJournal, SnapshotDurable
from .log_cleaner import CleanUp, GroupLease, LogCleaner
from .partition_storage import (
    CompactionStored,
    FlushDue,
    Flushed,
    KeptFrames,
    PartitionStorage,
    SegmentCleaned,
    StartStored,
    TakenOver,
)
from .record_loader import RecordLoader
from .share_partition import Due, SharePartition

if TYPE_CHECKING:
    from ...model.log.batch import Batch
    from ...model.log.offset_ranges import OffsetRange
    from ...model.settings import ClusterSettings
    from ..engine.effects import Recorder
    from ..engine.ref import Ref
    from .journal import Entry
    from .partition_storage import FrameCodec

RESERVE: Final = 100_000
"""Number of offsets that a leader reserves at a time.

All the controller knows about a partition's log is what its leader has reserved. The successor of a
crashed leader begins there: no offset is ever given to two records, at the price of a gap.
"""

LIVENESS_CHECK_US: Final = 1_000_000
"""Interval between two checks of the members of share groups."""

BALANCE_EVERY: Final = 5
"""The slots of key-shared groups are balanced at most once in this many liveness checks."""

NO_REQUEST: Final = 0
"""The request number of an answer to a heartbeat, which has none."""


@attrs.frozen
class RetryTakeOver:
    """Time to try again to write the log that another broker has handed over."""


@attrs.frozen
class LivenessCheck:
    """The interval between two liveness checks has passed."""


def _nothing() -> None:
    """Nothing is left to be done."""


class Partition(Actor):
    """Leads one partition in one epoch."""

    delayed_fetches: DelayedFetches
    log_cleaner: LogCleaner
    loader: RecordLoader | None = None
    """Reads records from the disk that are not in memory."""

    def __init__(self, lead: Lead, broker: Ref, settings: ClusterSettings) -> None:
        self.partition = lead.partition
        self.topic = lead.topic
        self.epoch = lead.epoch
        self.broker_ref = broker
        self.broker = broker.name
        self.settings = settings
        self.controller = lead.controller
        self.has_begun = False
        """Whether it has the state of the last leader."""
        self.inherited = lead.state
        """The state of the last leader; `None` if there is none, or it is on the disk."""
        self.first_reservations = lead.reservations
        self.cursors: dict[str, Cursor] = {}
        """The positions of all groups, of both kinds."""
        self.lost_before = lead.start_offset
        self.log = MemoryLog(start_offset=lead.start_offset)
        self.producers = ProducerStateManager()
        self.share_partitions: dict[str, SharePartition] = {}
        """The groups that acknowledge, by the name of their cursor."""
        self.on_disk = settings.storage == "disk"
        self.storage: PartitionStorage | None = None
        """The files of the partition, if it is on a disk."""
        self.waiting_appends: deque[tuple[Append, Ref]] = deque()
        """Batches that wait for the disk to be free."""
        self.writing: list[tuple[Batch, Append, Ref]] = []
        """Batches on their way to the disk."""
        self.reserved = 2**62 if self.on_disk else lead.reserved
        """Offsets below this may be given to records."""
        self.reserve_requested = self.reserved
        self.append_recorders: dict[str, Recorder] = {}
        """Record appended batches, by producer."""
        self.commit_recorders: dict[tuple[str, str], Recorder] = {}
        """Record commits, by group and member."""
        self.watched: dict[Ref, None] = {}
        """The actors of members of share groups whose end is reported here."""
        self.liveness_checks = 0
        self.dead_letter_ref: Ref | None = None
        self.resigned = self.on_disk
        """Whether it does not lead: its log is not read yet, another leader has taken over, or the
        partition ends."""

    def started(self) -> None:
        if not self.on_disk:
            self.begin(self.inherited)
            return
        codec: FrameCodec = KeptFrames()
        if not self.effects.time_is_virtual:
            codec = FileCodec(self.topic.make_serializer(), self.effects.origin_us)
        self.storage = PartitionStorage(
            self.effects, self.partition, self.topic, self.settings, codec,
            lambda: entries_of(self.snapshot()), alone=True,
        )  # fmt: skip
        self.storage.open()

    @receives(FolderRead)
    def on_folder_read(self, read: FolderRead) -> None:
        assert self.storage is not None
        found = self.storage.on_read(read)
        if found is not None and self.inherited is not None:
            self.storage.take_over(self.inherited)
        elif found is not None:
            self.begin(found)
            self.load_windows()

    def load_windows(self) -> None:
        """Read the records that share groups have in flight; then the partition can be led."""
        assert self.storage is not None
        begin = partial(self.storage.begin, self.log)
        if self.loader is None or not self.windows():
            begin()
            return
        *others, last = self.windows()
        for window in others:
            self.loader.when_loaded(*window, _nothing)
        self.loader.when_loaded(*last, begin)

    def windows(self) -> list[OffsetRange]:
        """The ranges of offsets that share groups are at, whose records stay in memory."""
        return [share.window for share in self.share_partitions.values()]

    @receives(FramesRead)
    def on_frames_read(self, read: FramesRead) -> None:
        if self.loader is not None:
            self.loader.on_read(read)

    @receives(TakenOver)
    def on_taken_over(self, taken: TakenOver) -> None:
        assert self.storage is not None
        assert self.inherited is not None
        if self.storage.on_taken_over(taken, self.inherited):
            self.begin(self.inherited)
            self.storage.begin(self.log)
            if self.loader is not None:
                self.loader.evict()

    def stopped(self) -> None:
        if self.storage is not None and self.has_begun and not self.resigned:
            self.storage.close(self.log.end_offset)

    @receives(RetryTakeOver)
    def on_retry_take_over(self, retry: RetryTakeOver) -> None:
        assert self.storage is not None
        assert self.inherited is not None
        self.storage.take_over(self.inherited)

    @receives(StartStored)
    def on_start_stored(self, stored: StartStored) -> None:
        assert self.storage is not None
        if not self.resigned:
            self.storage.on_start_stored(stored)
            if stored.synced:
                self.log_cleaner.payload_drops.start_stored(stored.offset)

    @receives(SegmentCleaned)
    def on_cleaned(self, cleaned: SegmentCleaned) -> None:
        assert self.storage is not None
        if not self.resigned:
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
            leading = Leading(self.partition, self.epoch, self.ref)
            self.send(self.broker_ref, leading)
            interval_ms = self.settings.log_flush_interval_ms
            if interval_ms is not None:
                self.every(interval_ms * 1_000, FlushDue(), exactly=False)

    def begin(self, state: PartitionState | None) -> None:
        """Make the parts, with the state of an earlier leader if there is one."""
        effects = self.effects
        self.resigned, self.has_begun = False, True
        if state is not None:
            self.lost_before = state.lost_before
            self.log = MemoryLog.from_snapshot(state.log)
            self.producers = ProducerStateManager(state.producers)
            self.cursors = {name: Cursor.from_snapshot(cursor) for name, cursor in state.cursors}
        storage = self.storage
        if storage is not None and storage.cache_bytes is not None:
            self.loader = RecordLoader(
                effects, storage, self.log, storage.cache_bytes, self.windows
            )
        self.delayed_fetches = DelayedFetches(effects, self.log, self.cursors, self.loader)
        self.log_cleaner = LogCleaner(
            effects, self.partition, self.topic, self.epoch, self.log, self.cursors,
            self.share_partitions,
            *((state.leases, state.reservations) if state is not None else ()),
            storage=storage, loader=self.loader,
        )  # fmt: skip
        self.log.begin_epoch(self.epoch)
        self.reserve(self.first_reservations)
        effects.every(
            self.settings.log_retention_check_interval_ms * 1_000, CleanUp(), exactly=False
        )
        for former in state.share_partitions if state is not None else ():
            cursor = self.cursors[former.name]
            self.add_share_partition(former.name, former.terms, cursor).restore(former)

    def note(self, entry: Entry) -> None:
        """Write a change of the state to the journal, if there is one."""
        if self.storage is not None:
            self.storage.journal.add(entry)

    def record_here(self, kind: str, **fields: str | int | None) -> None:
        """Record an event of this partition."""
        topic, number = self.partition
        self.record(kind, topic=topic, partition=number, **fields)

    # Producing

    @receives(Append)
    def on_append(self, append: Append) -> None:
        asker, storage = self.effects.sender, self.storage
        if (
            storage is not None
            and (storage.writer.busy or storage.names_producers)
            and storage.must_wait(append.batch)
        ):
            self.waiting_appends.append((append, asker))
            return
        batch = self.accept(append, asker, self.producers, self.log.end_offset)
        if batch is None:
            return
        if storage is None or storage.write_at_once(batch) or storage.write([batch]):
            self.store(batch, append, asker)
            self.serve()
        else:
            self.writing.append((batch, append, asker))

    def accept(
        self, append: Append, asker: Ref, producers: ProducerStateManager, offset: int
    ) -> Batch | None:
        """Return a batch with its offsets; or answer why it is not appended."""
        request, batch, _, producer_epoch, floor = append
        effects = self.effects
        if self.resigned:
            effects.send(asker, NotLeader(request))
            return None
        if batch.count < 1:
            raise BadValueError(f"{batch!r}: expected at least one record to append")
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
            reserve = Reserve(self.partition, self.epoch, self.reserve_requested)
            effects.send(self.controller, reserve)
        if end_offset > self.reserved:
            effects.send(asker, TooFarAhead(request))
            return None
        return batch.stamped(offset, effects.true_now, self.epoch, producer_epoch)

    def store(self, batch: Batch, append: Append, asker: Ref) -> None:
        """Make a batch visible, and answer its producer."""
        request, _, acks, _, floor = append
        effects = self.effects
        self.log.add(batch)
        self.log.high_watermark = self.log.end_offset  # there are no other replicas
        if batch.producer_epoch != NOT_IDEMPOTENT:
            self.producers.appended(floor, batch)
        recorder = self.append_recorders.get(batch.producer)
        if recorder is None:
            recorder = self.append_recorders[batch.producer] = effects.recorder(
                kinds.APPENDED, self.partition, producer=batch.producer
            )
        recorder.batch(batch, self.epoch)
        if self.loader is not None:
            self.loader.added(batch)
        if acks:
            stored = (request, batch.base_offset, batch.append_time_us)
            effects.send(asker, make_tuple(Appended, stored))

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
            if self.resigned:
                self.send(asker, NotLeader(append.request))
            else:
                self.store(batch, append, asker)
        if not self.resigned:
            self.serve()

    @receives(GroupWritten)
    def on_group_written(self, written: GroupWritten) -> None:
        storage = self.storage
        assert storage is not None
        if storage.is_written(written):
            self.store_written()
        else:
            storage.journal.on_written(written)
        self.write_waiting()

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
            self.write_waiting()
        elif storage.has_failed_to_take_over(failed):
            self.after(RETRY_US, RetryTakeOver())
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
        if not self.resigned:
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
            self.send(asker, Appended(append.request, verdict.base_offset, verdict.append_time_us))
        elif verdict is FENCED:
            self.record_here(
                kinds.FENCED, producer=batch.producer, count=batch.count, epoch=append.epoch
            )
            self.send(asker, ProducerFenced(append.request))
        else:
            self.send(asker, OutOfOrder(append.request))

    @receives(Reserved)
    def on_reserved(self, reserved: Reserved) -> None:
        self.reserved = max(self.reserved, reserved.up_to)

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
        if self.resigned:
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
        offset = min(offset, self.log.high_watermark)
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
        if self.resigned:
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
            self.dead_letter_producer, None if self.storage is None else self.storage.journal,
            self.loader,
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
                DeadLetterProducer, name, self.controller, on_failure="restart"
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
        if self.resigned:
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

    @receives(HandOver)
    def on_hand_over(self, order: HandOver) -> None:
        """Hand everything over to the next leader, and send clients there.

        The order may come again, as it or the message to the next leader may have been lost: then
        the state is sent again.
        """
        if not self.has_begun:
            return
        self.resigned = True
        self.delayed_fetches.resign()
        for share in self.share_partitions.values():
            share.resign()
        if self.loader is None:
            self.hand_over(order)
        else:
            log = self.log
            self.loader.when_loaded(
                log.start_offset, log.end_offset, partial(self.hand_over, order)
            )

    def hand_over(self, order: HandOver) -> None:
        """Send the next leader everything it needs. Records damaged on the disk are lost."""
        state = self.snapshot()
        for batch in state.log.batches:
            if not batch.is_loaded:
                self.record_here(
                    kinds.LOST, base_offset=batch.base_offset, count=batch.count,
                    bytes=batch.bytes, epoch=batch.epoch, append_time_us=batch.append_time_us,
                    reason="damaged on the disk",
                )  # fmt: skip
        whole = tuple(batch for batch in state.log.batches if batch.is_loaded)
        if len(whole) < len(state.log.batches):
            state = attrs.evolve(state, log=attrs.evolve(state.log, batches=whole))
        self.send(
            order.to,
            Lead(
                self.partition,
                self.topic,
                order.epoch,
                self.log.end_offset,
                self.reserved,
                self.controller,
                state,
            ),
        )

    def snapshot(self) -> PartitionState:
        """Return what the next leader needs."""
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
            self.resigned = True
            self.stop()
        elif drop.deleted and self.has_begun:
            self.resigned = True
            self.log_cleaner.drop_all_payloads(self.remove)
        else:
            self.remove()

    def remove(self) -> None:
        """Remove the files, and end."""
        if self.storage is not None:
            self.storage.remove()
        self.resigned = True
        self.stop()

    def killed(self) -> None:
        """Record the loss of a log that is in memory and has no replica."""
        log = self.log
        # With an empty log the positions of groups are lost: they begin again, after a gap.
        if self.on_disk:
            return
        if not self.resigned and (log.end_offset > log.start_offset or self.cursors):
            self.record_here(
                kinds.LOST,
                base_offset=log.start_offset,
                count=log.count_between(log.start_offset, log.end_offset),
                epoch=self.epoch,
                reason="unreplicated, in memory",
            )
