"""What a shell holds: a cluster, and by their names the topics, producers and consumers in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from .actors.cluster import Cluster
from .model.errors import BadValueError, UnknownNameError
from .model.topics import TopicPartition
from .shell_language import reserved

if TYPE_CHECKING:
    from .actors.groups import ConsumerHandle, Group
    from .actors.handles import ProducerHandle
    from .actors.node import Node
    from .model.record import Record

TYPES: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "json": object}

PATIENT: Final = {"max_poll_interval_ms": 2**31 - 1}
"""Settings of groups in a shell: who does not consume for a while is not stuck, but thinks."""

PATIENT_LIVE: Final = PATIENT | {"ack_timeout_ms": 600_000, "heartbeat_interval_ms": 300}
"""The same in real time, where a person needs longer to acknowledge than a program, and does not
want to wait for the next heartbeat of each consumer whenever one comes or goes."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_REMEDIES: Final = {"crashed": "restart node", "paused": "resume node"}


@attrs.define(eq=False)
class Hands:
    """A consumer, and what it has in hand."""

    handle: ConsumerHandle
    last: list[str] = attrs.Factory(list)
    """Where the records are from that it consumed last."""
    unsettled: dict[str, Record] = attrs.Factory(dict)
    """What it has to acknowledge, by where it is from."""
    paused: set[TopicPartition] = attrs.Factory(set)
    busy: bool = False
    """Whether its group takes it to be in the middle of records: it rebalances only after."""

    def drop(self) -> None:
        """Have nothing in hand."""
        self.last, self.unsettled, self.busy = [], {}, False

    def drop_topic(self, topic: str) -> None:
        """Have nothing of a topic in hand: it is gone, and nobody would hear of its records."""
        self.unsettled = {
            where: record for where, record in self.unsettled.items() if record.topic != topic
        }


