"""A consumer as Kafka has it: hands out records it has fetched, and commits offsets.

Polled records count as processed at the next poll, or when the worker has finished with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...model.client_profile import PROFILES
from ...model.messages.client import (
    Claimed,
    CommitAll,
    Fenced,
    Fetched,
    NotLeader,
    OutOfRange,
    Owned,
    RecordsDamaged,
    Seek,
)
from ...model.messages.cluster import RequestRefused
from ...model.messages.group import OffsetCommitAnswer, OffsetFetched
from ..engine.actor import receives
from .fetcher import Fetcher, FetchPosition
from .group_consumer import GroupConsumer
from .offset_committer import OffsetCommitter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...model.topics import TopicPartition
    from ..engine.ref import Ref


@attrs.frozen
class BeginReading:
    """The library has dealt with a new assignment."""


@attrs.frozen
class CommitDue:
    """The interval of automatic commits is over."""


@attrs.frozen
class TryAgain:
    """The backoff after a failed handler is over."""


class Consumer(GroupConsumer[FetchPosition]):
    """A member of a group that reads records and commits offsets."""

    fetcher: Fetcher
    committer: OffsetCommitter
    commits_in_background: bool
    backing_off = False
    """Whether it waits a little after a failed handler."""

    def started(self) -> None:
        super().started()
        self.hold_parts(self)
        membership, poll_loop = self.membership, self.poll_loop
        shared = (self.request_ids, self.settings, membership)
        self.committer = OffsetCommitter(
            self.effects,
            self.cluster,
            *shared,
            commits_by_itself=poll_loop.runs,
            on_answer=self.release,
        )
        self.fetcher = Fetcher(
            self.effects, self.cluster, *shared, begin=self.committer.begin, fail=self.fail
        )
        poll_loop.start(self.fetcher.take)
        membership.start()
        # A consumer that is called commits within its polls, unless its library does otherwise.
        self.commits_in_background = PROFILES[self.settings.client].commits_in_background
        interval_us = self.settings.auto_commit_interval_ms * 1_000
        runs = self.commits_in_background or poll_loop.runs
        if runs and self.settings.enable_auto_commit and interval_us:
            self.every(interval_us, CommitDue(), exactly=False)

    def fail(self, error: Exception) -> None:
        """Have the next poll raise an error."""
        self.poll_loop.error = error

    def release(self) -> None:
        """Note that the caller has finished with its records."""
        self.poll_loop.holding = False

    def finish_all(self) -> None:
        """Count everything that was handed out to a caller as processed."""
        self.release()
        if not self.poll_loop.runs:
            self.fetcher.finish_all()

    # Fetching

    @receives(OffsetFetched)
    def on_offset_fetched(self, fetched: OffsetFetched) -> None:
        self.fetcher.on_offset_fetched(fetched)

    @receives(Claimed)
    def on_claimed(self, claimed: Claimed) -> None:
        self.fetcher.on_claimed(claimed)

    @receives(Fetched)
    def on_fetched(self, fetched: Fetched) -> None:
        if self.fetcher.on_fetched(fetched):
            if len(self.membership.assigned) == 1:
                self.poll_loop.serve()
            else:
                self.poll_loop.serve_soon()

    @receives(OutOfRange)
    def on_out_of_range(self, out: OutOfRange) -> None:
        self.fetcher.on_out_of_range(out)

    @receives(RecordsDamaged)
    def on_records_damaged(self, damaged: RecordsDamaged) -> None:
        self.fetcher.on_records_damaged(damaged)

    @receives(Seek)
    def on_seek(self, seek: Seek) -> None:
        assigned = self.membership.assigned.get(seek.partition)
        if assigned is None:
            self.reply(RequestRefused(f"{self.ref.name} does not own {seek.partition} now"))
            return
        if assigned.claimed:
            self.fetcher.seek(assigned, seek.offset)
        else:
            assigned.sought = seek.offset
        self.reply(seek.offset)

    @receives(Owned)
    def on_owned(self, owned: Owned) -> None:
        assigned = self.membership.assigned.values()
        self.reply(tuple((each.partition, each.position) for each in assigned if each.claimed))

    # Serving: what the poll loop asks its source

    def user_returned(self) -> None:
        """Count the records of the poll before as processed."""
        self.finish_all()
        self.committer.commit_if_due()

    def is_ready(self) -> bool:
        """Whether the user may be given records now."""
        return not self.backing_off

    def poll_waits(self) -> None:
        """Do nothing: fetches are on their way."""

    def batch_done(self) -> None:
        """Count the poll batch as processed, and commit it when that is due."""
        self.fetcher.finish_taken()
        if self.settings.enable_auto_commit:
            self.committer.commit_if_due()
        else:
            self.committer.commit(self.membership.assigned)

    def batch_failed(self, error: str) -> None:
        """Go back to the beginning of the poll batch, and hand it out again after a backoff."""
        self.backing_off = True
        self.after(self.settings.retry_backoff_ms * 1_000, TryAgain())
        self.fetcher.rewind()

    @receives(TryAgain)
    def on_try_again(self, again: TryAgain) -> None:
        self.backing_off = False
        self.poll_loop.serve()

    # Committing

    @receives(CommitAll)
    def on_commit_all(self, commit: CommitAll) -> None:
        lost = self.fetcher.lost() if self.poll_loop.holding else ()
        self.finish_all()
        self.committer.commit_for(self.sender, lost)

    @receives(OffsetCommitAnswer)
    def on_offset_commit_answer(self, answer: OffsetCommitAnswer) -> None:
        self.committer.on_answer(answer)

    @receives(CommitDue)
    def on_commit_due(self, due: CommitDue) -> None:
        if self.commits_in_background or not self.poll_loop.is_busy():
            self.committer.commit_if_due()

    def user_leaves(self) -> None:
        self.finish_all()

    # Refusals and lost answers

    @receives(NotLeader)
    def on_not_leader(self, refused: NotLeader) -> None:
        assigned = self.fetcher.pending.answered(refused.request)
        if assigned is not None:
            assigned.leader = None  # it may lead again in a later epoch: that has to be claimed
        self.cluster.refresh()

    @receives(Fenced)
    def on_fenced(self, fenced: Fenced) -> None:
        assigned = self.fetcher.pending.answered(fenced.request)
        if assigned is not None and self.membership.assigned.get(assigned.partition) is assigned:
            self.membership.fenced(assigned, fenced.generation)

    def connection_lost(self, ref: Ref) -> None:
        for assigned in self.membership.assigned.values():
            if assigned.leader is ref:
                assigned.request = 0
        self.fetcher.lose_coordinator()
        self.committer.lose_coordinator(ref)

    def check_requests(self) -> None:
        """Repeat requests that should have been answered, and commit when that is due."""
        self.fetcher.fetch_offsets()
        self.fetcher.pending.retry_late(self.fetcher.advance)
        self.committer.lose_late()

    # What the membership asks its owner

    def make_partition(self, partition: TopicPartition) -> FetchPosition:
        """Start to keep track of a partition."""
        return FetchPosition(partition)

    def begin(self, partitions: Sequence[FetchPosition]) -> None:
        """Ask for the committed offsets of partitions that were just assigned, a little later."""
        self.effects.after(PROFILES[self.settings.client].assignment_us, BeginReading())

    @receives(BeginReading)
    def on_begin_reading(self, begin: BeginReading) -> None:
        self.fetcher.lose_coordinator()
        self.fetcher.fetch_offsets()

    def metadata_changed(self) -> None:
        super().metadata_changed()
        self.fetcher.fetch_offsets()

    def advance(self, assigned: FetchPosition) -> None:
        """Ask the partition's leader for the next thing: to be the owner, then for records."""
        self.fetcher.advance(assigned)

    def commit_all(self, partitions: Iterable[TopicPartition]) -> bool:
        """Commit the processed offsets of these partitions; return whether all are stored."""
        return self.committer.commit_all(partitions)
