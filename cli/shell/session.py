"""The state of a shell: its cluster, and the topics, producers and consumers created in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from ...actors.cluster import Cluster
from ...model.errors import BadValueError, UnknownNameError
from ...model.topics import TopicPartition
from .command_table import reserved_words
from .format import format_table

if TYPE_CHECKING:
    from pathlib import Path

    from ...actors.engine.node import Node
    from ...actors.groups import ConsumerGroup, ConsumerHandle
    from ...actors.handles import ProducerHandle
    from ...model.log.record import Record

VALUE_TYPES: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "json": object}

_TYPE_NAMES: Final = {type: name for name, type in VALUE_TYPES.items()}

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_REMEDIES: Final = {"crashed": "restart node", "paused": "resume node"}


@attrs.define(eq=False)
class ShellConsumer:
    """A consumer, and the records that it was given and has not finished."""

    handle: ConsumerHandle
    last: list[str] = attrs.Factory(list)
    """Positions of the records consumed last."""
    unacknowledged: dict[str, Record] = attrs.Factory(dict)
    """Records to acknowledge, by position."""
    paused: set[TopicPartition] = attrs.Factory(set)
    is_processing: bool = False
    """Whether its group takes it to be processing records. A rebalance then waits until it
    consumes again or commits."""

    def drop_records(self) -> None:
        """Forget the records, as the consumer has left its group or crashed."""
        self.last, self.unacknowledged, self.is_processing = [], {}, False

    def drop_topic(self, topic: str) -> None:
        """Forget the records of a deleted topic: no partition is left to acknowledge them to."""
        self.unacknowledged = {
            position: record
            for position, record in self.unacknowledged.items()
            if record.topic != topic
        }


class ShellSession:
    """A cluster, and everything that was created in it by name."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        simulated: bool = False,
        seed: int = 0,
        storage: Literal["memory", "disk"] | None = None,
        data_dir: Path | None = None,
    ) -> None:
        """Start a cluster; in a data directory, with all the brokers that it has files of."""
        if simulated:
            self.cluster = Cluster.simulated(seed, brokers=brokers, storage=storage or "disk")
        elif data_dir is None:
            self.cluster = Cluster.live(seed, brokers=brokers)
        else:
            numbers = [int(path.name[7:]) for path in data_dir.glob("broker-[0-9]*")]
            brokers = max([brokers, *(number + 1 for number in numbers)])
            self.cluster = Cluster.live(seed, brokers=brokers, data_dir=data_dir)
        self.simulated = simulated
        self.topics: dict[str, str] = {}
        """The type of each topic's values, a key of VALUE_TYPES."""
        self.partitions: dict[str, int] = {}
        """The number of each topic's partitions, for completion: asking the cluster takes time."""
        self.producers: dict[str, ProducerHandle] = {}
        self.consumers: dict[str, ShellConsumer] = {}
        for name, topic in self.cluster.metadata().topics.items():
            self.topics[name] = _TYPE_NAMES.get(topic.type, "json")
            self.partitions[name] = topic.partitions
        self.has_ended = False
        self.interrupted = False

    def names(self, what: str) -> list[str]:
        """Return the names of all topics, groups, consumers, producers or nodes.

        Partitions are those of all topics, positions those of all unacknowledged records.
        """
        known: dict[str, Any] = {
            "topic": self.topics,
            "partition": [f"{t}-{n}" for t, count in self.partitions.items() for n in range(count)],
            "position": [p for each in self.consumers.values() for p in each.unacknowledged],
            "group": self.cluster.groups,
            "consumer": self.consumers,
            "producer": self.producers,
            "node": self.cluster.system.nodes,
            "broker": self.cluster.brokers,
            "disk node": self.disk_nodes(),
        }
        return sorted(known.get(what, ()))

    def describe_topics(self) -> str:
        """Return the topics and the number of records in each, as lines of output."""
        rows = []
        for name, topic in sorted(self.cluster.metadata().topics.items()):
            partitions = [TopicPartition(name, number) for number in range(topic.partitions)]
            views = [self.cluster.inspect(partition) for partition in partitions]
            records = sum(view.end_offset - view.start_offset for view in views)
            rows.append((name, topic.partitions, records))
        return format_table(("topic", "partitions", "records"), rows) if rows else "no topics"

    def format_time(self) -> str:
        """Return the time of the cluster as a line of output."""
        return f"time: {self.cluster.system.now_us / 1e6:.3f} s"

    # Look-up by name

    def topic(self, name: str) -> str:
        """Return the name if there is a topic of that name."""
        if name not in self.topics:
            raise UnknownNameError("topic", name, self.topics)
        return name

    def parse_partition(self, text: str) -> TopicPartition:
        """Return the partition that a text such as "orders-0" names."""
        topic, _, number = text.rpartition("-")
        if not topic or not (number.isascii() and number.isdigit() and len(number) < 19):
            raise BadValueError(f"partition = {text!r}: expected TOPIC-NUMBER, such as orders-0")
        return self.partition(topic, int(number))

    def partition(self, topic: str, number: int) -> TopicPartition:
        """Return a partition of a topic, if it exists."""
        count = self.cluster.metadata().partitions(self.topic(topic))
        if number >= count:
            raise BadValueError(f"partition = {number}: expected 0 to {count - 1} of {topic}")
        return TopicPartition(topic, number)

    def partition_of(self, topic: str, text: str) -> TopicPartition:
        """Return the partition of a topic that a number or a text such as "orders-0" names."""
        if text.isascii() and text.isdigit() and len(text) < 19:
            return self.partition(topic, int(text))
        found = self.parse_partition(text)
        if found.topic != topic:
            raise BadValueError(f"partition = {text!r}: expected a partition of {topic}")
        return found

    def group(self, name: str) -> ConsumerGroup:
        """Return the group of this name."""
        if name not in self.cluster.groups:
            raise UnknownNameError("group", name, self.cluster.groups)
        return self.cluster.groups[name]

    def producer(self, name: str) -> ProducerHandle:
        """Return the producer of this name, if its node is up."""
        if name not in self.producers:
            raise UnknownNameError("producer", name, self.producers)
        self._require_up(self.cluster.system.nodes[name])
        return self.producers[name]

    def consumer(self, name: str) -> ShellConsumer:
        """Return the consumer of this name, if its node is up."""
        if name not in self.consumers:
            raise UnknownNameError("consumer", name, self.consumers)
        self._require_up(self.cluster.system.nodes[name])
        return self.consumers[name]

    def disk_nodes(self) -> list[str]:
        """Return the nodes that keep something on a disk."""
        on_disk = self.cluster.settings.storage == "disk"
        controllers = [controller.name for controller in self.cluster.controllers]
        return [*controllers, *self.cluster.brokers] if on_disk else []

    def disk_node(self, name: str) -> str:
        """Return the name if the node of that name keeps something on a disk."""
        known = self.disk_nodes()
        if not known:
            raise BadValueError(
                f"node {name!r} has no files: expected a shell with --data-dir, or a simulated one "
                "without --storage memory"
            )
        if name not in known:
            raise UnknownNameError("node with a disk", name, known)
        return name

    def check_new_name(self, what: str, name: str) -> None:
        """Refuse a name for a new topic, group, producer or consumer if it cannot be used."""
        if not _NAME.fullmatch(name) or name in reserved_words():
            expected = "expected letters, digits, '.', '_' and '-', and no word of a command"
            raise BadValueError(f"{what} = {name!r}: {expected}")
        existing = self.cluster.system.refs.get(name)
        if what in ("producer", "consumer") and existing is not None and existing.is_alive():
            raise BadValueError(f"{what} = {name!r}: this name is already in use")

    # Nodes that are down

    def down_nodes(self) -> list[str]:
        """Return the nodes that are not up, with their state."""
        nodes = self.cluster.system.nodes.values()
        return [f"{node.name} ({node.state})" for node in nodes if node.state != "up"]

    def describe_down_nodes(self) -> str:
        """Return the nodes that are down as a text, to explain why something does not work."""
        down = self.down_nodes()
        return f"nodes down: {', '.join(down)}" if down else "no node is down"

    def leaderless_partitions(self) -> list[TopicPartition]:
        """Return the partitions whose leader does not run."""
        leaders = self.cluster.metadata().leaders
        return sorted(tp for tp, leader in leaders.items() if not _is_up(leader.ref))

    def require_brokers(self) -> None:
        """Refuse a command that needs all brokers while one is down."""
        for name in self.cluster.brokers:
            self._require_up(self.cluster.system.nodes[name])

    def require_controller(self) -> None:
        """Refuse a command that needs a controller while all are down."""
        nodes = [self.cluster.system.nodes[ref.name] for ref in self.cluster.controllers]
        if all(node.state != "up" for node in nodes):
            self._require_up(nodes[0])

    def require_leaders(self, *topics: str) -> None:
        """Refuse a command that needs the leaders of topics; it would wait minutes for one."""
        self.require_controller()
        missing = [str(tp) for tp in self.leaderless_partitions() if tp.topic in topics]
        if missing:
            raise BadValueError(f"no leader for {', '.join(missing)}; {self.describe_down_nodes()}")

    def require_coordinator(self, group: str) -> None:
        """Refuse a command that needs the coordinator of a group while that is down."""
        self.require_controller()
        if not _is_up(self.cluster.metadata().coordinators.get(group)):
            raise BadValueError(f"no coordinator for group {group!r}; {self.describe_down_nodes()}")

    def _require_up(self, node: Node) -> None:
        if node.state != "up":
            raise BadValueError(
                f"{node.name} is {node.state}: {_REMEDIES[node.state]} {node.name} first"
            )

    # Values

    def parse_value(self, topic: str, text: str) -> Any:
        """Convert a text to the type of a topic's values."""
        type = self.topics[self.topic(topic)]
        try:
            if type == "json":
                return json.loads(text)
            return text if type == "str" else VALUE_TYPES[type](text)
        except ValueError:
            hint = ", in single quotes" if type == "json" else ""
            raise BadValueError(
                f"value = {text!r}: expected {type}, the type of topic {topic}{hint}"
            ) from None


def _is_up(ref: Any) -> bool:
    return ref is not None and ref.is_alive() and ref.host.node.state == "up"
