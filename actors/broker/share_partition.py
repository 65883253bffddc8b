"""One share group in one partition, after the class of this name in Kafka (KIP-932).

Members attach, give credit and settle each record they acquire: acknowledged, to be delivered
again, or released. The state of each record is in the group's cursor (model/log/cursor.py), and the
rules by which records are divided among members are in strategies/dispatch.py. This class connects
them: it answers members, sets the timer of the next deadline, and sends records that have been
delivered too often to the dead-letter topic.

A member that is silent, or lets acknowledgements time out, is inactive: it gets no more records and
loses those it has acquired, until it attaches again. After its time to live it is removed, and so
is a group without members.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.events import kinds
from ...model.log.offset_ranges import OffsetRange, subtract
from ...model.messages.client import Fenced, NotLeader
from ...model.messages.partition_state import SharePartitionState
from ...model.messages.share import (
    AcknowledgeRecords,
    Acquire,
    Acquired,
    Attach,
    Attached,
    Available,
    Detach,
    KeysView,
    Nack,
    RecordsAcknowledged,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    SubscriptionConfig,
)
from ...strategies.dispatch import Portions, by_key, in_order, in_turn
from ...strategies.retry import backoff_us
from .dead_letters import WriteDeadLetters
from .key_slots import KeySlots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...model.log.batch import Batch
    from ...model.log.cursor import Cursor
    from ...model.log.log import MemoryLog
    from ...model.topics import TopicPartition
    from ..engine.effects import Effects, Recorder
    from ..engine.ref import Ref
    from ..engine.timers import Timer
    from .journal import Journal
    from .record_loader import RecordLoader

ALL_BYTES: Final = 2**62
"""The `max_bytes` of a read without a limit."""

LOOK_AHEAD: Final = 10_000
"""Limit of records that a key-shared group takes into its window and leaves there because the
owners of their keys have no credit. A member that takes nothing blocks the others only then."""

HOT_KEYS: Final = 5
"""Limit of hot keys that are recorded each time slots are balanced."""

HOT_SHARE: Final = 0.02
"""A key is hot if it has at least this share of all records with a key."""


@attrs.frozen
class Due:
    """A deadline in a group's cursor has been reached."""

    subscription: str
    """Name of the cursor."""


@attrs.define(eq=False)
class ShareMember:
    """A member of the group, as this partition knows it."""

    ref: Ref
    heard_us: int
    """Time of its last message."""
    load: float = 0.0
    """Records per second that it gets from all partitions."""
    active: bool = True
    """Whether it gets records."""
    request: int = 0
    """Its newest request for records. An older one is a duplicate or late."""
    credit: int = 0
    """Number of records it would accept."""
    waits: bool = False
    """Whether that request waits for records; else it is answered at once."""
    even: bool = False
    """Whether it wants no more than an even part of the records that are available."""
    wants_notice: bool = False
    """Whether to send it `Available` when there are records."""
    last_settled: RecordsAcknowledged | None = None
    """The answer to its newest settlement, to be sent again if it was lost."""


