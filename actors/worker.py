"""A running consumer's worker: does the user's work on a lot of records, beside the consumer.

Beside, because a handler may take long, and a consumer must go on beating: as in Kafka, where
heartbeats have a thread of their own. In a simulation work takes the virtual time that a service
time model says.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from ..model.exchange import SetPace
from ..model.records import Records
from .actor import Actor, receives

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model.records import Piece
    from ..strategies.workload import ServiceTime
    from .ref import Ref

logger = logging.getLogger("wavetank")


@attrs.frozen
class Job:
    """What a running consumer does with its records."""

    handler: Callable[[Records], Any] | None = None
    """Called with each lot."""
    service: ServiceTime | None = None
    """How long a lot takes, in a simulation."""


@attrs.frozen
class Work:
    """A lot of records to work on."""

    lot: int
    pieces: tuple[Piece, ...]


class WorkDone(NamedTuple):
    """The work on a lot is done."""

    lot: int


@attrs.frozen
class WorkFailed:
    """The handler raised."""

    lot: int
    error: str


@attrs.frozen
class ServiceOver:
    """The time that a lot takes has passed."""

    work: Work
    asker: Ref


class Worker(Actor):
    """Works on one lot at a time."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pace = 1.0

    @receives(SetPace)
    def on_set_pace(self, change: SetPace) -> None:
        self.pace *= change.factor

    @receives(Work)
    def on_work(self, work: Work) -> None:
        if self.job.service is None:
            self.finish(work, self.sender)
            return
        count = sum(piece.count for _, piece, _ in work.pieces)
        took_us = round(self.job.service.batch_us(count, self.numpy_random) * self.pace)
        self.after(took_us, ServiceOver(work, self.sender))

    @receives(ServiceOver)
    def on_service_over(self, over: ServiceOver) -> None:
        self.finish(over.work, over.asker)

    def finish(self, work: Work, asker: Ref) -> None:
        if self.job.handler is not None:
            try:
                self.job.handler(Records(work.pieces, self.now))
            except Exception as error:
                logger.error("handler of %s failed", self.ref.name, exc_info=error)
                self.send(asker, WorkFailed(work.lot, f"{type(error).__name__}: {error}"))
                return
        self.send(asker, WorkDone(work.lot))
