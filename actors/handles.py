"""The producer that a user holds, and the settings of all clients that users create.

A handle stands outside the actors: its methods send messages to the actor behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from ..model.durations import to_us
from ..model.errors import BadValueError
from ..model.messages.client import (
    RecordMetadata,
    Send,
    SendFailed,
    SendMany,
    SetRate,
)
from ..model.numbers import check_factor, is_whole
from ..model.serializers import to_header, to_key
from ..model.settings import (
    ConsumerSettings,
    Loaded,
    ProducerSettings,
    from_mapping,
    read_properties,
)
from ..model.topics import Topic
from .client.payload_client import failed_future, stop_after_uploads, upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykka import Future

    from ..strategies.partitioning import Partitioner
    from .cluster import Cluster
    from .engine.ref import Ref

logger = logging.getLogger("wavetank")

REQUEST_TIMEOUT_S: Final = 120.0
"""How long the outside waits for an answer of the cluster."""

_ANY_RANDOM: Final = Random(0)
"""For checks, where the partition that is drawn does not matter."""

S = TypeVar("S", ProducerSettings, ConsumerSettings)


def load_settings(
    kind: type[S],
    given: Mapping[str, Any] | str | Path | None,
    overrides: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Loaded[S]:
    """Merge settings: `defaults`, then those of a mapping or .properties file, then `overrides`."""
    if given is None:
        written: Mapping[str, Any] = {}
    else:
        written = given if isinstance(given, Mapping) else read_properties(given)
    return from_mapping(kind, defaults or {}, written, overrides)


def topic_names(topics: Sequence[str] | str) -> tuple[str, ...]:
    """Check a list of topics; a text is refused, as it would count as a list of letters."""
    if isinstance(topics, str):
        raise BadValueError(f"topics = {topics!r}: expected a list of names")
    return tuple(dict.fromkeys(topics))


class ProducerHandle:
    """A producer, as `Cluster.producer` returns it."""

    def __init__(
        self, cluster: Cluster, ref: Ref, rule: Partitioner, settings: ProducerSettings
    ) -> None:
        self._cluster = cluster
        self.ref = ref
        self.rule = rule
        self.settings = settings
        self._payload_store: Ref | None = None
        """The payload store, once values have been sent through it."""

    @property
    def name(self) -> str:
        """Name of the producer, and of its node."""
        return self.ref.name

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Mapping[str, Any] | None = None,
        timestamp: float | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record.

        Args:
            topic: Name of the topic.
            value: Any value of the topic's type.
            key: A whole number, text or bytes. Records with the same key go to the same partition,
                if the producer partitions by key.
            partition: Number of the partition; by default the producer's partitioner chooses.
            headers: Names and values to store with the record.
            timestamp: Time of the record in seconds; by default the time of the send.

        Returns:
            A future of its `RecordMetadata`. It raises `TimeoutError` if the record was not stored
            within the delivery timeout or the number of retries, `ProducerFencedError` if
            another producer has taken over the producer id, `BadValueError` if the topic has no
            such partition or was deleted before the record was stored, `PayloadError` if an
            external payload could not be stored, and whatever a partitioner that is a user's
            function raises.

        Raises:
            UnknownNameError: There is no such topic.
            BadValueError: The value is not of the topic's type, the key cannot be hashed, or the
                partition is not one that this producer accepts.
        """
        known = self._check(topic, value, key, partition)
        pairs = tuple((headers or {}).items())
        if known.serializer is not None:
            if known.payloads == "inline":
                known.make_serializer().dumps(value)
            key = to_key(key)
            pairs = tuple((each, to_header(each, data)[1]) for each, data in pairs)
        send = Send(
            topic,
            value,
            key,
            partition,
            pairs,
            None if timestamp is None else to_us(timestamp, "timestamp", negative=True),
            known.id,
        )
        if known.payloads == "inline":
            return self.ref.ask(send, block=False).map(_receipt)
        if self._asks_user(partition):
            # Only here the function can see the value: the producer gets a reference to it.
            try:
                send = attrs.evolve(send, partition=self._choose(known, value, key, None))
            except Exception as error:
                return failed_future(self.ref, error)
        return self._upload(send)

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int,
    ) -> Future[RecordMetadata]:
        """Send many records to one partition, in order: far cheaper than one by one.

        Args:
            topic: Name of the topic.
            values: The values, at least one.
            keys: A key for each value; by default the records have no keys.
            partition: Number of the partition.

        Returns:
            A future of the last record's `RecordMetadata`; it raises the errors that the future of
            `send` raises.

        Raises:
            UnknownNameError: There is no such topic.
            BadValueError: There is no value, the numbers of keys and values differ, a value is not
                of the topic's type, or the partition is not one that this producer accepts.
        """
        if not values:
            raise BadValueError("values = []: expected at least one")
        if keys is not None and len(keys) != len(values):
            raise BadValueError(
                f"keys: got {len(keys)}, expected {len(values)}, one for each value"
            )
        known = self._check(topic, values[0], None, partition)
        known.check_all(values)
        if known.serializer is not None:
            plain = known.serializer == "bytes" and set(map(type, values)) == {bytes}
            if known.payloads == "inline" and not plain:
                dumps = known.make_serializer().dumps
                for value in values:
                    dumps(value)
            keys = None if keys is None else [to_key(key) for key in keys]
        many = SendMany(
            topic, tuple(values), None if keys is None else tuple(keys), partition, known.id
        )
        if known.payloads == "inline":
            return self.ref.ask(many, block=False).map(_receipt)
        return self._upload(many)

    def add_topic(self, name: str, partitions: int = 1, type: type = object) -> None:
        """Create a topic.

        Args:
            name: Name of the topic.
            partitions: Number of partitions.
            type: Class of which all values must be instances.

        Raises:
            BadValueError: The topic exists, or an argument is out of range.
        """
        self._cluster.create_topic(name, partitions, type)

    def remove_topic(self, name: str) -> None:
        """Delete a topic and all its records.

        Raises:
            BadValueError: There is no such topic.
        """
        self._cluster.delete_topic(name)

    def scale(self, factor: float) -> None:
        """Multiply the rate of a producer with a load by `factor`.

        Raises:
            BadValueError: The factor is not a number, or less than zero.
        """
        self.ref.tell(SetRate(check_factor("factor", factor)))

    def close(self) -> None:
        """Stop the producer after it has received all records that were sent through it.

        It does not wait for acknowledgements.
        """
        if self._payload_store is None:
            self.ref.stop()
        else:
            stop_after_uploads(self.ref, self._payload_store)

    def _check(self, name: str, value: Any, key: Any, partition: int | None) -> Topic:
        """Raise the errors that can be found without calling a user's function."""
        topic = self._cluster._known_topic(name)
        topic.check(value)
        if not self._asks_user(partition):
            self._choose(topic, value, key, partition)
        return topic

    def _asks_user(self, partition: int | None) -> bool:
        return partition is None and not isinstance(self.rule.rule, str)

    def _choose(self, topic: Topic, value: Any, key: Any, partition: int | None) -> int:
        # A topic may have grown: the producer, which has newer metadata, checks the upper bound.
        partitions = topic.partitions
        if is_whole(partition):
            partitions = max(partitions, int(partition) + 1)  # type: ignore[arg-type]
        return self.rule.choose(
            key, value, partitions, requested=partition, sticky=0, random=_ANY_RANDOM
        )

    def _upload(self, send: Send | SendMany) -> Future[RecordMetadata]:
        self._payload_store = store = self._cluster._payload_store()
        return upload(self.ref, store, send, self.settings.batch_size)


def _receipt(answer: RecordMetadata | SendFailed) -> RecordMetadata:
    if isinstance(answer, SendFailed):
        raise answer.error
    return answer
