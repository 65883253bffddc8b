"""What a user holds: a producer, a group, a consumer. Each speaks for the actor behind it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from ..model.durations import to_us
from ..model.errors import BadValueError, UnknownNameError
from ..model.exchange import (
    Receipt,
    Send,
    SendFailed,
    SendMany,
    SetRate,
)
from ..model.settings import ConsumerSettings, ProducerSettings, from_mapping, read_properties
from ..model.topics import Topic
from .keeper import ship, stop_after_shipping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykka import Future

    from ..strategies.partitioning import Partitioner
    from .cluster import Cluster
    from .ref import Ref

logger = logging.getLogger("wavetank")

PATIENCE_S = 120.0

S = TypeVar("S", ProducerSettings, ConsumerSettings)


def load_settings(
    kind: type[S],
    given: Mapping[str, Any] | str | Path | None,
    overrides: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> S:
    """Put settings together: our defaults, then a file's or a mapping's, then what was added."""
    if given is None:
        written: Mapping[str, Any] = {}
    else:
        written = given if isinstance(given, Mapping) else read_properties(given)
    loaded = from_mapping(kind, defaults or {}, written, overrides)
    if loaded.ignored:
        logger.info("settings that mean nothing here: %s", ", ".join(loaded.ignored))
    return loaded.settings


def topic_names(topics: Sequence[str] | str) -> tuple[str, ...]:
    """Check a list of topics; a single text is more likely a mistake than five topics."""
    if isinstance(topics, str):
        raise BadValueError(f"topics = {topics!r}: expected a list of names")
    return tuple(dict.fromkeys(topics))


class ProducerHandle:
    """A producer."""

    def __init__(
        self, cluster: Cluster, ref: Ref, rule: Partitioner, settings: ProducerSettings
    ) -> None:
        self._cluster = cluster
        self.ref = ref
        self.rule = rule
        self.settings = settings
        self._topics: dict[str, Topic] = {}

    @property
    def name(self) -> str:
        """What it is called."""
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
    ) -> Future[Receipt]:
        """Send a record; the future gives its `Receipt`, or raises why it was not stored.

        What can be seen to be wrong at once, such as a value of another type than the topic's, is
        raised here. `timestamp` is in seconds, now unless given.
        """
        known = self._check(topic, value, key, partition)
        send = Send(
            topic,
            value,
            key,
            partition,
            tuple((headers or {}).items()),
            None if timestamp is None else to_us(timestamp, "timestamp", negative=True),
        )
        if known.keeper is not None:
            return ship(self, known, send)
        return self.ref.ask(send, block=False).map(_receipt)

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int,
    ) -> Future[Receipt]:
        """Send many values to one partition at once: far cheaper than one by one.

        They keep their order. The future gives the receipt of the last one.
        """
        if not values:
            raise BadValueError("values = []: expected at least one")
        if keys is not None and len(keys) != len(values):
            raise BadValueError(
                f"keys: got {len(keys)}, expected {len(values)}, one for each value"
            )
        known = self._check(topic, values[0], None, partition)
        if known.type is not object:
            for value in values:
                known.check(value)
        many = SendMany(topic, tuple(values), None if keys is None else tuple(keys), partition)
        if known.keeper is not None:
            return ship(self, known, many)
        return self.ref.ask(many, block=False).map(_receipt)

    def _check(self, name: str, value: Any, key: Any, partition: int | None) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            topics = self._cluster.metadata().topics
            if name not in topics:
                raise UnknownNameError("topic", name, topics)
            topic = self._topics[name] = topics[name]
        topic.check(value)
        partitions = topic.partitions if partition is None else max(topic.partitions, partition + 1)
        self.rule.choose(key, value, partitions, requested=partition, sticky=0, random=Random(0))
        return topic

    def add_topic(self, name: str, partitions: int = 1, type: type = object) -> None:
        """Make a topic."""
        self._cluster.create_topic(name, partitions, type)

    def remove_topic(self, name: str) -> None:
        """Remove a topic."""
        self._topics.pop(name, None)
        self._cluster.delete_topic(name)

    def scale(self, factor: float) -> None:
        """Change a running producer's rate by a factor."""
        self.ref.tell(SetRate(factor))

    def close(self) -> None:
        """Stop it once it has taken in what it was given."""
        stop_after_shipping(self.ref, self._topics.values())


def _receipt(answer: Receipt | SendFailed) -> Receipt:
    if isinstance(answer, SendFailed):
        raise answer.error
    return answer
