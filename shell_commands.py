"""The shell's commands for topics, producers and groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from pykka import Timeout

from .actors.client import LookAround
from .actors.cluster import GLANCE
from .model.delivery import DELIVERIES
from .model.errors import BadValueError, WavetankError
from .model.settings import ConsumerSettings, ProducerSettings
from .model.topics import CLEANUPS, TopicPartition
from .shell_language import (
    DURATION,
    FLAG,
    PAIRS,
    TEXT,
    TOPICS,
    TRUTH,
    WHOLE,
    Kind,
    command,
    named,
    one_of,
)
from .shell_session import PATIENT, PATIENT_LIVE, TYPES, Session, count
from .strategies.partitioning import PARTITIONERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykka import Future

    from .actors.groups import Group
    from .actors.handles import ProducerHandle
    from .model.exchange import Receipt
    from .model.membership import GroupView

ANSWER_S: Final = 10.0
"""How long a command waits for a record to be stored; its producer tries on all the same."""

SETTLE_S: Final = 10.0
"""How long a command waits for consumers to take over their partitions."""

ASSIGNORS: Final = one_of("range", "roundrobin", "sticky", "cooperative-sticky")
STARTS: Final = one_of("earliest", "latest", "unconsumed")
TOPIC, GROUP, PRODUCER = named("topic"), named("group"), named("producer")


def settings_of(kind: type) -> dict[str, Kind]:
    return {field.name: TEXT for field in attrs.fields(kind)}


# Topics


@command(
    "create topic NAME",
    "create topic orders partitions=3 type=json",
    partitions=WHOLE,
    type=one_of(*TYPES),
    cleanup=one_of(*CLEANUPS),
    retention=DURATION,
    retention_bytes=WHOLE,
    keep_owed=TRUTH,
)
def create_topic(session: Session, name: str, type: str = "str", **options: Any) -> str:
    """Make a topic, of texts unless told otherwise."""
    session.new_name("topic", name)
    topic = session.cluster.create_topic(name, type=TYPES[type], **options)
    session.topics[name] = type
    return f"topic {name} has {count(topic.partitions, 'partition')}"


@command("add partitions TOPIC N", "add partitions orders 6", takes={"TOPIC": TOPIC, "N": WHOLE})
def add_partitions(session: Session, topic: str, partitions: int) -> str:
    """Raise the number of a topic's partitions to N."""
    session.cluster.add_partitions(session.topic(topic), partitions)
    _tell_producers(session, topic)
    return f"topic {topic} has {count(partitions, 'partition')}"


@command("delete topic TOPIC", "delete topic orders", takes={"TOPIC": TOPIC})
def delete_topic(session: Session, topic: str) -> str:
    """Remove a topic and all its records."""
    session.cluster.delete_topic(session.topic(topic))
    del session.topics[topic]
    for hands in session.consumers.values():
        hands.drop_topic(topic)
    _tell_producers(session, topic)
    return f"topic {topic} is gone"


def _tell_producers(session: Session, topic: str) -> None:
    """Let producers see that a topic has changed, which by themselves they do in five minutes."""
    for producer in session.producers.values():
        producer._topics.pop(topic, None)
        if producer.ref.is_alive():
            producer.ref.tell(LookAround())
    session.cluster.run(GLANCE)


# Producing


@command(
    "create producer NAME",
    "create producer shop partitioner=random",
    partitioner=one_of(*PARTITIONERS),
    hidden=settings_of(ProducerSettings),
)
def create_producer(session: Session, name: str, partitioner: str = "key", **settings: Any) -> str:
    """Make a producer; how it allocates records to partitions is fixed from here on."""
    session.new_name("producer", name)
    session.producers[name] = session.cluster.producer(name, partitioner, **settings)
    return f"producer {name} allocates by {partitioner}"


@command(
    "produce PRODUCER TOPIC VALUE",
    "produce shop orders 'two books' key=alice",
    takes={"PRODUCER": PRODUCER, "TOPIC": TOPIC},
    key=TEXT,
    partition=WHOLE,
    headers=PAIRS,
)
def produce(session: Session, producer: str, topic: str, value: str, **options: Any) -> str:
    """Send a record and wait until it is stored."""
    future = _send(session, producer, topic, value, **options)
    return f"stored at {_stored(producer, future)}"


@command(
    "produce from FILE PRODUCER TOPIC",
    "produce from events.txt shop orders",
    takes={"PRODUCER": PRODUCER, "TOPIC": TOPIC},
    partition=WHOLE,
)
def produce_from(session: Session, file: str, producer: str, topic: str, **options: Any) -> str:
    """Send each line of a file as a record."""
    session.producer(producer)
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            session.value(topic, line)
        except BadValueError as error:
            raise BadValueError(f"{file}, line {number}: {error}") from None
    futures = [_send(session, producer, topic, line, **options) for line in lines]
    for future in futures:
        _stored(producer, future)
    return f"stored {count(len(futures), 'record')} in {topic}"


