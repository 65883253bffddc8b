"""The keeper of values that live apart from their records, and the ways to it from outside.

It is one actor for the whole cluster and owns the store alone: it alone gives out ids, so that
nothing ever takes the place of what is there. A fault of one value (a file that is gone, damaged
or cannot be written) is the answer for that value and no more.

A record is sent once its value is kept: the user's future goes along from the keeper to the
producer without anybody waiting, and a value whose record fails in the end is dropped again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from pykka import ActorDeadError

from ..model import kinds
from ..model.batch import Batch
from ..model.errors import BadValueError, PayloadError
from ..model.exchange import Receipt, Send, SendFailed, SendMany
from ..model.payloads import (
    CountPayloads,
    DirectoryStore,
    DropPayloads,
    Encoded,
    GetPayload,
    MemoryStore,
    Payload,
    PayloadCount,
    PayloadGot,
    PayloadMissing,
    PayloadsPut,
    PayloadsRefused,
    PayloadStore,
    PutPayloads,
    decode,
    encode,
    number_in,
    payload_id,
    verify,
)
from ..model.topics import Topic, TopicPartition, size_of
from ..strategies.batching import cut
from .actor import Actor, receives
from .promise import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pykka import Future

    from ..model.record import Record
    from .handles import ProducerHandle
    from .ref import Item, Ref
    from .system import System

PATIENCE_S: Final = 120.0

Then: TypeAlias = "Callable[[Future[Any], Any, BaseException | None], None]"
"""What to do with the user's future once there is an answer, or an error in its place."""


class Keeper(Actor):
    """Keeps the values of all topics whose payloads are external."""

    def __init__(self, directory: str | Path | None = None) -> None:
        self.store: PayloadStore = MemoryStore() if directory is None else DirectoryStore(directory)
        self.number = max(map(number_in, self.store.ids()), default=0)

    # Keeping

    @receives(PutPayloads)
    def on_put(self, put: PutPayloads) -> None:
        kept: list[Payload | None] = []
        try:
            for value in put.values:
                kept.append(None if value is None else self.keep(put, value))
        except OSError as error:
            self.forget([reference for reference in kept if reference])
            what = f"topic {put.topic!r}: value {len(kept) + 1} of {len(put.values)}"
            self.reply(PayloadsRefused(f"{what} cannot be stored: {_reason(error)}"))
            return
        stored = [reference.size for reference in kept if reference]
        if stored:
            self.record(
                kinds.PAYLOAD_STORED,
                topic=put.topic,
                producer=put.producer,
                count=len(stored),
                bytes=sum(stored),
            )
        self.reply(PayloadsPut(tuple(kept)))

    def keep(self, put: PutPayloads, value: Encoded) -> Payload:
        """Store a value under an id that no other had, in this life of the keeper or before."""
        self.number += 1
        id = payload_id(put.topic, put.producer, self.life, self.number)
        reference = value.reference(id)
        self.store.put(reference.id, value.data)
        return reference

    @receives(DropPayloads)
    def on_drop(self, drop: DropPayloads) -> None:
        by_topic: dict[str, list[int]] = {}
        for reference in self.forget(drop.references):
            by_topic.setdefault(reference.topic, []).append(reference.size)
        for topic, sizes in by_topic.items():
            self.record(kinds.PAYLOAD_REMOVED, topic=topic, count=len(sizes), bytes=sum(sizes))

    def forget(self, references: Iterable[Payload]) -> list[Payload]:
        """Remove values; those that were there."""
        gone = []
        for reference in references:
            try:
                if self.store.remove(reference.id):
                    gone.append(reference)
            except OSError as error:
                self.note(kinds.PAYLOAD_KEPT, reference, f"cannot be removed: {_reason(error)}")
        return gone

    # Giving

    @receives(GetPayload)
    def on_get(self, get: GetPayload) -> None:
        try:
            data = self.look_up(get.reference)
        except PayloadError as error:
            self.note(kinds.PAYLOAD_MISSING, get.reference, str(error))
            self.reply(PayloadMissing(get.reference, str(error)))
        else:
            self.reply(PayloadGot(get.reference, data))

    def look_up(self, reference: Payload) -> bytes:
        try:
            data = self.store.get(reference.id)
        except KeyError:
            raise PayloadError("missing") from None
        except OSError as error:
            raise PayloadError(f"unreadable: {_reason(error)}") from error
        verify(reference, data)
        return data

    @receives(CountPayloads)
    def on_count(self, count: CountPayloads) -> None:
        self.reply(PayloadCount(len(self.store.ids())))

    def note(self, kind: str, reference: Payload, reason: str) -> None:
        """Record trouble, without the id: it depends on what a directory held before the run."""
        self.record(kind, topic=reference.topic, count=1, bytes=reference.size, detail=reason)


def _reason(error: OSError) -> str:
    """Say what is wrong without the path, which is another one in each run."""
    return error.strerror or type(error).__name__


# From outside: fetching


def fetch(keeper: Ref | None, record: Record) -> Any:
    """Get the value of a record, wherever it is."""
    reference = record.value
    if not isinstance(reference, Payload):
        return reference
    try:
        return decode(_fetched(keeper, reference))
    except PayloadError as error:
        where = f"{TopicPartition(record.topic, record.partition)} offset {record.offset}"
        raise PayloadError(f"{where}: value {reference.id!r}: {error}") from error


