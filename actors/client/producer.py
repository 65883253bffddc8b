"""The producer that users call: an accumulator that makes batches, and a sender that sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model.messages.client import Send, SendMany
from ..engine.actor import receives
from .accumulator import LingerOver, RecordAccumulator
from .sending_client import SendingClient

if TYPE_CHECKING:
    from ...model.settings import ProducerSettings
    from ...strategies.partitioning import Partitioner
    from ..engine.ref import Ref


class Producer(SendingClient):
    """Sends the records it is given."""

    accumulator: RecordAccumulator

    def __init__(
        self, controllers: tuple[Ref, ...], settings: ProducerSettings, partitioner: Partitioner
    ) -> None:
        super().__init__(controllers, settings)
        self.partitioner = partitioner

    def started(self) -> None:
        super().started()
        self.accumulator = RecordAccumulator(
            self.effects, self.settings, self.partitioner, self.cluster, self.batch_sender
        )
        self.cluster.start()

    @receives(Send)
    def on_send(self, send: Send) -> None:
        self.accumulator.append(send, self.sender)

    @receives(SendMany)
    def on_send_many(self, send: SendMany) -> None:
        self.accumulator.append(send, self.sender)

    @receives(LingerOver)
    def on_linger_over(self, over: LingerOver) -> None:
        self.accumulator.end_linger(over)
