"""The part of a consumer that claims its partitions and reads ahead.

Records of each partition are fetched before the user asks for them, so that a poll seldom waits.
Positions are those of a Kafka consumer: the next offset to fetch, the next to hand out, and the one
up to which the user has finished.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import attrs

from ...model.client_profile import PROFILES
from ...model.errors import BadValueError
from ...model.events import kinds
from ...model.messages.client import (
    Claim,
    Claimed,
    Fetch,
    Fetched,
    OutOfRange,
    RecordsDamaged,
    make_tuple,
)
from ...model.messages.group import OffsetFetch, OffsetFetched
from .membership import AssignedPartition
from .pending import PendingRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...model.log.batch import Batch
    from ...model.log.records import Piece
    from ...model.settings import ConsumerSettings
    from ...model.topics import TopicPartition
    from ..engine.effects import Effects
    from .membership import GroupMembership
    from .metadata import MetadataCache


_ARRIVED: Final = attrgetter("arrived")


@attrs.define(eq=False)
class FetchPosition(AssignedPartition):
    """A partition that is read."""

    next_fetch: int = 0
    position: int = 0
    """The next offset to hand out."""
    offset_known: bool = False
    """Whether the coordinator has told the group's committed offset."""
    stored: int | None = None
    """That offset; `None` if the group has committed nothing here."""
    committed: int = -1
    """The offset that was committed last; -1 if it is not known to be stored."""
    begun: int | None = None
    """Where the group began here or was set to, until the partition has confirmed it."""
    sought: int | None = None
    """Where the user wants to start, if it said so before the leader granted the partition."""
    buffer: deque[Batch] = attrs.Factory(deque)
    arrived: int = 0
    """Sequence number of the fetch that filled the buffer; orders the partitions."""


