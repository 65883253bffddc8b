"""The worker of a consumer: processes one poll batch at a time in an actor of its own.

A handler may take long, while the consumer must go on sending heartbeats; Kafka's consumer has a
separate thread for that. A service time model says how long processing takes; that time passes on a
timer, in virtual or in real time, and blocks no thread. In a simulation an async handler may sleep
in virtual time.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import attrs

from ...model.callables import require_no_iterator
from ...model.errors import HandlerError
from ...model.log.records import Records
from ...model.messages.client import RebalanceNotice, SetServiceFactor
from ..engine.actor import Actor, receives
from ..engine.effects import KilledError
from ..engine.virtual_loop import CallbackDue, CallbacksReady
from .coroutines import LiveCoroutines, VirtualCoroutines

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...model.log.records import Piece
    from ...strategies.workload import ServiceTime
    from ..engine.ref import Ref
    from .rebalance_listener import RebalanceCallbacks

logger = logging.getLogger("wavetank")

OnHandlerError: TypeAlias = Literal["redeliver", "raise"]
"""What becomes of a handler's exception: the records are delivered again, and with "raise" the
call of the user that waits for the cluster raises it, too."""


@attrs.frozen
class RecordProcessing:
    """How a consumer processes its records."""

    handler: Callable[[Records], Any] | None = None
    """Called with each poll batch; `None` if there is nothing to call."""
    service: ServiceTime | None = None
    """Model of the processing time, which passes before the handler is called; `None`: no time."""
    on_error: OnHandlerError = "redeliver"
    """Whether the outside's waiting call raises the exceptions of the handler."""


@attrs.frozen
class Work:
    """Asks a worker to process a poll batch. Answered by `WorkDone` or `WorkFailed`."""

    poll_batch: int
    """Number of the poll batch."""
    pieces: tuple[Piece, ...]
    """The records, by partition."""


class WorkDone(NamedTuple):
    """A poll batch has been processed."""

    poll_batch: int
    """Number of the poll batch."""


@attrs.frozen
class WorkFailed:
    """The handler raised an exception."""

    poll_batch: int
    """Number of the poll batch."""
    error: str
    """Type and text of the exception."""
    raised: HandlerError | None = None
    """The error for the outside's waiting call, if it is to raise one."""


@attrs.frozen
class NoticeDone:
    """The user has been told about partitions."""

    notice: RebalanceNotice
    """What it was told."""
    error: str | None = None
    """Type and text of the exception that the listener raised."""
    raised: HandlerError | None = None
    """The error for the outside's waiting call, if it is to raise one."""


@attrs.frozen
class ServiceOver:
    """The processing time of a poll batch has passed."""

    work: Work
    """The poll batch."""
    asker: Ref
    """The consumer that waits for it."""


class Worker(Actor):
    """Processes one poll batch at a time."""

    def __init__(self, job: RecordProcessing, callbacks: RebalanceCallbacks | None = None) -> None:
        self.job = job
        self.callbacks = callbacks
        self.busy = False
        """Whether a poll batch is being processed."""
        self.notices: deque[tuple[RebalanceNotice, Ref]] = deque()
        """Notices that came meanwhile: the user is told between two polls."""
        self.pace = 1.0
        """Factor by which processing takes longer than the model says."""
        self.coroutines: LiveCoroutines | VirtualCoroutines | None = None
        """Made for the first handler that returns an awaitable."""

    def stopped(self) -> None:
        self.killed()

    def killed(self) -> None:
        if self.coroutines is not None:
            self.coroutines.end()

    @receives(SetServiceFactor)
    def on_set_pace(self, change: SetServiceFactor) -> None:
        self.pace *= change.factor

    @receives(Work)
    def on_work(self, work: Work) -> None:
        self.busy = True
        if self.job.service is None:
            self.process(work, self.sender)
            return
        count = sum(piece.count for _, piece, _ in work.pieces)
        took_us = round(self.job.service.batch_us(count, self.numpy_random) * self.pace)
        self.after(took_us, ServiceOver(work, self.sender))

    @receives(ServiceOver)
    def on_service_over(self, over: ServiceOver) -> None:
        self.process(over.work, over.asker)

    def process(self, work: Work, asker: Ref) -> None:
        """Call the handler; an async one may end later."""
        handler, done = self.job.handler, partial(self.finish, work, asker)
        if handler is None:
            done(None)
            return
        try:
            result = handler(Records(work.pieces, self.now))
            require_no_iterator(result, handler)
        except (KilledError, KeyboardInterrupt):
            raise
        except BaseException as error:
            # Such as pytest.fail: only a test is meant to see these.
            if not isinstance(error, Exception) and self.job.on_error != "raise":
                raise
            done(error)
            return
        if not inspect.isawaitable(result):
            done(None)
            return
        if self.coroutines is None:
            virtual = self.effects.time_is_virtual
            self.coroutines = VirtualCoroutines(self.effects) if virtual else LiveCoroutines()
        self.coroutines.run(result, done)

    @receives(CallbackDue)
    def on_callback_due(self, due: CallbackDue) -> None:
        assert isinstance(self.coroutines, VirtualCoroutines)
        self.coroutines.loop.on_due(due)
        self.coroutines.proceed()

    @receives(CallbacksReady)
    def on_callbacks_ready(self, ready: CallbacksReady) -> None:
        assert isinstance(self.coroutines, VirtualCoroutines)
        self.coroutines.loop.run_ready()
        self.coroutines.proceed()

    def finish(self, work: Work, asker: Ref, error: BaseException | None) -> None:
        """Tell the consumer how the handler ended."""
        if error is None:
            self.send(asker, WorkDone(work.poll_batch))
        elif isinstance(error, KilledError):
            raise error
        else:
            partition, batch, _ = work.pieces[0]
            where = f" on {partition} from offset {batch.base_offset} on"
            what = f"handler of {asker.name} failed"
            self.send(asker, WorkFailed(work.poll_batch, *self.report(what, error, where)))
        self.busy = False
        while self.notices:
            self.tell(*self.notices.popleft())

    @receives(RebalanceNotice)
    def on_notice(self, notice: RebalanceNotice) -> None:
        if self.busy:
            self.notices.append((notice, self.sender))
        else:
            self.tell(notice, self.sender)

    def tell(self, notice: RebalanceNotice, asker: Ref) -> None:
        """Call the user's listener."""
        assert self.callbacks is not None
        try:
            self.callbacks.call(notice)
        except Exception as error:
            what = f"listener of {asker.name} failed on {notice.kind} partitions"
            self.send(asker, NoticeDone(notice, *self.report(what, error)))
        else:
            self.send(asker, NoticeDone(notice))

    def report(
        self, what: str, error: BaseException, where: str = ""
    ) -> tuple[str, HandlerError | None]:
        """Log an exception of the user's code, or make an error for the outside of it.

        The log leaves out `where`, so that a repeated error can be told from a new one.
        """
        text = f"{type(error).__name__}: {error}"
        if self.job.on_error == "redeliver":
            logger.error("%s", what, exc_info=error)
            return text, None
        raised = HandlerError(f"{what}{where}: {text}")
        raised.__cause__ = error
        # The consumer surfaces it when it has recorded the failure. It may end before that, and
        # the error of a test must not get lost with it.
        self.effects.surface_at_end(raised)
        return text, raised