@command(
    "parallel produce",
    "parallel produce (p1, orders, tea), (p2, orders, milk, key=bob)",
    grouped=True,
)
def parallel_produce(session: Session, groups: list[list[str]]) -> str:
    """Let several producers send at the same time: (PRODUCER, TOPIC, VALUE), (…), …"""
    sends = []
    for parts in groups:
        if len(parts) < 3:
            raise BadValueError(f"({', '.join(parts)}): expected (PRODUCER, TOPIC, VALUE)")
        session.producer(parts[0])
        session.value(parts[1], parts[2])
        sends.append((parts[:3], _options(parts[3:])))
    futures = [(words[0], _send(session, *words, **options)) for words, options in sends]
    return "\n".join(f"{name}: stored at {_stored(name, future)}" for name, future in futures)


def _options(parts: Sequence[str]) -> dict[str, Any]:
    """What follows the value in a pair of parentheses."""
    kinds = {"key": TEXT, "partition": WHOLE}
    options = {}
    for part in parts:
        name, equals, text = part.partition("=")
        if name not in kinds or not equals:
            raise BadValueError(f"{part!r}: expected key=… or partition=…")
        options[name] = kinds[name].read(name, text)
    return options


def _send(
    session: Session, producer: str, topic: str, value: str, **options: Any
) -> Future[Receipt]:
    handle: ProducerHandle = session.producer(producer)
    if options.get("partition") is not None:
        session.partition_of(topic, options["partition"])
    return handle.send(topic, session.value(topic, value), **options)


def _stored(producer: str, future: Future[Receipt]) -> str:
    try:
        receipt = future.get(timeout=ANSWER_S)
    except Timeout:
        raise WavetankError(
            f"not stored within {ANSWER_S:g} s; {producer} goes on trying"
        ) from None
    where = TopicPartition(receipt.topic, receipt.partition)
    return f"{where}@{receipt.offset}" if receipt.offset >= 0 else str(where)


# Groups


@command(
    "create group NAME",
    "create group billing topics=orders,refunds assignor=range",
    needs=("topics",),
    topics=TOPICS,
    delivery=one_of(*DELIVERIES),
    assignor=ASSIGNORS,
    start=STARTS,
    acks=FLAG,
    dead_letter_topic=TEXT,
    hidden=settings_of(ConsumerSettings),
)
def create_group(session: Session, name: str, topics: Sequence[str], **options: Any) -> str:
    """Make a consumer group for topics; with acks, or another delivery than
    exclusive, its consumers acknowledge record by record."""
    session.new_name("group", name)
    for topic in topics:
        session.topic(topic)
    ours = PATIENT if session.simulated else PATIENT_LIVE
    group = session.cluster.group(name, topics, **ours | options)
    if group.settings.dead_letter_topic is not None:
        session.topics.setdefault(group.settings.dead_letter_topic, "str")
    return f"group {name} consumes {', '.join(group.topics)}"


@command(
    "rebalance GROUP ASSIGNOR",
    "rebalance billing roundrobin",
    takes={"GROUP": GROUP, "ASSIGNOR": ASSIGNORS},
)
def rebalance(session: Session, group: str, assignor: str) -> str:
    """Change how a group's partitions are divided among its consumers."""
    session.group(group)
    session.require_coordinator(group)
    session.group(group).set_assignor(assignor)
    return settle(session, session.group(group))


def settle(session: Session, group: Group, after: int = -1) -> str:
    """Wait until a group has rebalanced, unless that may take long; who has what by then.

    `after` is a generation that it has to leave behind.
    """
    members = [hands for hands in session.consumers.values() if hands.handle.group is group]
    busy = [hands.handle.name for hands in members if hands.busy and hands.handle.takes_part()]
    if busy:
        return f"{group.name} rebalances once {' and '.join(busy)} has consumed again or committed"
    if session.down():
        return f"{group.name} rebalances; {session.hint()}"
    shares: dict[str, list[TopicPartition]] = {}

    def is_settled() -> bool:
        view = group.describe()
        shares.clear()
        shares.update(shares_of(view))
        over = view.generation > after and view.state in ("Stable", "Empty")
        return over and _have_taken_over(group, shares)

    try:
        session.cluster.run_until(is_settled, SETTLE_S)
    except Timeout:
        return f"{group.name} still rebalances"
    verb = "owns" if group.delivery == "exclusive" else "shares"
    return "\n".join(
        f"{name} {verb} {', '.join(map(str, share)) or 'nothing'}"
        for name, share in sorted(shares.items())
    )


def _have_taken_over(group: Group, shares: Mapping[str, Sequence[TopicPartition]]) -> bool:
    """Whether all that should be in a group are, and know by now what is theirs."""
    present = {name: each for name, each in group.consumers.items() if each.takes_part()}
    return set(present) == set(shares) and all(
        set(shares[name]) <= set(each.positions()) for name, each in present.items()
    )


def shares_of(view: GroupView) -> dict[str, list[TopicPartition]]:
    """What each consumer has; one in its second life has a number behind its name as a member."""
    return {member.split("#")[0]: sorted(share) for member, share in view.members.items()}
