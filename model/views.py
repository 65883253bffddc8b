"""Descriptions of a topic and a cluster: data for programs, and `str` of them for people."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from .log.record import Record
from .messages.client import PartitionView, offset_gap
from .messages.cluster import ControllerView
from .messages.group import GroupView
from .topics import Topic, TopicPartition


@attrs.frozen
class TopicView:
    """A topic, its partitions and the records in them."""

    topic: Topic
    """Configuration of the topic."""
    partitions: tuple[PartitionView, ...]
    """Its partitions, in order."""
    contents: tuple[tuple[Record, ...], ...]
    """The last records of each partition."""

    def __str__(self) -> str:
        lines = [f"topic {self.topic.name}: {self.topic.partitions} partitions"]
        for view, records in zip(self.partitions, self.contents, strict=True):
            lines.append(f"  {view.partition} on {view.broker}: {view.offsets()}")
            lines += [f"    {r.offset:>6} {_text(r.key)} {_text(r.value)}" for r in records]
        return "\n".join(lines)


@attrs.frozen
class ClusterView:
    """A cluster: brokers, partitions with their leaders, groups with their owners and lag."""

    brokers: tuple[str, ...]
    """Names of the registered brokers."""
    topics: Mapping[str, Topic]
    """Topics by name."""
    partitions: tuple[PartitionView, ...]
    """Partitions of all topics."""
    groups: tuple[GroupView, ...]
    """Groups that have a coordinator."""
    lags: Mapping[str, Mapping[TopicPartition, int]]
    """Lag of each group in each partition, in records."""
    controllers: tuple[ControllerView, ...] = ()
    """The controllers, in the order of their names."""

    def __str__(self) -> str:
        lines = [f"brokers: {', '.join(self.brokers)}", ""]
        if len(self.controllers) > 1:
            quorum = [
                (each.name, "active" if each.is_active else each.state.lower(), each.term,
                 each.last_index)
                for each in self.controllers
            ]  # fmt: skip
            lines += [*_table(("controller", "state", "term", "entries"), quorum), ""]
        lines += _table(
            ("partition", "leader", "epoch", "start", "end"),
            [
                (v.partition, v.broker, v.epoch, v.start_offset, v.end_offset)
                for v in self.partitions
            ],
        )
        lines += [
            f"{v.partition}: {offset_gap(v.lost_before)}" for v in self.partitions if v.lost_before
        ]
        for group in self.groups:
            owners: dict[TopicPartition, str] = {}
            for member, partitions in group.members.items():
                for tp in partitions:
                    owners[tp] = f"{owners[tp]}, {member}" if tp in owners else member
            lines += [
                "",
                f"group {group.name}: {group.state}, generation {group.generation}, "
                f"{group.assignor} ({group.protocol})",
            ]
            lags = self.lags[group.name]
            rows = [(tp, owners.get(tp, "-"), lags[tp]) for tp in sorted(lags)]
            lines += _table(("partition", "owner", "lag"), rows)
        return "\n".join(lines)


def _text(value: object) -> str:
    return "-" if value is None else repr(value)


def _table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
