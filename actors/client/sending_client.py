"""The base of the actors that send batches: producer, load generator and dead-letter producer.

They share the answers of partition leaders and the controller, which go to the sender. They differ
in where their batches come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model.messages.client import (
    Appended,
    AppendFailed,
    CountUnacknowledged,
    NotLeader,
    OutOfOrder,
    ProducerFenced,
    TooFarAhead,
)
from ...model.messages.cluster import ProducerEpoch
from ..engine.actor import receives
from .client import Client
from .sender import BackoffOver, CheckTimeouts, Sender

if TYPE_CHECKING:
    from ...model.settings import ProducerSettings
    from ..engine.ref import Ref
    from .accumulator import RecordAccumulator


class SendingClient(Client):
    """A client with a sender, and with an accumulator if users can send records through it."""

    settings: ProducerSettings
    batch_sender: Sender
    accumulator: RecordAccumulator | None = None

    def started(self) -> None:
        super().started()
        self.batch_sender = Sender(
            self.effects, self.settings, self.cluster, self.controllers, self.request_ids
        )

    # Answers of a leader

    @receives(Appended)
    def on_appended(self, appended: Appended) -> None:
        self.batch_sender.acknowledge(appended)

    @receives(NotLeader)
    def on_not_leader(self, refused: NotLeader) -> None:
        self.batch_sender.fail(refused.request, "not the leader")
        self.cluster.refresh()

    @receives(TooFarAhead)
    def on_too_far_ahead(self, refused: TooFarAhead) -> None:
        self.batch_sender.fail(refused.request, "no offsets reserved")

    @receives(AppendFailed)
    def on_append_failed(self, refused: AppendFailed) -> None:
        self.batch_sender.fail(refused.request, refused.reason)

    @receives(OutOfOrder)
    def on_out_of_order(self, refused: OutOfOrder) -> None:
        self.batch_sender.fail(refused.request, "one before it has not arrived")

    @receives(ProducerFenced)
    def on_producer_fenced(self, refused: ProducerFenced) -> None:
        if self.batch_sender.fence(refused.request):
            if self.accumulator is not None:
                self.accumulator.close_all()
            self.metadata_changed()

    def connection_lost(self, ref: Ref) -> None:
        self.batch_sender.disconnect(ref)

    # Timers

    @receives(BackoffOver)
    def on_retry_now(self, due: BackoffOver) -> None:
        self.batch_sender.retry(due)

    @receives(CheckTimeouts)
    def on_sweep(self, sweep: CheckTimeouts) -> None:
        self.batch_sender.sweep()
        if self.accumulator is not None:
            self.accumulator.expire_unrouted()
        if self.batch_sender.has_batches() or self.has_unrouted():
            self.batch_sender.keep_sweeping()

    # The user

    @receives(CountUnacknowledged)
    def on_count_unacknowledged(self, count: CountUnacknowledged) -> None:
        accumulated = 0 if self.accumulator is None else self.accumulator.count()
        self.reply(accumulated + self.batch_sender.count())

    # Metadata and the epoch

    @receives(ProducerEpoch)
    def on_producer_epoch(self, answer: ProducerEpoch) -> None:
        self.batch_sender.set_epoch(answer)

    def metadata_requested(self) -> None:
        self.batch_sender.request_epoch()

    def metadata_changed(self) -> None:
        self.batch_sender.drop_deleted()
        if self.accumulator is not None:
            self.accumulator.drop_deleted()
            self.accumulator.retry_unrouted()
        self.batch_sender.send_waiting()

    def misses_something(self) -> bool:
        return self.has_unrouted() or self.batch_sender.needs_metadata()

    def has_unrouted(self) -> bool:
        """Whether any record waits for metadata."""
        return self.accumulator is not None and bool(self.accumulator.awaiting_metadata)
