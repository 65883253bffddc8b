"""The part of a consumer that hands records to its user.

A consumer is either called, and answers `Poll`, or it runs by itself: then it works on one poll
batch at a time, for which a worker calls the user's handler, or only time passes. Where records
come from and what happens to them afterwards is up to the `Source`: one fetches and commits
as in Kafka, the other acquires records and acknowledges each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import attrs

from ...model.events import kinds
from ...model.messages.client import Poll, Polled, PollFailed, SetServiceFactor
from ...model.messages.group import NOT_POLLING
from .worker import Work, WorkDone, Worker, WorkFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...model.log.records import Piece
    from ...model.settings import ConsumerSettings
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from ..engine.timers import Timer
    from .membership import GroupMembership
    from .rebalance_listener import RebalanceCallbacks
    from .worker import RecordProcessing


@attrs.frozen
class PollOver:
    """A poll has reached its timeout."""

    number: int
    """The poll's number."""


@attrs.frozen
class PollDeadline:
    """The time between two polls may be over."""


class Serve(NamedTuple):
    """Everything that arrives at this instant has arrived: serve it."""


SERVE: Final = Serve()

SAMPLES: Final = 512
"""Samples of the processing time in the time that has passed; later ones are further apart."""


@attrs.define
class WaitingPoll:
    """A poll that waits for records."""

    number: int
    asker: Ref
    max_records: int
    timer: Timer


Take: TypeAlias = "Callable[[int], tuple[Piece, ...]]"
"""Takes at most so many records out of the buffers."""


class Source(Protocol):
    """Where a poll loop gets records, and whom it tells what became of them."""

    def user_returned(self) -> None:
        """The user polls: it has finished with the records of the poll before."""

    def is_ready(self) -> bool:
        """Whether the user may be given records now."""

    def poll_waits(self) -> None:
        """A poll waits for records."""

    def batch_done(self) -> None:
        """The worker has finished with the poll batch."""

    def batch_failed(self, error: str) -> None:
        """The handler raised: the poll batch must be delivered again."""


