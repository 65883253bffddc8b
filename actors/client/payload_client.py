"""How users store and fetch values that a topic keeps outside its log.

Values are stored before their records are sent, so that a record in the log always has its value.
No thread waits in between: the user's future is passed from the payload store to the producer.

If the records are refused, their values are removed again. If they are given up, the values stay: a
broker may have stored the records, although nobody has heard of it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from pykka import ActorDeadError

from ...model.errors import BadValueError, PayloadError
from ...model.log.batch import Batch
from ...model.messages.client import RecordMetadata, Send, SendFailed, SendMany
from ...model.payloads import (
    DropPayloads,
    GetPayload,
    Payload,
    PayloadMissing,
    PayloadsPut,
    PayloadsRefused,
    PutPayloads,
    decode,
    encode,
)
from ...model.topics import TopicPartition, size_of
from ...strategies.batching import cut
from ..engine.promise import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykka import Future

    from ...model.log.record import Record
    from ..engine.ref import Item, Ref
    from ..engine.system import System

REQUEST_TIMEOUT_S: Final = 120.0

OnReply: TypeAlias = "Callable[[Future[Any], Any, BaseException | None], None]"
"""Receives the user's future, and the reply of an actor or an error in its place."""


def fetch_payload(store: Ref | None, record: Record) -> Any:
    """Return the value of a record, from the payload store if the record has only a reference.

    Raises:
        PayloadError: The value is missing, damaged or out of reach.
    """
    reference = record.value
    if not isinstance(reference, Payload):
        return reference
    try:
        return decode(_fetch(store, reference))
    except PayloadError as error:
        where = f"{TopicPartition(record.topic, record.partition)} offset {record.offset}"
        raise PayloadError(f"{where}: value {reference.id!r}: {error}") from error


def upload(
    producer: Ref, store: Ref, send: Send | SendMany, batch_size: int
) -> Future[RecordMetadata]:
    """Store the values of a send, then send its records with references in their place.

    Raises:
        BadValueError: A value is a reference already, or cannot be pickled.
    """
    values = send.values if isinstance(send, SendMany) else (send.value,)
    if any(isinstance(value, Payload) for value in values):
        raise BadValueError(
            f"topic {send.topic!r} has external payloads: expected a value, not a reference to one"
        )
    put = PutPayloads(producer.name, send.topic, tuple([encode(value) for value in values]))
    return _ask(store, put, PendingUpload(producer, store, send, batch_size).values_stored)


def stop_after_uploads(producer: Ref, store: Ref) -> None:
    """Stop a producer after all its uploads have reached it.

    The payload store answers in order, so an empty request comes back after all others.
    """
    _ask(store, PutPayloads(producer.name, "", ()), lambda *reply: producer.stop())


def failed_future(ref: Ref, error: BaseException) -> Future[Any]:
    """Return a future of the engine of an actor that raises an error."""
    future = ref.host._create_future()
    _fail(future, error)
    return future


@attrs.define(eq=False)
class PendingUpload:
    """A send between the storing of its values and the outcome of its records.

    Each batch of records is stored or fails as a whole, so the producer is asked for each batch
    separately, and only the values of refused batches are removed.
    """

    producer: Ref
    store: Ref
    send: Send | SendMany
    batch_size: int
    batches_left: int = 0
    """Number of batches without an outcome."""
    receipt: RecordMetadata | None = None
    """RecordMetadata of the last batch."""
    error: BaseException | None = None
    """Error of the first batch that failed."""

    def values_stored(self, future: Future[Any], reply: Any, error: BaseException | None) -> None:
        """Send the records, or fail the user's future if the values could not be stored."""
        if isinstance(reply, PayloadsPut):
            self._send_records(reply.references, future)
        elif isinstance(reply, PayloadsRefused):
            _fail(future, PayloadError(reply.reason))
        else:
            _fail(future, error or PayloadError(f"unexpected answer {reply!r}"))

    def _send_records(self, references: tuple[Payload | None, ...], future: Future[Any]) -> None:
        batches = self._batches(references)
        self.batches_left = len(batches)
        if not self.producer.is_alive():
            self._remove(references)
        for number, (batch, values) in enumerate(batches, start=1):
            on_reply = partial(self._batch_done, values, number == len(batches))
            try:
                self.producer.host.ask_for(future, batch, partial(CallbackPromise, on_reply))
            except ActorDeadError as error:
                on_reply(future, None, error)

    def _batches(
        self, references: tuple[Payload | None, ...]
    ) -> list[tuple[Send | SendMany, Iterable[object]]]:
        """Replace values by references, and cut the send into batches as the producer would."""
        send = self.send
        if isinstance(send, Send):
            return [(attrs.evolve(send, value=references[0]), references)]
        sizes = [size_of(reference) for reference in references]
        whole = Batch.of("", 0, references, keys=send.keys, timestamps_us=0, sizes=sizes)
        pieces = cut(whole, self.batch_size)
        return [(attrs.evolve(send, values=p.values, keys=p.keys), p.values) for p in pieces]

    def _batch_done(
        self,
        values: Iterable[object],
        last: bool,
        future: Future[Any],
        reply: Any,
        error: BaseException | None,
    ) -> None:
        """Note the outcome of a batch; after all of them, settle the user's future."""
        if isinstance(reply, SendFailed):
            error = reply.error
        if isinstance(error, BadValueError):
            self._remove(values)
        with self.store.host.system.lock:
            self.batches_left -= 1
            self.error = self.error or error
            if last:
                self.receipt = reply
            if self.batches_left:
                return
        if self.error is None:
            future.set(self.receipt)
        else:
            _fail(future, self.error)

    def _remove(self, values: Iterable[object]) -> None:
        try:
            self.store.tell(DropPayloads(tuple(v for v in values if isinstance(v, Payload))))
        except ActorDeadError:
            pass  # The system has stopped, and the logs have ended with it.


class CallbackPromise(Promise):
    """The sender of a request from outside whose reply goes to a callback."""

    def __init__(self, on_reply: OnReply, system: System, future: Future[Any]) -> None:
        super().__init__(system, future)
        self.on_reply = on_reply

    def put(self, item: Item) -> None:
        """Take the reply, after advancing the outside's clock: the callback may send messages."""
        self.system.heard(item[3])
        super().put(item)

    def settle(self, value: object, error: BaseException | None) -> bool:
        """Call the callback with the value or the error; return whether this was the first."""
        with self.system.lock:
            future, self.future = self.future, None
        if future is None:
            return False
        self.on_reply(future, value, error)
        return True


def _fetch(store: Ref | None, reference: Payload) -> bytes:
    if store is None:
        raise PayloadError("missing: this cluster has no payload store")
    try:
        answer = store.ask(GetPayload(reference), timeout=REQUEST_TIMEOUT_S)
    except ActorDeadError as error:
        raise PayloadError(f"out of reach: {error}") from error
    if isinstance(answer, PayloadMissing):
        raise PayloadError(answer.reason)
    data: bytes = answer.data
    return data


def _ask(ref: Ref, message: object, on_reply: OnReply) -> Future[Any]:
    future = ref.host._create_future()
    ref.host.ask_for(future, message, partial(CallbackPromise, on_reply))
    return future


def _fail(future: Future[Any], error: BaseException) -> None:
    future.set_exception((type(error), error, error.__traceback__))