def _fetched(keeper: Ref | None, reference: Payload) -> bytes:
    if keeper is None:
        raise PayloadError("missing: this cluster keeps no values apart")
    try:
        answer = keeper.ask(GetPayload(reference), timeout=PATIENCE_S)
    except ActorDeadError as error:
        raise PayloadError(f"out of reach: {error}") from error
    if isinstance(answer, PayloadMissing):
        raise PayloadError(answer.reason)
    data: bytes = answer.data
    return data


# From outside: sending


class Errand(Promise):
    """The sender of what the outside asks, when the reply decides what comes next."""

    def __init__(self, then: Then, system: System, future: Future[Any]) -> None:
        super().__init__(system, future)
        self.then = then

    def put(self, item: Item) -> None:
        """Take the reply; whatever comes next is later than it by the outside's clock."""
        self.system.heard(item[3])
        super().put(item)

    def settle(self, value: object, error: BaseException | None) -> bool:
        """Go on with the value or the error, once; whether this was the time."""
        with self.system.lock:
            future, self.future = self.future, None
        if future is None:
            return False
        self.then(future, value, error)
        return True


@attrs.define(eq=False)
class Shipment:
    """Records on their way into the log, batch by batch, with their values kept already.

    Each batch is stored or fails as a whole, so each one is asked for by itself: only the values
    of those that failed are dropped.
    """

    keeper: Ref
    left: int
    """How many batches have not been heard of."""
    receipt: Receipt | None = None
    """The last batch's."""
    error: BaseException | None = None
    """Why the first that failed did."""

    def landed(
        self,
        values: Iterable[object],
        last: bool,
        future: Future[Any],
        answer: Any,
        error: BaseException | None,
    ) -> None:
        """Hear of a batch; after all of them tell the user."""
        if isinstance(answer, SendFailed):
            error = answer.error
        if error is not None:
            self.drop(values)
        with self.keeper.host.system.lock:
            self.left -= 1
            self.error = self.error or error
            if last:
                self.receipt = answer
            if self.left:
                return
        if self.error is None:
            future.set(self.receipt)
        else:
            _fail(future, self.error)

    def drop(self, values: Iterable[object]) -> None:
        try:
            self.keeper.tell(DropPayloads(tuple(v for v in values if isinstance(v, Payload))))
        except ActorDeadError:
            pass  # The system has been stopped, and what it had in its logs is gone.


def ship(producer: ProducerHandle, topic: Topic, send: Send | SendMany) -> Future[Receipt]:
    """Have values kept, then their records sent with references in their place."""
    values = send.values if isinstance(send, SendMany) else (send.value,)
    if any(isinstance(value, Payload) for value in values):
        raise BadValueError(
            f"topic {topic.name!r} keeps values apart: expected a value, not a reference to one"
        )
    put = PutPayloads(producer.name, topic.name, tuple([encode(value) for value in values]))
    chosen = _addressed(producer, topic, send)

    def send_on(future: Future[Any], answer: Any, error: BaseException | None) -> None:
        if isinstance(answer, PayloadsPut):
            _send(producer, topic.keeper, chosen, answer.references, future)
        elif isinstance(answer, PayloadsRefused):
            _fail(future, PayloadError(answer.reason))
        else:
            _fail(future, error or PayloadError(f"unexpected answer {answer!r}"))

    return _ask(topic.keeper, put, send_on)


def stop_after_shipping(producer: Ref, topics: Iterable[Topic]) -> None:
    """Stop a producer once all that it was given has come to it, by way of the keeper."""
    keeper = next((topic.keeper for topic in topics if topic.keeper is not None), None)
    if keeper is None:
        producer.stop()
    else:
        _ask(keeper, PutPayloads(producer.name, "", ()), lambda *heard: producer.stop())


def _addressed(producer: ProducerHandle, topic: Topic, send: Send | SendMany) -> Send | SendMany:
    """Let a user's own function choose the partition now, while it can look at the value."""
    rule = producer.rule.rule
    if isinstance(send, SendMany) or isinstance(rule, str) or send.partition is not None:
        return send
    return attrs.evolve(send, partition=rule(send.key, send.value, topic.partitions))


def _send(
    producer: ProducerHandle,
    keeper: Ref,
    send: Send | SendMany,
    references: tuple[Payload | None, ...],
    future: Future[Any],
) -> None:
    parts = _parts(send, references, producer.settings.batch_size)
    shipment = Shipment(keeper, len(parts))
    for number, (part, values) in enumerate(parts, start=1):
        then = partial(shipment.landed, values, number == len(parts))
        host = producer.ref.host
        try:
            host.ask_for(future, part, partial(Errand, then))
        except ActorDeadError as error:
            then(future, None, error)


def _parts(
    send: Send | SendMany, references: tuple[Payload | None, ...], batch_size: int
) -> list[tuple[Send | SendMany, Iterable[object]]]:
    """Put references in the place of values, and cut as the producer would."""
    if isinstance(send, Send):
        return [(attrs.evolve(send, value=references[0]), references)]
    sizes = [size_of(reference) for reference in references]
    whole = Batch.of("", 0, references, keys=send.keys, timestamps_us=0, sizes=sizes)
    pieces = cut(whole, batch_size)
    return [(attrs.evolve(send, values=p.values, keys=p.keys), p.values) for p in pieces]


def _ask(ref: Ref, message: object, then: Then) -> Future[Any]:
    future = ref.host._create_future()
    ref.host.ask_for(future, message, partial(Errand, then))
    return future


def _fail(future: Future[Any], error: BaseException) -> None:
    future.set_exception((type(error), error, error.__traceback__))