class PollLoop:
    """Serves the user of one consumer."""

    _take: Take

    def __init__(
        self,
        effects: Effects,
        settings: ConsumerSettings,
        membership: GroupMembership[Any],
        job: RecordProcessing | None,
        source: Source,
        callbacks: RebalanceCallbacks | None = None,
    ) -> None:
        self._effects = effects
        self._callbacks = callbacks
        self._settings = settings
        self._membership = membership
        self._job = job
        self._source = source
        self.runs = job is not None
        """Whether the consumer works by itself, or is called."""
        self.worker: Ref | None = None
        """Calls the handler and the rebalance listener; work that only takes time needs none."""
        self._pace = 1.0
        self.batch: tuple[Piece, ...] = ()
        """The poll batch that is being worked on."""
        self._batches = 0
        self.holding = False
        """Whether a caller has records that it has not finished with."""
        self.poll: WaitingPoll | None = None
        self._polls = 0
        self._polled_us = 0
        self._max_interval_us = settings.max_poll_interval_ms * 1_000
        self._busy_since_us: int | None = None
        """When the user got the records that it is processing."""
        self._busy_us = 0
        """How long the user processed records since the last sample, up to `_busy_since_us`."""
        self._observed_us = 0
        """Time of the last sample."""
        self._serving = False
        """Whether a `Serve` is on its way."""
        self.error: Exception | None = None
        """The next poll raises it."""

    def start(self, take: Take) -> None:
        """Serve records that `take` takes out of the buffers; start a worker for a handler."""
        self._take = take
        effects, job = self._effects, self._job
        self._polled_us = effects.now
        self._observed_us = effects.true_now
        if job is not None and (job.handler is not None or self._callbacks):
            name = f"{effects.ref.name}/worker"
            callbacks = self._callbacks
            self.worker = effects.spawn(Worker, name, job, callbacks, on_failure="restart")
        effects.after(self._max_interval_us, PollDeadline(), background=True)

    # Polls

    def on_poll(self, poll: Poll) -> None:
        """Note that the user is back, and give it more records."""
        effects = self._effects
        self._source.user_returned()
        self._polled_us = effects.now
        self._end_processing()
        if self._membership.listener is not None:
            self._membership.listener.user_returned()
        self._membership.user_returned()
        self._membership.proceed()
        self._polls += 1
        if self.poll is not None:
            self._answer_poll(())
        limit = self._settings.max_poll_records if poll.max_records is None else poll.max_records
        timer = effects.after(poll.timeout_us, PollOver(self._polls))
        self.poll = WaitingPoll(self._polls, effects.sender, limit, timer)
        self.serve()

    def on_poll_over(self, over: PollOver) -> None:
        """Answer a poll with whatever there is."""
        if self.poll is not None and self.poll.number == over.number:
            nothing = self._membership.holds_back or self.error is not None
            self._answer_poll(() if nothing else self._take(self.poll.max_records))

    def answer_with_notice(self) -> None:
        """Let a waiting poll tell its user about partitions, if there is anything to tell."""
        listener = self._membership.listener
        if listener is not None and self.poll is not None:
            notice = listener.next_notice()
            if notice is not None:
                poll, self.poll = self.poll, None
                poll.timer.cancel()
                self._effects.send(poll.asker, notice)

    def _answer_poll(self, pieces: tuple[Piece, ...]) -> None:
        assert self.poll is not None
        poll, self.poll = self.poll, None
        poll.timer.cancel()
        self._polled_us = self._effects.now
        self.holding = bool(pieces)
        if pieces:
            self._busy_since_us = self._effects.true_now
        error, self.error = self.error, None
        self._effects.send(poll.asker, Polled(pieces) if error is None else PollFailed(error))

    # Serving

    def wants_records(self) -> bool:
        """Whether records that arrive now are handed out at once."""
        return self.poll is not None or (self.runs and not self.batch)

    def serve_soon(self) -> None:
        """Serve at this instant, once everything else that arrives at it has arrived.

        As in Kafka a poll gets the records of all partitions that have some, not only those of
        the leader that answered first.
        """
        if not self._serving and self.wants_records():
            self._serving = True
            self._effects.send(self._effects.ref, SERVE)

    def on_serve(self) -> None:
        """Serve what has arrived."""
        self._serving = False
        self.serve()

    def serve(self) -> None:
        """Hand out records, to a waiting poll or as the next poll batch."""
        self.answer_with_notice()
        if self.batch and self.poll is None:
            return
        if not self._membership.holds_back and self._source.is_ready():
            if self.poll is not None:
                pieces = () if self.error else self._take(self.poll.max_records)
                if pieces or self.error:
                    self._answer_poll(pieces)
            elif self.runs:
                pieces = self._take(self._settings.max_poll_records)
                if pieces:
                    self._batches += 1
                    self.batch = pieces
                    self._polled_us = self._effects.now
                    self._busy_since_us = self._effects.true_now
                    self._begin_work()
        if self.poll is not None:
            self._source.poll_waits()

    def _begin_work(self) -> None:
        effects = self._effects
        if self.worker is not None:
            effects.send(self.worker, Work(self._batches, self.batch))
            return
        assert self._job is not None
        assert self._job.service is not None
        count = 0
        for _, piece, _ in self.batch:
            count += piece.count
        took_us = self._job.service.batch_us(count, effects.numpy_random)
        effects.after(round(took_us * self._pace), WorkDone(self._batches))

    def on_work_done(self, done: WorkDone) -> None:
        """Go on with the next poll batch."""
        if done.poll_batch != self._batches:
            return
        self.batch = ()
        self._end_processing()
        self._source.batch_done()
        self._membership.user_returned()
        self._membership.proceed()
        self.serve()

    def on_work_failed(self, failed: WorkFailed) -> None:
        """Have the poll batch delivered again."""
        if failed.poll_batch == self._batches:
            batch, self.batch = self.batch, ()
            self._end_processing()
            for partition, piece, _ in reversed(batch):
                self._membership.record(
                    kinds.HANDLER_FAILED, partition, base_offset=piece.base_offset,
                    detail=failed.error,
                )  # fmt: skip
            self._source.batch_failed(failed.error)
            self._membership.proceed()
        if failed.raised is not None:
            self._effects.surface(failed.raised)

    def is_busy(self) -> bool:
        """Whether the user is in the middle of records."""
        return self.holding or bool(self.batch)

    def set_pace(self, change: SetServiceFactor) -> None:
        """Change how long work takes, by a factor."""
        self._pace *= change.factor
        if self.worker is not None:
            self._effects.send(self.worker, change)

    # Utilisation

    def _end_processing(self) -> None:
        if self._busy_since_us is not None:
            self._busy_us += self._effects.true_now - self._busy_since_us
            self._busy_since_us = None

    def observe(self) -> None:
        """Record how long the user processed records since the last sample, if one is due."""
        now_us = self._effects.true_now
        if now_us - self._observed_us >= max(now_us // SAMPLES, 1):
            if self._busy_since_us is not None:
                self._busy_us += now_us - self._busy_since_us
                self._busy_since_us = now_us
            self._effects.record(
                kinds.PROCESSING_OBSERVED, group=self._membership.group,
                member=self._membership.member, consumer=self._effects.ref.name,
                count=self._busy_us, total=now_us - self._observed_us,
            )  # fmt: skip
            self._busy_us, self._observed_us = 0, now_us

    # The poll interval

    def joining(self) -> None:
        """Start the poll interval anew."""
        self._polled_us = self._effects.now

    def check_poll_interval(self) -> None:
        """Leave the group if the user has not polled within max.poll.interval.ms.

        One timer is enough: it is set again for the time at which the interval may be over then.
        """
        effects, membership, now_us = self._effects, self._membership, self._effects.now
        if self.wants_records() or not membership.in_group:
            self._polled_us = now_us  # it polls at this moment, or need not poll
        left_us = self._polled_us + self._max_interval_us - now_us
        if left_us <= 0:
            effects.record(
                kinds.STUCK, group=membership.group, member=membership.member,
                consumer=effects.ref.name, epoch=membership.generation,
            )  # fmt: skip
            membership.poll_timed_out(NOT_POLLING)
            left_us = self._max_interval_us
        effects.after(left_us, PollDeadline(), background=True)