class SharePartition:
    """Delivers one partition's records to one group, or in a broadcast to one member of it."""

    def __init__(
        self,
        effects: Effects,
        partition: TopicPartition,
        name: str,
        terms: SubscriptionConfig,
        log: MemoryLog,
        cursor: Cursor,
        dead_letter_producer: Callable[[], Ref],
        journal: Journal | None = None,
        loader: RecordLoader | None = None,
    ) -> None:
        """Begin without members. `dead_letter_producer` is called when there are dead letters.

        With a journal, changes are written to it, and answers wait until they are on the disk. The
        loader reads records that are not in memory.
        """
        self.name = name
        self.terms = terms
        self.cursor = cursor
        self.keyed = cursor.keyed
        """Whether each key has one owner: the group is key-shared."""
        self.members: dict[str, ShareMember] = {}
        self.slots = KeySlots()
        """Owners of keys, if the group is key-shared."""
        self.last_acquired: dict[str, tuple[int, tuple[OffsetRange, ...]]] = {}
        """Per member: the request answered last with records, and their offsets."""
        self.timer: Timer | None = None
        """Set for the earliest deadline in the cursor."""
        self._timer_us = 0
        self._heard_us = effects.now
        """Time of the last message of any member."""
        self._share = 0.0
        """An even part of the records that were available at the last dispatch."""
        self._last_served: str | None = None
        """The member that got records last."""
        self._effects = effects
        self._partition = partition
        self._log = log
        self._dead_letter_producer = dead_letter_producer
        self._journal = journal
        self._loader = loader
        self._loading = False
        """Whether records are being read from the disk."""
        self._record = partial(
            effects.record, topic=partition.topic, partition=partition.partition, group=terms.group
        )
        self._recorders: dict[tuple[str, str | None, str | None], Recorder] = {}
        """Record events about batches, by kind, member and reason."""
        self._consumers: dict[str, str] = {}
        """The consumer behind each member that has ever attached."""

    @property
    def subscriber(self) -> str | None:
        """With broadcast delivery the member whose cursor this is; else `None`."""
        return self.name.partition("/")[2] if self.terms.delivery == "broadcast" else None

    def send(self, to: Ref, message: object) -> None:
        """Send a message once the changes that it tells of are on the disk."""
        if self._journal is None:
            self._effects.send(to, message)
        else:
            self._journal.send(to, message)

    def _change(self, method: str, *arguments: Any) -> Any:
        """Change the cursor by one of its methods, and write that down."""
        if self._journal is not None:
            self._journal.add(("change", self.name, method, arguments))
        return getattr(self.cursor, method)(*arguments)

    def _set_acquired(self, name: str, request: int, spans: tuple[OffsetRange, ...]) -> None:
        """Remember the last answer with records to a member; forget it without ranges."""
        if spans:
            self.last_acquired[name] = request, spans
        elif self.last_acquired.pop(name, None) is None:
            return
        if self._journal is not None:
            self._journal.add(("acquired", self.name, name, request, spans))

    # A change of the leader

    def snapshot(self) -> SharePartitionState:
        """Return what the next leader needs beside the cursor."""
        acquired = [(member, *last) for member, last in self.last_acquired.items()]
        return SharePartitionState(self.name, self.terms, tuple(acquired))

    def restore(self, state: SharePartitionState) -> None:
        """Continue where the last leader stopped; its members will attach here."""
        for member, request, spans in state.last_acquired:
            self.last_acquired[member] = request, spans
        self.cursor.relist_exhausted()
        self._archive_exhausted("delivered too often")
        self._set_timer()

    def resign(self) -> None:
        """Tell the members that the partition has another leader."""
        for member in self.members.values():
            self._effects.send(member.ref, NotLeader(member.request))
        self.members.clear()

    # Members

    def attach(self, attach: Attach, ref: Ref) -> Attached | Fenced:
        """Make a member active, and return the answer to it."""
        self.terms = attach.terms
        if attach.terms.delivery == "exclusive" and not self._take_ownership(attach):
            return Fenced(attach.request, self.cursor.generation)
        name = attach.member
        if self._consumers.get(name) != ref.name:
            self._consumers[name] = ref.name
            self._recorders.clear()  # one may have been made while the consumer was unknown
        member = self.members.get(name)
        if member is None or member.ref is not ref or not member.active:
            if member is not None:
                self._take_back(name, "came back")
            member = self.members[name] = ShareMember(ref, self._effects.now)
            self._assign_slots()
            self._record_member(kinds.CLAIMED, name, epoch=attach.generation)
        self._heard(member)
        assert self.cursor.committed is not None
        return Attached(attach.request, self.cursor.committed)

    def _take_ownership(self, attach: Attach) -> bool:
        """Make a member the only one, unless another owns the partition in a newer generation."""
        if not self._change("claim", attach.member, attach.generation):
            return False
        for other in [name for name in self.members if name != attach.member]:
            self._remove(other, "the partition has another owner")
        return True

    def detach(self, detach: Detach) -> None:
        """Remove a member that leaves; records it has not looked at count as not delivered."""
        name = detach.member
        if name in self.members:
            self._release_lost(name, detach.received)
            for span in detach.unseen:
                self._change("release", name, *span)
            self._remove(name, "detached")
            self.dispatch()

    def heartbeat(self, here: ShareHeartbeat) -> bool:
        """Answer a heartbeat; return False if the member is not active here."""
        member = self._active_member(here.member)
        if member is None:
            return False
        self._heard(member)
        member.load = here.load
        in_flight = self.cursor.in_flight.get(here.member, 0)
        self.send(self._effects.sender, ShareHeartbeatAnswer(self.name, in_flight))
        return True

    def member_ended(self, ref: Ref, reason: str) -> None:
        """Remove the members whose actor has ended."""
        for name in [name for name, member in self.members.items() if member.ref is ref]:
            self._remove(name, reason)
        self.dispatch(notify=True)

    def check_liveness(self) -> None:
        """Deactivate members that are silent, and remove those whose time to live is over."""
        now_us = self._effects.now
        for name, member in list(self.members.items()):
            silent_us = now_us - member.heard_us
            if silent_us > self.terms.ttl_us:
                self._remove(name, "time to live expired")
            elif silent_us > self.terms.session_timeout_us and member.active:
                self._deactivate(name, "silent")

    def is_expired(self) -> bool:
        """Whether the group has had no member for its time to live."""
        return not self.members and self._effects.now - self._heard_us > self.terms.ttl_us

    def record_expired(self) -> None:
        """Record that the partition forgets the group."""
        self._record(
            kinds.SUBSCRIPTION_REMOVED, consumer=self.subscriber, reason="time to live expired"
        )

    def _active_member(self, name: str) -> ShareMember | None:
        member = self.members.get(name)
        return member if member is not None and member.active else None

    def _heard(self, member: ShareMember) -> None:
        member.heard_us = self._heard_us = self._effects.now

    def _deactivate(self, name: str, reason: str) -> None:
        """Give a member no more records until it attaches again."""
        if self.members[name].active:
            self.members[name].active = False
            self._record_member(kinds.SUBSCRIBER_INACTIVE, name, reason=reason)
        self._take_back(name, reason)
        self._assign_slots()

    def _remove(self, name: str, reason: str) -> None:
        del self.members[name]
        self._record_member(kinds.SUBSCRIBER_REMOVED, name, reason=reason)
        self._take_back(name, reason)
        self._assign_slots()

    def _take_back(self, name: str, reason: str) -> None:
        """Make the records that a member has acquired available to others."""
        self._change("remove_member", name, self._effects.now)
        self._set_acquired(name, 0, ())
        self._archive_exhausted(f"consumer gone: {reason}")

    # Credit in, records out

    def acquire(self, acquire: Acquire) -> bool:
        """Take a member's credit; return False if the member is not active here."""
        name = acquire.member
        member = self._active_member(name)
        if member is None:
            return False
        if acquire.request > member.request:
            member.request = acquire.request
            member.credit, member.waits = acquire.credit, acquire.wait and acquire.credit > 0
            member.even = acquire.even
            member.wants_notice = False
            self._release_lost(name, acquire.received)
            self._heard(member)
            self.dispatch()
            if not acquire.credit or self._must_answer(member):
                self._deliver(name, ())
        return True

    def _must_answer(self, member: ShareMember) -> bool:
        """Whether a member gets nothing and does not wait, except for records on the disk."""
        return bool(member.credit) and not member.waits and not self._loading

    def _release_lost(self, name: str, received: int) -> None:
        """Release what a member acquired in an answer that has not reached it."""
        request, spans = self.last_acquired.get(name, (0, ()))
        if received < request:
            self._set_acquired(name, 0, ())
            for span in spans:
                self._change("release", name, *span)

    def dispatch(self, *, notify: bool = False) -> None:
        """Deliver what can be delivered now.

        With `notify`, members that want a notice get one if records are left.
        """
        cursor = self.cursor
        self._extend_window()
        for name, offsets in self._route():
            deadline_us = self._effects.now + self.terms.ack_timeout_us
            spans = self._change("acquire", name, offsets, deadline_us)
            request = self.members[name].request
            self._set_acquired(name, request, tuple((start, end) for start, end, _ in spans))
            self._deliver(name, spans)
        if notify and (cursor.available or self._log.high_watermark > cursor.next):
            for member in self.members.values():
                if member.wants_notice and member.active:
                    member.wants_notice = False
                    self.send(member.ref, Available(self.name))
        self._set_timer()

    def _extend_window(self) -> None:
        """Take as many new records into the cursor's window as members may need."""
        cursor, log = self.cursor, self._log
        wanted = self._records_wanted()
        if wanted and cursor.next < log.high_watermark:
            end = log.high_watermark
            if self._loader is not None:
                end = self._loaded_to(self._loader, min(end, cursor.next + wanted))
            for batch in log.read(cursor.next, max_bytes=ALL_BYTES, max_records=wanted, up_to=end):
                self._add(batch)

    def _loaded_to(self, loader: RecordLoader, wanted: int) -> int:
        """Return the end of the records in memory, from the window on; have others read.

        The group gives damaged records up.
        """
        cursor = self.cursor
        while (damaged := loader.damaged_at(cursor.next)) is not None:
            self._archive((cursor.next, damaged[1]), kinds.ARCHIVED, "damaged on the disk")
        end = min(wanted, loader.readable_to(cursor.next))
        missing = loader.missing(cursor.next, end)
        if not missing:
            return end
        if not self._loading:
            self._loading = True
            loader.load(missing, self._on_loaded)
        return max(cursor.next, missing[0].base_offset)

    def _on_loaded(self) -> None:
        """Deliver the records that were read."""
        self._loading = False
        self.dispatch(notify=True)
        for name, member in self.members.items():
            if member.active and self._must_answer(member):
                self._deliver(name, ())

    @property
    def window(self) -> OffsetRange:
        """The offsets from the first record that is not done to the last that was looked at."""
        cursor = self.cursor
        return cursor.next if cursor.committed is None else cursor.committed, cursor.next

    def _records_wanted(self) -> int:
        """How many records the window should get."""
        credit = sum(member.credit for member in self.members.values() if member.active)
        if self.keyed and credit:
            credit = LOOK_AHEAD
        return max(0, credit - self.cursor.available)

    def _add(self, batch: Batch) -> None:
        """Take a batch into the window; offsets that compaction has removed before it are done."""
        cursor = self.cursor
        if cursor.next < batch.base_offset:
            self._change("archive", cursor.next, batch.base_offset)
        slots = self.slots.add(batch) if self.keyed else None
        self._change("extend", batch.base_offset + batch.count, slots)

    def _route(self) -> Portions:
        """Say which member gets which of the available records."""
        if not self.cursor.available:
            return []
        credits = self._credits()
        if not credits:
            return []
        if self.keyed:
            return by_key(self.cursor, credits, self.slots.owners, self.slots.members)
        if self.terms.delivery != "shared":
            return in_order(self.cursor, credits)
        portions = in_turn(self.cursor, credits)
        if portions:
            self._last_served = portions[-1][0]
        return portions

    def _credits(self) -> dict[str, int]:
        """The credit of active members, beginning after the one that was served last.

        Partitions begin with different members, as all may get their first records at once.
        """
        names = list(self.members)
        if self._last_served in self.members:
            first = names.index(self._last_served) + 1
        else:
            first = self._partition.partition % max(1, len(names))
        turns = [(name, self.members[name]) for name in names[first:] + names[:first]]
        credits = {name: m.credit for name, m in turns if m.active and m.credit}
        if credits and self.terms.delivery == "shared":
            backlog = self.cursor.available + self._log.high_watermark - self.cursor.next
            self._share = backlog / sum(member.active for _, member in turns)
            for name in credits:
                if self.members[name].even:
                    credits[name] = min(credits[name], math.ceil(self._share))
        return credits

    def _deliver(self, name: str, spans: Iterable[tuple[int, int, int]]) -> None:
        """Answer a member's request with records, given as (start, end, retries)."""
        member = self.members[name]
        pieces = tuple(
            (batch, retries)
            for start, end, retries in spans
            for batch in self._log.read(start, max_bytes=ALL_BYTES, up_to=end)
        )
        delivered = sum(batch.count for batch, _ in pieces)
        member.wants_notice = not member.waits and delivered < member.credit
        member.credit, member.waits = 0, False
        in_flight = self.cursor.in_flight.get(name, 0)
        share = self._share if pieces else 0.0
        self.send(member.ref, Acquired(member.request, pieces, in_flight, share))

    # Acknowledgement

    def settle(self, settle: AcknowledgeRecords) -> bool:
        """Apply a member's settlement; return False if the member is not active here."""
        name = settle.member
        member = self._active_member(name)
        if member is None:
            return False
        newest = member.last_settled
        if newest is not None and settle.request == newest.request:
            self.send(self._effects.sender, newest)
        elif newest is None or settle.request > newest.request:
            self._heard(member)
            refused = self._acknowledge(name, settle.acks) if settle.acks else []
            for nack in settle.nacks:
                refused += self._nack(name, nack)
            for span in settle.releases:
                self._change("release", name, *span)
            in_flight = self.cursor.in_flight.get(name, 0)
            member.last_settled = RecordsAcknowledged(settle.request, tuple(refused), in_flight)
            self.send(self._effects.sender, member.last_settled)
            self.dispatch(notify=True)
        return True

    def _acknowledge(self, name: str, spans: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Mark records as done; return those that the member has not acquired."""
        done = self._change("ack_all", name, spans)
        for span in done:
            self._record_records(kinds.ACKNOWLEDGED, name, span)
        return subtract(spans, done)

    def _nack(self, name: str, nack: Nack) -> list[OffsetRange]:
        """Deliver records again after a delay; return those that the member has not acquired."""
        cursor, (start, end) = self.cursor, nack.span
        delay_us = nack.delay_us
        if delay_us is None:
            in_window = (cursor.committed or 0) <= start < cursor.next
            deliveries = cursor.deliveries(start) if in_window else 1
            delay_us = backoff_us(max(1, deliveries), self._effects.random, self.terms)
        now_us = self._effects.now
        nacked = self._change("nack", name, start, end, now_us + delay_us, now_us)
        for span in nacked:
            self._record_records(kinds.NACKED, name, span, nack.reason)
        self._archive_exhausted(nack.reason)
        return subtract([nack.span], nacked)

    def expire(self) -> None:
        """End the acquisitions and delays whose time is over, when the timer has fired."""
        self.timer = None
        for name, start, end in self._change("expire", self._effects.now):
            self._record_records(kinds.ACK_TIMED_OUT, name, (start, end))
            if name in self.members:
                self._deactivate(name, "let acknowledgements time out")
        self._archive_exhausted("not acknowledged in time")
        self.dispatch(notify=True)

    def _set_timer(self) -> None:
        """Set the timer for the earliest deadline in the cursor."""
        due_us, timer = self.cursor.next_due_us(), self.timer
        if due_us is None:
            return
        # To wait for a retry is work; to check that acknowledgements come is not.
        background = not self.cursor.blocked
        if timer is not None:
            if self._timer_us <= due_us and timer.background == background:
                return
            timer.cancel()
        delay_us = max(0, due_us - self._effects.now)
        self.timer = self._effects.after(delay_us, Due(self.name), background=background)
        self._timer_us = due_us

    # Dead letters

    def dead_lettered(self, span: OffsetRange, reason: str) -> None:
        """Mark records as done that are now in the dead-letter topic."""
        self._archive(span, kinds.DEAD_LETTERED, reason)
        self.dispatch(notify=True)

    def _archive_exhausted(self, reason: str) -> None:
        """Write records that were delivered too often to the dead-letter topic, or discard them."""
        for start, end in self.cursor.take_exhausted():
            if self.terms.dead_letter_topic is None:
                self._archive((start, end), kinds.ARCHIVED, reason)
                continue
            producer = self._dead_letter_producer()
            for batch in self._log.read(start, max_bytes=ALL_BYTES, up_to=end):
                deliveries = self.cursor.deliveries(batch.base_offset)
                self._effects.send(
                    producer,
                    WriteDeadLetters(
                        self.name, self.terms, self._partition, batch, deliveries, reason
                    ),
                )

    def _archive(self, span: OffsetRange, kind: str, reason: str) -> None:
        for archived in self._change("archive", *span):
            # An error's text differs from record to record; its type, before the colon, does not.
            cause = reason.partition(":")[0]
            self._record_records(kind, self.subscriber, archived, reason, cause)

    # Keys

    def balance_slots(self, period_s: float) -> None:
        """Move slots of a key-shared group from overloaded members, and record its hot keys."""
        if not self.keyed:
            return
        rates = {name: member.load for name, member in self.members.items()}
        moved = self.slots.balance(rates, period_s)
        if moved:
            self._record(kinds.SLOTS_MOVED, count=moved)
        hot_keys = self.slots.hot_keys
        for key, count, share in hot_keys.top(HOT_KEYS):
            if share >= HOT_SHARE:
                self._record(kinds.KEY_COUNTED, count=count, total=hot_keys.total, key=str(key))

    def keys_view(self) -> KeysView:
        """Return what `Group.keys` shows of this partition."""
        return self.slots.view() if self.keyed else KeysView()

    def _assign_slots(self) -> None:
        """Let the active members own the slots."""
        if self.keyed:
            self.slots.assign(sorted(name for name, m in self.members.items() if m.active))

    def _record_member(self, kind: str, member: str, **fields: Any) -> None:
        self._record(kind, member=member, consumer=self._consumers.get(member), **fields)

    def _record_records(
        self,
        kind: str,
        member: str | None,
        span: OffsetRange,
        detail: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Record what happened to records: one event per appended batch."""
        recorder = self._recorders.get((kind, member, reason))
        if recorder is None:
            recorder = self._recorders[kind, member, reason] = self._effects.recorder(
                kind, self._partition, group=self.terms.group, member=member,
                consumer=self._consumers.get(member or "", self.subscriber),
                mode=kinds.RECORD if kind == kinds.ACKNOWLEDGED else None,
                reason=reason,
            )  # fmt: skip
        recorder.batches(self._log.pieces(*span), detail=detail)
