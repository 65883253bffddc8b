"""What a cluster looks like: data for programs, text for people."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from .exchange import PartitionView
from .membership import GroupView
from .record import Record
from .topics import Topic, TopicPartition


@attrs.frozen
class TopicView:
    """A topic, its partitions and the records in them."""

    topic: Topic
    partitions: tuple[PartitionView, ...]
    contents: tuple[tuple[Record, ...], ...]
    """The last records of each partition."""

    def __str__(self) -> str:
        lines = [f"topic {self.topic.name}: {self.topic.partitions} partitions"]
        for view, records in zip(self.partitions, self.contents, strict=True):
            lines.append(
                f"  {view.partition} on {view.broker}: "
                f"offsets {view.start_offset} to {view.end_offset}"
            )
            lines += [f"    {r.offset:>6} {_text(r.key)} {_text(r.value)}" for r in records]
        return "\n".join(lines)


@attrs.frozen
class ClusterView:
    """A cluster: brokers, partitions with their leaders, groups with owners and lag."""

    brokers: tuple[str, ...]
    topics: Mapping[str, Topic]
    partitions: tuple[PartitionView, ...]
    groups: tuple[GroupView, ...]
    lags: Mapping[str, Mapping[TopicPartition, int]]
    """How many records each group has still to consume."""

    def __str__(self) -> str:
        lines = [f"brokers: {', '.join(self.brokers)}", ""]
        lines += _table(
            ("partition", "leader", "epoch", "start", "end"),
            [
                (v.partition, v.broker, v.epoch, v.start_offset, v.end_offset)
                for v in self.partitions
            ],
        )
        for group in self.groups:
            owners: dict[TopicPartition, str] = {}
            for member, share in group.members.items():
                for tp in share:
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
