"""A consumer: hands its user what it has read, and commits what the user is done with.

Called, it answers `Poll`; running, it hands each lot of records to a worker and takes the next
when that is done. What was handed out is done with at the next poll, or when the worker says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from ..model import kinds
from ..model.exchange import (
    Commit,
    CommitAll,
    CommitDone,
    Committed,
    Fenced,
    LeaveGroup,
    NotLeader,
    Poll,
    Polled,
    PollFailed,
)
from .actor import receives
from .reader import Reader
from .worker import Work, WorkDone, Worker, WorkFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..model.batch import Batch
    from ..model.records import Piece
    from ..model.settings import ConsumerSettings
    from ..model.topics import TopicPartition
    from .member import Share
    from .ref import Ref
    from .timers import Timer
    from .worker import Job


@attrs.frozen
class PollOver:
    """A poll has waited long enough."""

    number: int


@attrs.frozen
class TryAgain:
    """The pause after a failed handler is over."""


@attrs.define
class WaitingPoll:
    """A poll that found nothing yet."""

    number: int
    asker: Ref
    max_records: int
    timer: Timer


@attrs.define
class WaitingCommit:
    """Who asked for a commit, and what is known of it."""

    asker: Ref
    left: dict[int, None]
    committed: list[tuple[TopicPartition, int]] = attrs.Factory(list)
    refused: list[TopicPartition] = attrs.Factory(list)

    def settle(self, request: int, partition: TopicPartition, offset: int, outcome: str) -> None:
        """Take note of one answer."""
        if request in self.left:
            del self.left[request]
            if outcome == "committed":
                self.committed.append((partition, offset))
            else:
                self.refused.append(partition)


class Consumer(Reader):
    """A member of a group that reads records."""

    def __init__(
        self,
        controller: Ref,
        settings: ConsumerSettings,
        group: str,
        topics: tuple[str, ...],
        job: Job | None = None,
    ) -> None:
        super().__init__(controller, settings, group, topics)
        self.job = job
        self.worker: Ref | None = None
        self.lot: list[tuple[Share, Batch]] = []
        """What the worker is at."""
        self.lots = 0
        self.pausing = False
        """Whether it waits a little after a failed handler."""
        self.holding = False
        """Whether a caller has records that it has neither committed nor polled beyond."""
        self.poll: WaitingPoll | None = None
        self.polls = 0
        self.polled_us = 0
        self.stuck = False
        """Whether it left its group because its user did not come back."""
        self.commits: dict[int, tuple[Share, int, int]] = {}
        """Commits on their way: whose, up to which offset, since when."""
        self.callers: list[WaitingCommit] = []
        self.committed_us = 0
        self.turn = 0

    def started(self) -> None:
        self.polled_us = self.committed_us = self.now
        if self.job is not None:
            self.worker = self.spawn(
                Worker, f"{self.ref.name}/worker", self.job, on_failure="restart"
            )
        super().started()

    def joins(self) -> None:
        self.polled_us = self.now
        self.stuck = False

    # Handing out

    @receives(Poll)
    def on_poll(self, poll: Poll) -> None:
        """Take the records handed out before as done with, and hand out more."""
        self.done_with_all()
        self.polled_us = self.now
        self.commit_if_due()
        if self.stuck:
            self.join()
        self.proceed()
        self.polls += 1
        if self.poll is not None:
            self.answer_poll(())
        limit = self.settings.max_poll_records if poll.max_records is None else poll.max_records
        timer = self.after(poll.timeout_us, PollOver(self.polls))
        self.poll = WaitingPoll(self.polls, self.sender, limit, timer)
        self.serve()

    @receives(PollOver)
    def on_poll_over(self, over: PollOver) -> None:
        if self.poll is not None and self.poll.number == over.number:
            self.answer_poll(())

    def answer_poll(self, pieces: tuple[Piece, ...]) -> None:
        assert self.poll is not None
        poll, self.poll = self.poll, None
        poll.timer.cancel()
        self.polled_us = self.now
        self.holding = bool(pieces)
        error, self.error = self.error, None
        self.send(poll.asker, Polled(pieces) if error is None else PollFailed(error))

    def serve(self) -> None:
        """Hand out what there is, to whoever waits for it."""
        if self.rejoin == "eager":
            return
        if self.poll is not None:
            pieces = () if self.error else self.take(self.poll.max_records)
            if pieces or self.error:
                self.answer_poll(pieces)
        elif self.worker is not None and not self.lot and not self.pausing:
            pieces = self.take(self.settings.max_poll_records)
            if pieces:
                self.lots += 1
                self.lot = [(self.shares[tp], piece) for tp, piece, _ in pieces]
                self.polled_us = self.now
                self.send(self.worker, Work(self.lots, pieces))

    def take(self, max_records: int) -> tuple[Piece, ...]:
        """Take records out of the buffers, beginning with another partition each time."""
        pieces = []
        shares = [s for s in self.shares.values() if s.buffer and not s.paused]
        self.turn += 1
        for index in range(len(shares)):
            share = shares[(self.turn + index) % len(shares)]
            if share.partition in self.to_revoke:
                continue
            while share.buffer and max_records:
                batch = share.buffer.popleft()
                if batch.count > max_records:
                    share.buffer.appendleft(batch[max_records:])
                    batch = batch[:max_records]
                max_records -= batch.count
                share.position = batch.base_offset + batch.count
                pieces.append((share.partition, batch, 0))
                self.delivered(share.partition, batch)
            self.advance(share)
        return tuple(pieces)

    def delivered(self, partition: TopicPartition, batch: Batch) -> None:
        self.record(
            kinds.DELIVERED,
            topic=partition.topic,
            partition=partition.partition,
            group=self.group,
            member=self.member,
            producer=batch.producer,
            base_offset=batch.base_offset,
            count=batch.count,
            bytes=batch.bytes,
            epoch=self.generation,
            append_time_us=batch.append_time_us,
        )

    @receives(WorkDone)
    def on_work_done(self, done: WorkDone) -> None:
        if done.lot != self.lots:
            return
        lot, self.lot = self.lot, []
        for share, piece in lot:
            share.done = piece.base_offset + piece.count
        if self.stuck:
            self.join()
        if self.settings.enable_auto_commit:
            self.commit_if_due()
        else:
            self.commit(self.shares)
        self.proceed()
        self.serve()

    @receives(WorkFailed)
    def on_work_failed(self, failed: WorkFailed) -> None:
        """Go back to the beginning of the lot, and hand it out again after a pause."""
        if failed.lot != self.lots:
            return
        lot, self.lot = self.lot, []
        for share, piece in reversed(lot):
            self.note(
                kinds.HANDLER_FAILED,
                share.partition,
                base_offset=piece.base_offset,
                detail=failed.error,
            )
            self.move_to(share, piece.base_offset)
            share.request = 0
            self.advance(share)
        self.pausing = True
        self.after(self.settings.retry_backoff_ms * 1_000, TryAgain())
        self.proceed()

    @receives(TryAgain)
    def on_try_again(self, again: TryAgain) -> None:
        self.pausing = False
        self.serve()

    def is_busy(self) -> bool:
        return self.holding or bool(self.lot)

    # Committing

    def commit_if_due(self) -> None:
        interval_us = self.settings.auto_commit_interval_ms * 1_000
        if self.settings.enable_auto_commit and self.now - self.committed_us >= interval_us:
            self.committed_us = self.now
            self.commit(self.shares)

    def commit(self, partitions: Iterable[TopicPartition]) -> list[int]:
        """Commit what is done in these partitions; the requests that wait for an answer."""
        requests = []
        for partition in partitions:
            share = self.shares.get(partition)
            if share is None or share.leader is None or share.done <= share.committed:
                continue
            request = self.next_request()
            self.commits[request] = (share, share.done, self.now)
            share.committed = share.done
            self.send(
                share.leader,
                Commit(request, self.group, self.identity, self.generation, share.done),
            )
            requests.append(request)
        return requests

    def committed_all(self, partitions: list[TopicPartition]) -> bool:
        if self.settings.enable_auto_commit or self.worker is not None:
            self.commit(partitions)
        wanted = dict.fromkeys(partitions)
        return not any(share.partition in wanted for share, _, _ in self.commits.values())

    @receives(Committed)
    def on_committed(self, committed: Committed) -> None:
        self.settle_commit(committed.request, "committed")

    def settle_commit(self, request: int, outcome: Literal["committed", "refused", "lost"]) -> None:
        """Take note of how a commit ended; whoever waits for it goes on."""
        commit = self.commits.pop(request, None)
        if commit is None:
            return
        share, offset, _ = commit
        if outcome == "lost" and not (self.rejoin or self.to_revoke):
            share.committed = -1  # so that the next commit says it again
        for caller in list(self.callers):
            caller.settle(request, share.partition, offset, outcome)
            if not caller.left:
                self.callers.remove(caller)
                self.answer_commit(caller)
        self.proceed()

    @receives(LeaveGroup)
    def on_leave_group(self, order: LeaveGroup) -> None:
        self.done_with_all()
        super().on_leave_group(order)

    def done_with_all(self) -> None:
        """Take everything handed out to a caller as done with."""
        self.holding = False
        if self.worker is None:
            for share in self.shares.values():
                share.done = share.position

    @receives(CommitAll)
    def on_commit_all(self, commit: CommitAll) -> None:
        self.done_with_all()
        caller = WaitingCommit(self.sender, dict.fromkeys(self.commit(self.shares)))
        if caller.left:
            self.callers.append(caller)
        else:
            self.answer_commit(caller)

    def answer_commit(self, caller: WaitingCommit) -> None:
        self.holding = False
        self.send(caller.asker, CommitDone(tuple(caller.committed), tuple(caller.refused)))
        self.proceed()

    # When things go wrong

    @receives(NotLeader)
    def on_not_leader(self, refused: NotLeader) -> None:
        self.settle_commit(refused.request, "lost")
        self.answered(refused.request)
        self.refresh()

    @receives(Fenced)
    def on_fenced(self, fenced: Fenced) -> None:
        commit = self.commits.get(fenced.request)
        self.settle_commit(fenced.request, "refused")
        share = self.answered(fenced.request) or (commit and commit[0])
        if share is None or self.shares.get(share.partition) is not share:
            return
        if share.claimed:
            self.revoke([share.partition], "fenced")
        elif fenced.generation >= self.generation and not self.joining:
            # The partition has seen a newer generation than the coordinator knows of.
            self.generation = fenced.generation
            self.revoke(list(self.shares), "fenced")
            self.join()

    def connection_lost(self, ref: Ref) -> None:
        for share in self.shares.values():
            if share.leader is ref:
                share.request = 0
        for request in [r for r, (share, _, _) in self.commits.items() if share.leader is ref]:
            self.settle_commit(request, "lost")

    def beat_more(self) -> None:
        """See to what was not answered, and to a user who does not come back."""
        late_us = self.now - self.settings.request_timeout_ms * 1_000
        for share in list(self.shares.values()):
            if share.request and share.asked_us < late_us:
                share.request = 0
                share.leader = None
                self.refresh()
            self.advance(share)
        self.forget_old_questions()
        for request in [r for r, (_, _, sent_us) in self.commits.items() if sent_us < late_us]:
            self.settle_commit(request, "lost")
        if self.worker is not None:
            self.commit_if_due()
        waited_us = self.now - self.polled_us
        idle = self.poll is not None or (self.worker is not None and not self.lot)
        if self.joined and not idle and waited_us > self.settings.max_poll_interval_ms * 1_000:
            self.stuck = True
            self.record(kinds.STUCK, group=self.group, member=self.member, epoch=self.generation)
            self.leave("did not poll within max_poll_interval_ms")