class Session:
    """A cluster under the hands of a person."""

    def __init__(self, brokers: int = 1, *, simulated: bool = False, seed: int = 0) -> None:
        engine = Cluster.simulated if simulated else Cluster.live
        self.cluster = engine(seed, brokers=brokers)
        self.simulated = simulated
        self.topics: dict[str, str] = {}
        """What the values of each topic are: one of TYPES."""
        self.producers: dict[str, ProducerHandle] = {}
        self.consumers: dict[str, Hands] = {}
        self.over = False
        self.interrupted = False

    def names(self, what: str) -> list[str]:
        """The names there are of topics, groups, consumers, producers or nodes."""
        known: dict[str, Any] = {
            "topic": self.topics,
            "group": self.cluster.groups,
            "consumer": self.consumers,
            "producer": self.producers,
            "node": self.cluster.system.nodes,
        }
        return sorted(known.get(what, ()))

    # Looking things up

    def topic(self, name: str) -> str:
        """Check that there is such a topic."""
        if name not in self.topics:
            raise UnknownNameError("topic", name, self.topics)
        return name

    def partition(self, text: str) -> TopicPartition:
        """Read "orders-0"."""
        topic, _, number = text.rpartition("-")
        if not topic or not number.isdigit():
            raise BadValueError(f"partition = {text!r}: expected one such as orders-0")
        return self.partition_of(topic, int(number))

    def partition_of(self, topic: str, number: int) -> TopicPartition:
        """Check that a topic has such a partition."""
        there = self.cluster.metadata().partitions(self.topic(topic))
        if number >= there:
            raise BadValueError(f"partition = {number}: expected 0 to {there - 1} of {topic}")
        return TopicPartition(topic, number)

    def group(self, name: str) -> Group:
        """The group of this name."""
        if name not in self.cluster.groups:
            raise UnknownNameError("group", name, self.cluster.groups)
        return self.cluster.groups[name]

    def producer(self, name: str) -> ProducerHandle:
        """The producer of this name, if it runs."""
        if name not in self.producers:
            raise UnknownNameError("producer", name, self.producers)
        self._require_up(self.cluster.system.nodes[name])
        return self.producers[name]

    def consumer(self, name: str) -> Hands:
        """The consumer of this name, if it runs."""
        if name not in self.consumers:
            raise UnknownNameError("consumer", name, self.consumers)
        self._require_up(self.cluster.system.nodes[name])
        return self.consumers[name]

    def _require_up(self, node: Node) -> None:
        if node.state != "up":
            raise BadValueError(
                f"{node.name} is {node.state}: {_REMEDIES[node.state]} {node.name} first"
            )

    def new_name(self, what: str, name: str) -> str:
        """Check a name for something new."""
        if not _NAME.fullmatch(name) or name in reserved():
            expected = "expected letters, digits, '.', '_' and '-', and no word of a command"
            raise BadValueError(f"{what} = {name!r}: {expected}")
        living = self.cluster.system.refs.get(name)
        if what in ("producer", "consumer") and living is not None and living.is_alive():
            raise BadValueError(f"{what} = {name!r}: expected another name, as this one is taken")
        return name

    def down(self) -> list[str]:
        """The nodes that do not run, and why."""
        nodes = self.cluster.system.nodes.values()
        return [f"{node.name} ({node.state})" for node in nodes if node.state != "up"]

    def hint(self) -> str:
        """What may be the reason for whatever does not work."""
        return f"not running: {', '.join(self.down())}" if self.down() else "no node is down"

    def require_brokers(self) -> None:
        """Refuse what waits for all brokers while one is down."""
        for name in self.cluster.brokers:
            self._require_up(self.cluster.system.nodes[name])

    def leaderless(self) -> list[TopicPartition]:
        """The partitions that nobody could be asked about now."""
        leaders = self.cluster.metadata().leaders
        return sorted(tp for tp, leader in leaders.items() if not _answers(leader.ref))

    def require_leaders(self, *topics: str) -> None:
        """Refuse to look where nobody answers: waiting for an answer would take minutes."""
        self._require_up(self.cluster.system.nodes["controller"])
        missing = [str(tp) for tp in self.leaderless() if tp.topic in topics]
        if missing:
            raise BadValueError(f"{', '.join(missing)} without a leader for now; {self.hint()}")

    def require_coordinator(self, group: str) -> None:
        """The same for a group."""
        self._require_up(self.cluster.system.nodes["controller"])
        if not _answers(self.cluster.metadata().coordinators.get(group)):
            raise BadValueError(f"group {group!r} has no coordinator for now")

    # Values

    def value(self, topic: str, text: str) -> Any:
        """Make a value of a topic's type out of what was typed."""
        kind = self.topics[self.topic(topic)]
        try:
            if kind == "json":
                return json.loads(text)
            return text if kind == "str" else TYPES[kind](text)
        except ValueError:
            hint = ", put into single quotes" if kind == "json" else ""
            raise BadValueError(
                f"value = {text!r}: expected {kind}, as {topic} has it{hint}"
            ) from None


def _answers(ref: Any) -> bool:
    return ref is not None and ref.is_alive() and ref.host.node.state == "up"


def count(number: int, noun: str) -> str:
    """ "1 record", "2 records"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def shown(value: object) -> str:
    """A key or value as text that stays on its line."""
    if isinstance(value, str):
        return value if value.isprintable() and value else json.dumps(value)
    return "-" if value is None else json.dumps(value, default=repr)


def place(record: Record) -> str:
    """Where a record is."""
    return f"{record.topic}-{record.partition}@{record.offset}"


def line_of(record: Record) -> str:
    """A record on one line: where, key, value, and what is out of the ordinary."""
    parts = [place(record), shown(record.key), shown(record.value)]
    if record.headers:
        parts.append("[" + ", ".join(f"{n}:{_header(v)}" for n, v in record.headers) + "]")
    if record.retries:
        parts.append(f"(retry {record.retries})")
    return " ".join(parts)


def _header(value: bytes | str) -> str:
    return shown(value.decode(errors="replace") if isinstance(value, bytes) else value)
