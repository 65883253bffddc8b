"""The serving half of a consumer: hands its user what there is, and asks leaders for more.

Called, a consumer answers `Poll`; running, it works on a lot of records at a time: a worker calls
the handler, or in a simulation time passes. Where records come from and what becomes of them is
for its two kinds to say: one reads and commits as in Kafka (actors/consumer.py), the other acquires
records and settles each of them (actors/subscriber.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..model import kinds
from ..model.exchange import Poll, Polled, PollFailed, SetPace, SetPaused
from ..model.membership import NOT_POLLING
from .actor import receives
from .member import Member, S
from .worker import Work, WorkDone, Worker, WorkFailed

if TYPE_CHECKING:
    from ..model.records import Piece
    from ..model.settings import ConsumerSettings
    from .ref import Ref
    from .timers import Timer
    from .worker import Job


@attrs.frozen
class PollOver:
    """A poll has waited long enough."""

    number: int


@attrs.define
class WaitingPoll:
    """A poll that found nothing yet."""

    number: int
    asker: Ref
    max_records: int
    timer: Timer


class Waiter(Member[S]):
    """A member that serves a user."""

    def __init__(
        self,
        controller: Ref,
        settings: ConsumerSettings,
        group: str,
        topics: tuple[str, ...],
        job: Job | None = None,
    ) -> None:
        super().__init__(controller, settings, group, topics)
        self.questions: dict[int, S] = {}
        """What leaders have been asked and have not answered."""
        self.job = job
        self.runs = job is not None
        """Whether it works by itself, or is called."""
        self.worker: Ref | None = None
        """Who calls a handler; work that only takes time needs nobody."""
        self.pace = 1.0
        self.lot: tuple[Piece, ...] = ()
        """What is being worked on."""
        self.lots = 0
        self.holding = False
        """Whether a caller has records that it is in the middle of."""
        self.poll: WaitingPoll | None = None
        self.polls = 0
        self.polled_us = 0
        self.stuck = False
        """Whether it left its group because its user did not come back."""
        self.error: Exception | None = None
        """What the next poll is to raise."""

    def started(self) -> None:
        self.polled_us = self.now
        if self.job is not None and self.job.handler is not None:
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
        """Take note that the user is back, and hand out more."""
        self.user_is_back()
        self.polled_us = self.now
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
            late = self.rejoin == "eager" or self.error is not None
            self.answer_poll(() if late else self.take(self.poll.max_records))

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
        if self.lot and self.poll is None:
            return
        if self.rejoin == "eager" or self.leaving is not None or not self.is_ready():
            return
        if self.poll is not None:
            pieces = () if self.error else self.take(self.poll.max_records)
            if pieces or self.error:
                self.answer_poll(pieces)
        elif self.runs and not self.lot:
            pieces = self.take(self.settings.max_poll_records)
            if pieces:
                self.lots += 1
                self.lot = pieces
                self.polled_us = self.now
                self.begin_work()

    def begin_work(self) -> None:
        if self.worker is not None:
            self.send(self.worker, Work(self.lots, self.lot))
            return
        assert self.job is not None
        assert self.job.service is not None
        count = 0
        for _, piece, _ in self.lot:
            count += piece.count
        took_us = self.job.service.batch_us(count, self.numpy_random)
        self.after(round(took_us * self.pace), WorkDone(self.lots))

    def delivery(self, share: S, producer: str) -> int:
        """Make and keep the subject of the events that tell of what was handed out."""
        subject = share.delivered_from[producer] = self.subject(
            kinds.DELIVERED, share.partition, producer=producer, group=self.group,
            member=self.member,
        )  # fmt: skip
        return subject

    @receives(WorkDone)
    def on_work_done(self, done: WorkDone) -> None:
        if done.lot != self.lots:
            return
        lot, self.lot = self.lot, ()
        self.lot_done(lot)
        if self.stuck:
            self.join()
        self.proceed()
        self.serve()

    @receives(WorkFailed)
    def on_work_failed(self, failed: WorkFailed) -> None:
        """See to it that the lot comes again."""
        if failed.lot != self.lots:
            return
        lot, self.lot = self.lot, ()
        for partition, piece, _ in reversed(lot):
            base_offset = piece.base_offset
            self.note(kinds.HANDLER_FAILED, partition, base_offset=base_offset, detail=failed.error)
        self.lot_failed(lot, failed.error)
        self.proceed()

    def is_busy(self) -> bool:
        return self.holding or bool(self.lot)

    # Asking leaders

    def number_question(self, share: S) -> int:
        """Give a question to a partition's leader its number, by which the answer is known."""
        request = self.requests = self.requests + 1
        share.request, share.asked_us = request, self.now
        self.questions[request] = share
        return request

    def answered(self, request: int) -> S | None:
        """The share whose question this answers, if it still waits for it."""
        share = self.questions.pop(request, None)
        if share is None or share.request != request:
            return None
        share.request = 0
        return share if self.shares.get(share.partition) is share else None

    def forget_old_questions(self) -> None:
        """Let go of what nobody waits for any more: an answer may have been lost for good."""
        self.questions = {
            request: share
            for request, share in self.questions.items()
            if share.request == request and self.shares.get(share.partition) is share
        }

    def metadata_changed(self) -> None:
        if self.joining:
            self.send_join()
        self.revoke([tp for tp in self.shares if tp not in self.metadata.leaders], "deleted")
        for share in list(self.shares.values()):
            self.advance(share)

    def misses_something(self) -> bool:
        if self.joined and self.coordinator() is None:
            return True
        return any(self.leader(partition) is None for partition in self.shares)

    @receives(SetPaused)
    def on_set_paused(self, order: SetPaused) -> None:
        for partition in order.partitions or tuple(self.shares):
            share = self.shares.get(partition)
            if share is not None:
                share.paused = order.paused
                self.advance(share)
        self.reply(order.partitions)
        self.serve()

    @receives(SetPace)
    def on_set_pace(self, change: SetPace) -> None:
        self.pace *= change.factor
        if self.worker is not None:
            self.send(self.worker, change)

    # With every heartbeat

    def ask_the_late_again(self) -> None:
        for share in list(self.shares.values()):
            if share.request and self.is_late(share):
                share.request = 0
                share.leader = None
                self.refresh()
            self.advance(share)
        if len(self.questions) > len(self.shares):
            self.forget_old_questions()

    def is_late(self, share: S) -> bool:
        """Whether the answer to a question should have come."""
        return share.asked_us < self.now - self.settings.request_timeout_ms * 1_000

    def leave_if_stuck(self) -> None:
        """Leave the group if the user does not come back."""
        waited_us = self.now - self.polled_us
        idle = self.poll is not None or (self.runs and not self.lot)
        if self.joined and not idle and waited_us > self.settings.max_poll_interval_ms * 1_000:
            self.stuck = True
            self.record(kinds.STUCK, group=self.group, member=self.member, epoch=self.generation)
            self.leave(NOT_POLLING)

    # What the two kinds do

    def user_is_back(self) -> None:
        """Take what was handed out before as what it is by now."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether the user may be given records now."""
        return True

    def take(self, max_records: int) -> tuple[Piece, ...]:
        """Take records out of the buffers."""
        raise NotImplementedError

    def lot_done(self, lot: tuple[Piece, ...]) -> None:
        """Take note that the worker is done with a lot."""
        raise NotImplementedError

    def lot_failed(self, lot: tuple[Piece, ...], error: str) -> None:
        """See to it that a lot comes again."""
        raise NotImplementedError
