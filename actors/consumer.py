"""A consumer as Kafka has it: hands out what it has read, and commits what its user is done with.

What was handed out is done with at the next poll, or when the worker says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from ..model.exchange import (
    Commit,
    CommitAll,
    CommitDone,
    Committed,
    Fenced,
    LeaveGroup,
    NotLeader,
)
from .actor import receives
from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..model.batch import Batch
    from ..model.records import Piece
    from ..model.settings import ConsumerSettings
    from ..model.topics import TopicPartition
    from .reader import Reading
    from .ref import Ref
    from .worker import Job


@attrs.frozen
class TryAgain:
    """The pause after a failed handler is over."""


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
        super().__init__(controller, settings, group, topics, job)
        self.taken: list[tuple[Reading, Batch]] = []
        """What was handed out last, and the shares it was taken from, which may be lost since."""
        self.pausing = False
        """Whether it waits a little after a failed handler."""
        self.commits: dict[int, tuple[Reading, int, int]] = {}
        """Commits on their way: whose, up to which offset, since when."""
        self.callers: list[WaitingCommit] = []
        self.committed_us = 0
        self.turn = 0

    def started(self) -> None:
        self.committed_us = self.now
        super().started()

    # Handing out

    def user_is_back(self) -> None:
        """Take the records handed out before as done with."""
        self.done_with_all()
        self.commit_if_due()

    def take(self, max_records: int) -> tuple[Piece, ...]:
        """Take records out of the buffers, beginning with another partition each time."""
        taken = self.taken = []
        shares = [s for s in self.shares.values() if s.buffer and not s.paused]
        if not shares:
            return ()
        pieces: list[Piece] = []
        self.turn += 1
        if len(shares) > 1:
            first = self.turn % len(shares)
            shares = shares[first:] + shares[:first]
        for share in shares:
            partition, buffer = share.partition, share.buffer
            if self.to_revoke and partition in self.to_revoke:
                continue
            while buffer and max_records:
                batch = buffer.popleft()
                if batch.count > max_records:
                    buffer.appendleft(batch[max_records:])
                    batch = batch[:max_records]
                max_records -= batch.count
                share.position = batch.base_offset + batch.count
                taken.append((share, batch))
                pieces.append((partition, batch, 0))
                producer = batch.producer
                subject = share.delivered_from.get(producer) or self.delivery(share, producer)
                self.record_whole(subject, batch, self.generation)
            self.advance(share)
        return tuple(pieces)

    def lot_done(self, lot: tuple[Piece, ...]) -> None:
        for share, batch in self.taken:
            share.done = batch.base_offset + batch.count
        if self.settings.enable_auto_commit:
            self.commit_if_due()
        else:
            self.commit(self.shares)

    def lot_failed(self, lot: tuple[Piece, ...], error: str) -> None:
        """Go back to the beginning of the lot, and hand it out again after a pause."""
        self.pausing = True
        self.after(self.settings.retry_backoff_ms * 1_000, TryAgain())
        for share, batch in reversed(self.taken):
            self.move_to(share, batch.base_offset)
            share.request = 0
            self.advance(share)

    @receives(TryAgain)
    def on_try_again(self, again: TryAgain) -> None:
        self.pausing = False
        self.serve()

    def is_ready(self) -> bool:
        return not self.pausing

    # Committing

    def commit_if_due(self) -> None:
        settings, now_us = self.settings, self.now
        interval_us = settings.auto_commit_interval_ms * 1_000
        if settings.enable_auto_commit and now_us - self.committed_us >= interval_us:
            self.committed_us = now_us
            self.commit(self.shares)

    def commit(self, partitions: Iterable[TopicPartition]) -> list[int]:
        """Commit what is done in these partitions; the requests that wait for an answer."""
        requests = []
        for partition in partitions:
            share = self.shares.get(partition)
            if share is None or share.leader is None or share.done <= share.committed:
                continue
            requests.append(self.tell_position(share))
        return requests

    def tell_position(self, share: Reading) -> int:
        assert share.leader is not None
        request = self.next_request()
        self.commits[request] = (share, share.done, self.now)
        share.committed = share.done
        self.send(
            share.leader,
            Commit(request, self.group, self.identity, self.generation, share.done, share.begun),
        )
        return request

    def begin(self, share: Reading) -> None:
        share.begun = share.position
        self.tell_position(share)

    def committed_all(self, partitions: list[TopicPartition]) -> bool:
        if self.settings.enable_auto_commit or self.runs:
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
        if outcome == "committed":
            share.begun = None
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
        if not self.runs:
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
        if share is not None and self.shares.get(share.partition) is share:
            self.fenced(share, fenced.generation)

    def connection_lost(self, ref: Ref) -> None:
        for share in self.shares.values():
            if share.leader is ref:
                share.request = 0
        for request in [r for r, (share, _, _) in self.commits.items() if share.leader is ref]:
            self.settle_commit(request, "lost")

    def beat_more(self) -> None:
        """See to what was not answered, and to a user who does not come back."""
        self.ask_the_late_again()
        late_us = self.now - self.settings.request_timeout_ms * 1_000
        for request in [r for r, (_, _, sent_us) in self.commits.items() if sent_us < late_us]:
            self.settle_commit(request, "lost")
        if self.runs:
            self.commit_if_due()
        self.leave_if_stuck()
