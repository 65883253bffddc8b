"""Shell commands that create producers and send records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pykka import Timeout

from ....model.errors import BadValueError, WavetankError
from ....model.settings import ProducerSettings
from ....model.topics import TopicPartition
from ....strategies.partitioning import PARTITIONERS
from ..command_table import PAIRS, PARTITION, PRODUCER, TEXT, TOPIC, command, one_of
from ..format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykka import Future

    from ....model.messages.client import RecordMetadata
    from ..session import ShellSession

_STORE_TIMEOUT_S: Final = 10.0
"""How long a command waits until a record is stored; the producer keeps retrying after that."""


@command(
    "create producer NAME",
    "create producer shop partitioner=random",
    settings=ProducerSettings,
    partitioner=one_of(*PARTITIONERS),
)
def create_producer(
    session: ShellSession, name: str, partitioner: str = "key", **settings: Any
) -> str:
    """Create a producer. Its partitioner cannot be changed later."""
    session.check_new_name("producer", name)
    session.producers[name] = session.cluster.producer(name, partitioner, **settings)
    return f"producer {name} has partitioner {partitioner}"


@command(
    "produce PRODUCER TOPIC VALUE",
    "produce shop orders 'two books' key=alice",
    types={"PRODUCER": PRODUCER, "TOPIC": TOPIC},
    key=TEXT,
    partition=PARTITION,
    headers=PAIRS,
)
def produce(session: ShellSession, producer: str, topic: str, value: str, **options: Any) -> str:
    """Send a record and wait until it is stored. The partition is TOPIC-NUMBER, or the number."""
    future = _send(session, producer, topic, value, **options)
    return f"stored at {_wait(producer, future)}"


@command(
    "produce from FILE PRODUCER TOPIC",
    "produce from events.txt shop orders",
    types={"PRODUCER": PRODUCER, "TOPIC": TOPIC},
    partition=PARTITION,
)
def produce_from(
    session: ShellSession, file: str, producer: str, topic: str, **options: Any
) -> str:
    """Send each line of a file as a record."""
    session.producer(producer)
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            session.parse_value(topic, line)
        except BadValueError as error:
            raise BadValueError(f"{file}, line {number}: {error}") from None
    futures = [_send(session, producer, topic, line, **options) for line in lines]
    for future in futures:
        _wait(producer, future)
    return f"stored {format_count(len(futures), 'record')} in {topic}"


@command(
    "parallel produce",
    "parallel produce (p1, orders, tea), (p2, orders, milk, key=bob)",
    tuple_types=(PRODUCER, TOPIC),
)
def parallel_produce(session: ShellSession, tuples: list[list[str]]) -> str:
    """Send records of several producers at the same time. Takes (PRODUCER, TOPIC, VALUE), (…), …
    A tuple may end with key=… and partition=…"""
    sends = []
    for parts in tuples:
        if len(parts) < 3:
            raise BadValueError(f"({', '.join(parts)}): expected (PRODUCER, TOPIC, VALUE)")
        session.producer(parts[0])
        session.parse_value(parts[1], parts[2])
        sends.append((parts[:3], _parse_options(parts[3:])))
    futures = [(words[0], _send(session, *words, **options)) for words, options in sends]
    return "\n".join(f"{name}: stored at {_wait(name, future)}" for name, future in futures)


def _parse_options(parts: Sequence[str]) -> dict[str, Any]:
    types = {"key": TEXT, "partition": PARTITION}
    options = {}
    for part in parts:
        name, equals, text = part.partition("=")
        if name not in types or not equals:
            raise BadValueError(f"{part!r}: expected key=… or partition=…")
        options[name] = types[name].parse(name, text)
    return options


def _send(
    session: ShellSession, producer: str, topic: str, value: str, **options: Any
) -> Future[RecordMetadata]:
    handle = session.producer(producer)
    if "partition" in options:
        options["partition"] = session.partition_of(topic, options["partition"]).partition
    return handle.send(topic, session.parse_value(topic, value), **options)


def _wait(producer: str, future: Future[RecordMetadata]) -> str:
    """Wait until a record is stored; return its position."""
    try:
        metadata = future.get(timeout=_STORE_TIMEOUT_S)
    except Timeout:
        raise WavetankError(
            f"not stored within {_STORE_TIMEOUT_S:g} s; {producer} keeps retrying"
        ) from None
    except TimeoutError as error:  # the producer has given the record up
        raise WavetankError(str(error)) from None
    partition = TopicPartition(metadata.topic, metadata.partition)
    return f"{partition}@{metadata.offset}" if metadata.offset >= 0 else str(partition)