class Fetcher:
    """Reads the assigned partitions into buffers."""

    def __init__(
        self,
        effects: Effects,
        cluster: MetadataCache,
        request_ids: Iterator[int],
        settings: ConsumerSettings,
        membership: GroupMembership[FetchPosition],
        *,
        begin: Callable[[FetchPosition], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Read what `membership` is assigned.

        `begin` is called where the group starts later than at the beginning of a partition, and
        `fail` with an error for the user.
        """
        self._effects = effects
        self._cluster = cluster
        self._membership = membership
        self._begin = begin
        self._fail = fail
        self._policy = settings.auto_offset_reset
        self._claim_ttl_us = settings.subscriber_ttl_ms * 1_000
        self._fetch_terms = (
            min(settings.max_partition_fetch_bytes, settings.fetch_max_bytes),
            settings.fetch_min_bytes,
            settings.fetch_max_wait_ms * 1_000,
            membership.group,
            membership.identity,
        )
        self.pending = PendingRequests(effects, cluster, request_ids, settings, membership)
        self._request_ids = request_ids
        self._timeout_us = settings.request_timeout_ms * 1_000
        self._offset_fetch = 0
        """The request for committed offsets that waits for an answer; 0 if none does."""
        self._asked_offsets: frozenset[TopicPartition] = frozenset()
        """The partitions of that request."""
        self._offset_fetch_us = 0
        self._profile = PROFILES[settings.client]
        self._arrivals = 0
        self.taken: list[tuple[FetchPosition, Batch]] = []
        """The poll batch, and the partitions it was taken from, which may be lost since."""

    def fetch_offsets(self) -> None:
        """Ask the coordinator for the offsets that are not known yet, if there are any."""
        wanted = [a.partition for a in self._membership.assigned.values() if not a.offset_known]
        if not wanted:
            return
        now_us = self._effects.now
        if self._offset_fetch and now_us - self._offset_fetch_us < self._timeout_us:
            return
        coordinator = self._cluster.coordinator(self._membership.group)
        if coordinator is None:
            self._cluster.refresh()
            return
        self._offset_fetch, self._offset_fetch_us = next(self._request_ids), now_us
        self._asked_offsets = frozenset(wanted)
        self._effects.send(coordinator, OffsetFetch(self._offset_fetch, tuple(wanted)))

    def on_offset_fetched(self, fetched: OffsetFetched) -> None:
        """Claim the partitions whose offsets are known now."""
        if fetched.request != self._offset_fetch:
            return
        self._offset_fetch = 0
        for assigned in list(self._membership.assigned.values()):
            if not assigned.offset_known and assigned.partition in self._asked_offsets:
                assigned.offset_known = True
                assigned.stored = fetched.offsets.get(assigned.partition)
                self.advance(assigned)
        self.fetch_offsets()

    def lose_coordinator(self) -> None:
        """Give up on the request for offsets; `fetch_offsets` repeats it."""
        self._offset_fetch = 0

    def advance(self, assigned: FetchPosition) -> None:
        """Ask a partition's leader for the next thing: to be the owner, then for records."""
        if assigned.request or not assigned.offset_known:
            return
        cluster, membership = self._cluster, self._membership
        partition = assigned.partition
        leader = cluster.leaders.get(partition) or cluster.leader(partition)
        if leader is None:
            cluster.refresh()
        elif not assigned.claimed or assigned.leader is not leader:
            assigned.leader = leader
            request = self.pending.number(assigned)
            claim = Claim(
                request, membership.group, membership.identity, membership.generation,
                self._claim_ttl_us,
            )  # fmt: skip
            self._effects.send(leader, claim)
        elif not assigned.buffer and not assigned.paused:
            request = self.pending.number(assigned)
            fetch = (request, assigned.next_fetch, *self._fetch_terms, membership.generation)
            self._effects.send(leader, make_tuple(Fetch, fetch))

    def on_claimed(self, claimed: Claimed) -> None:
        """Start to read a partition, or go on reading it from a new leader."""
        assigned = self.pending.answered(claimed.request)
        if assigned is None:
            return
        if not assigned.claimed:
            assigned.claimed = True
            assigned.committed = -1 if assigned.stored is None else assigned.stored
            sought = assigned.sought
            first = self._first_offset(assigned, claimed) if sought is None else sought
            self._move_to(assigned, first)
            if assigned.stored is None and assigned.position > claimed.start_offset:
                self._begin(assigned)
            position = assigned.position
            self._membership.record(kinds.ASSIGNED, assigned.partition, base_offset=position)
        elif claimed.start_offset > assigned.next_fetch:
            # A leader that took over starts above the records that were lost.
            self._move_to(assigned, claimed.start_offset)
        self.advance(assigned)

    def _first_offset(self, assigned: FetchPosition, claimed: Claimed) -> int:
        """The group's committed offset, or else the one that auto.offset.reset says."""
        start, end = claimed.start_offset, claimed.end_offset
        if assigned.stored is not None:
            return min(max(assigned.stored, start), end)
        return self._reset(assigned.partition, start, end, claimed.unconsumed)

    def _reset(self, partition: TopicPartition, start: int, end: int, unconsumed: int) -> int:
        policy, membership = self._policy, self._membership
        offset = {"earliest": start, "unconsumed": unconsumed}.get(policy, end)
        if policy == "none":
            self._fail(
                BadValueError(
                    f"{partition} has no position of group {membership.group!r} and "
                    "auto_offset_reset is none"
                )
            )
        membership.record(kinds.OFFSET_RESET, partition, base_offset=offset, reason=policy)
        return offset

    def on_fetched(self, fetched: Fetched) -> bool:
        """Buffer records; whether there were any."""
        assigned = self.pending.answered(fetched.request)
        if assigned is None:
            return False
        batches = fetched.batches
        # A compacted log has gaps: the first batch may start later than the requested offset.
        if batches and batches[0].base_offset >= assigned.next_fetch:
            self._arrivals += 1
            assigned.arrived = self._arrivals
            assigned.buffer.extend(batches)
            last = batches[-1]
            assigned.next_fetch = last.base_offset + last.count
            return True
        self.advance(assigned)
        return False

    def on_out_of_range(self, out: OutOfRange) -> None:
        """Reset the position: the offset is no longer, or not yet, in the log."""
        assigned = self.pending.answered(out.request)
        if assigned is not None:
            start, end = out.start_offset, out.end_offset
            self._move_to(assigned, self._reset(assigned.partition, start, end, unconsumed=start))
            if assigned.position > start:
                self._begin(assigned)
            self.advance(assigned)

    def on_records_damaged(self, damaged: RecordsDamaged) -> None:
        """Ask again: a broker that is started again, or a seek, leads past damaged records."""
        assigned = self.pending.answered(damaged.request)
        if assigned is not None:
            self.advance(assigned)

    def seek(self, assigned: FetchPosition, offset: int) -> None:
        """Go on reading at another offset."""
        assigned.request = 0
        self._move_to(assigned, offset)
        self.advance(assigned)

    def take(self, max_records: int) -> tuple[Piece, ...]:
        """Take records out of the buffers, in the order of their fetches.

        As in both client libraries, all that one fetch has brought of a partition comes before
        the next fetch.
        """
        taken = self.taken = []
        membership = self._membership
        ready = [a for a in membership.assigned.values() if a.buffer and not a.paused]
        if membership.to_revoke:
            ready = [a for a in ready if a.partition not in membership.to_revoke]
        if not ready:
            return ()
        pieces: list[Piece] = []
        if len(ready) > 1:
            ready.sort(key=_ARRIVED)
        stores = self._profile.stores_on_delivery
        for assigned in ready:
            if not max_records:
                break
            partition, buffer = assigned.partition, assigned.buffer
            while buffer and max_records:
                batch = buffer.popleft()
                if batch.count > max_records:
                    buffer.appendleft(batch[max_records:])
                    batch = batch[:max_records]
                max_records -= batch.count
                assigned.position = batch.base_offset + batch.count
                taken.append((assigned, batch))
                pieces.append((partition, batch, 0))
                producer = batch.producer
                delivered = assigned.delivered_from.get(producer)
                if delivered is None:
                    delivered = membership.delivered(assigned, producer)
                delivered.batch(batch, membership.generation)
            if stores:
                assigned.done = assigned.position
            self.advance(assigned)
        return tuple(pieces)

    def finish_taken(self) -> None:
        """Count the poll batch as processed."""
        for assigned, batch in self.taken:
            assigned.done = batch.base_offset + batch.count

    def finish_all(self) -> None:
        """Count everything that was handed out as processed."""
        for assigned in self._membership.assigned.values():
            assigned.done = assigned.position

    def lost(self) -> tuple[TopicPartition, ...]:
        """The partitions of the poll batch that were lost since."""
        assigned = self._membership.assigned
        lost = [a.partition for a, _ in self.taken if assigned.get(a.partition) is not a]
        return tuple(dict.fromkeys(lost))

    def rewind(self) -> None:
        """Go back to the beginning of the poll batch."""
        for assigned, batch in reversed(self.taken.copy()):
            self.seek(assigned, batch.base_offset)

    def _move_to(self, assigned: FetchPosition, offset: int) -> None:
        # Records of the old position may still be in processing: they do not move the new one.
        self.taken = [each for each in self.taken if each[0] is not assigned]
        assigned.buffer.clear()
        assigned.next_fetch = assigned.position = assigned.done = offset
