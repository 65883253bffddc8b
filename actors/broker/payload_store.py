"""The actor that stores the values of topics with external payloads.

There is one for the whole cluster. It alone creates ids, so no value ever overwrites another. A
fault of one value, such as a file that is missing, damaged or not writable, is the answer to the
request for that value and affects no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model.errors import PayloadError
from ...model.events import kinds
from ...model.payloads import (
    CountPayloads,
    DirectoryStore,
    DropPayloads,
    Encoded,
    GetPayload,
    MemoryStore,
    Payload,
    PayloadBackend,
    PayloadCount,
    PayloadGot,
    PayloadMissing,
    PayloadsPut,
    PayloadsRefused,
    PutPayloads,
    number_in,
    payload_id,
    verify,
)
from ..engine.actor import Actor, receives

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class PayloadStore(Actor):
    """Stores values in memory, or in a directory."""

    def __init__(self, directory: str | Path | None = None) -> None:
        self.store: PayloadBackend = (
            MemoryStore() if directory is None else DirectoryStore(directory)
        )
        self.last_number = max(map(number_in, self.store.ids()), default=0)

    @receives(PutPayloads)
    def on_put(self, put: PutPayloads) -> None:
        """Store all values of a request, or none if one of them cannot be stored."""
        references: list[Payload | None] = []
        try:
            for value in put.values:
                references.append(None if value is None else self.put_value(put, value))
        except OSError as error:
            self.remove([reference for reference in references if reference])
            what = f"topic {put.topic!r}: value {len(references) + 1} of {len(put.values)}"
            self.reply(PayloadsRefused(f"{what} cannot be stored: {_reason(error)}"))
            return
        sizes = [reference.size for reference in references if reference]
        if sizes:
            self.record(
                kinds.PAYLOAD_STORED,
                topic=put.topic,
                producer=put.producer,
                count=len(sizes),
                bytes=sum(sizes),
            )
        self.reply(PayloadsPut(tuple(references)))

    def put_value(self, put: PutPayloads, value: Encoded) -> Payload:
        """Store a value under a new id, which no value had in this life or an earlier one."""
        self.last_number += 1
        id = payload_id(put.topic, put.producer, self.life, self.last_number)
        reference = value.reference(id)
        self.store.put(reference.id, value.data)
        return reference

    @receives(GetPayload)
    def on_get(self, get: GetPayload) -> None:
        try:
            data = self.get_value(get.reference)
        except PayloadError as error:
            self.record_problem(kinds.PAYLOAD_MISSING, get.reference, str(error))
            self.reply(PayloadMissing(get.reference, str(error)))
        else:
            self.reply(PayloadGot(get.reference, data))

    def get_value(self, reference: Payload) -> bytes:
        try:
            data = self.store.get(reference.id)
        except KeyError:
            raise PayloadError("missing") from None
        except OSError as error:
            raise PayloadError(f"unreadable: {_reason(error)}") from error
        verify(reference, data)
        return data

    @receives(DropPayloads)
    def on_drop(self, drop: DropPayloads) -> None:
        by_topic: dict[str, list[int]] = {}
        for reference in self.remove(drop.references):
            by_topic.setdefault(reference.topic, []).append(reference.size)
        for topic, sizes in by_topic.items():
            self.record(kinds.PAYLOAD_REMOVED, topic=topic, count=len(sizes), bytes=sum(sizes))

    def remove(self, references: Iterable[Payload]) -> list[Payload]:
        """Remove values; return the references of those that existed."""
        removed = []
        for reference in references:
            try:
                if self.store.remove(reference.id):
                    removed.append(reference)
            except OSError as error:
                reason = f"cannot be removed: {_reason(error)}"
                self.record_problem(kinds.PAYLOAD_KEPT, reference, reason)
        return removed

    @receives(CountPayloads)
    def on_count(self, count: CountPayloads) -> None:
        self.reply(PayloadCount(len(self.store.ids())))

    def record_problem(self, kind: str, reference: Payload, reason: str) -> None:
        """Record a problem, without the id: it depends on the directory's content before the run.

        One seed must give one digest, whatever earlier runs have stored.
        """
        self.record(kind, topic=reference.topic, count=1, bytes=reference.size, detail=reason)


def _reason(error: OSError) -> str:
    """Describe an error without the path, which differs from run to run."""
    return error.strerror or type(error).__name__
