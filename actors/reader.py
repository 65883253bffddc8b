"""The fetching half of a consumer: claims what its member half owns, and reads ahead.

A lot of records for each partition is fetched before anybody asks, so that a poll seldom waits.
Positions are kept as Kafka keeps them: the next offset to fetch, the next to hand out, and that up
to which the user is done.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from ..model import kinds
from ..model.errors import BadValueError
from ..model.exchange import Claim, Claimed, Fetch, Fetched, OutOfRange, Owned, Seek, made
from ..model.protocol import Refused
from .actor import receives
from .member import Share
from .waiter import Waiter

if TYPE_CHECKING:
    from ..model.batch import Batch
    from ..model.topics import TopicPartition


class Serve(NamedTuple):
    """Whatever arrives at this moment has arrived: hand it out."""


SERVE: Final = Serve()


@attrs.define(eq=False)
class Reading(Share):
    """A partition that is read."""

    next_fetch: int = 0
    position: int = 0
    """The next offset to hand out."""
    committed: int = -1
    begun: int | None = None
    """Where the group began here or was set to, until the partition is known to know it."""
    buffer: deque[Batch] = attrs.Factory(deque)


class Reader(Waiter[Reading]):
    """A member that reads what it owns into buffers."""

    serving = False
    """Whether it is about to hand out what has arrived."""

    def make_share(self, partition: TopicPartition) -> Reading:
        return Reading(partition)

    def advance(self, share: Reading) -> None:
        """Ask a partition's leader for what comes next: to be the owner, then for records."""
        if share.request:
            return
        leader = self.leaders.get(share.partition) or self.leader(share.partition)
        if leader is None:
            self.refresh()
        elif not share.claimed or share.leader is not leader:
            share.leader = leader
            ttl_us = self.settings.subscriber_ttl_ms * 1_000
            request = self.number_question(share)
            self.send(leader, Claim(request, self.group, self.identity, self.generation, ttl_us))
        elif not share.buffer and not share.paused:
            request = self.number_question(share)
            fetch = (request, share.next_fetch, *self.fetch_terms, self.generation)
            self.send(leader, made(Fetch, fetch))

    @cached_property
    def fetch_terms(self) -> tuple[int, int, int, str, str]:
        """How much a fetch asks for, at most and at least, how long it waits, and for whom."""
        settings = self.settings
        return (
            min(settings.max_partition_fetch_bytes, settings.fetch_max_bytes),
            settings.fetch_min_bytes,
            settings.fetch_max_wait_ms * 1_000,
            self.group,
            self.identity,
        )

    @receives(Claimed)
    def on_claimed(self, claimed: Claimed) -> None:
        share = self.answered(claimed.request)
        if share is None:
            return
        if not share.claimed:
            share.claimed = True
            share.committed = -1 if claimed.committed is None else claimed.committed
            self.move_to(share, self.first_offset(share.partition, claimed))
            if claimed.committed is None and share.position > claimed.start_offset:
                self.begin(share)
            self.note(kinds.ASSIGNED, share.partition, base_offset=share.position)
        elif claimed.start_offset > share.next_fetch:
            # A leader that took over begins above what was lost.
            self.move_to(share, claimed.start_offset)
        self.advance(share)

    def first_offset(self, partition: TopicPartition, claimed: Claimed) -> int:
        """Where to begin: where the group left off, or else where the settings say."""
        if claimed.committed is not None:
            return max(claimed.committed, claimed.start_offset)
        return self.reset_to(
            partition, claimed.start_offset, claimed.end_offset, claimed.unconsumed
        )

    def reset_to(self, partition: TopicPartition, start: int, end: int, unconsumed: int) -> int:
        policy = self.settings.auto_offset_reset
        offset = {"earliest": start, "unconsumed": unconsumed}.get(policy, end)
        if policy == "none":
            self.error = BadValueError(
                f"{partition} has no position of group {self.group!r} and auto_offset_reset is none"
            )
        self.note(kinds.OFFSET_RESET, partition, base_offset=offset, detail=policy)
        return offset

    @receives(Fetched)
    def on_fetched(self, fetched: Fetched) -> None:
        share = self.answered(fetched.request)
        if share is None:
            return
        # A compacted log has gaps: what comes next may begin later than where it was asked for.
        if fetched.batches and fetched.batches[0].base_offset >= share.next_fetch:
            share.buffer.extend(fetched.batches)
            last = fetched.batches[-1]
            share.next_fetch = last.base_offset + last.count
            if len(self.shares) == 1:
                self.serve()
            elif not self.serving and (self.poll is not None or (self.runs and not self.lot)):
                # Others may answer at this moment, too: as in Kafka a poll gets all that is there,
                # not what came first alone.
                self.serving = True
                self.send(self.ref, SERVE)
        else:
            self.advance(share)

    @receives(Serve)
    def on_serve(self, serve: Serve) -> None:
        self.serving = False
        self.serve()

    @receives(OutOfRange)
    def on_out_of_range(self, out: OutOfRange) -> None:
        share = self.answered(out.request)
        if share is not None:
            start, end = out.start_offset, out.end_offset
            self.move_to(share, self.reset_to(share.partition, start, end, unconsumed=start))
            if share.position > start:
                self.begin(share)
            self.advance(share)

    def move_to(self, share: Reading, offset: int) -> None:
        share.buffer.clear()
        share.next_fetch = share.position = share.done = offset

    # What the outside may ask for

    @receives(Seek)
    def on_seek(self, seek: Seek) -> None:
        share = self.shares.get(seek.partition)
        if share is None or not share.claimed:
            self.reply(Refused(f"{self.ref.name} does not own {seek.partition} now"))
            return
        share.request = 0
        self.move_to(share, seek.offset)
        self.advance(share)
        self.reply(seek.offset)

    @receives(Owned)
    def on_owned(self, owned: Owned) -> None:
        self.reply(tuple((s.partition, s.position) for s in self.shares.values() if s.claimed))

    def begin(self, share: Reading) -> None:
        """Let the partition know that the group owes nothing before its position."""
        raise NotImplementedError
