"""Reading what is in a topic, without a group: the last records, or a page of older ones."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError
from ..model.log.record import Record
from ..model.messages.client import FindOffset, FoundOffset
from ..model.messages.mappings import read_only
from ..model.numbers import check_whole
from ..model.topics import TopicPartition, partitions_of
from .handles import REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from .cluster import Cluster


@attrs.frozen
class HistoryPage:
    """Some records of a topic, in the order in which they were appended."""

    records: tuple[Record, ...]
    """The records."""
    positions: MappingProxyType[TopicPartition, int] = attrs.field(converter=read_only)
    """Where the next page begins, in each partition."""
    is_last: bool
    """Whether no record follows at present."""


def read_history(
    cluster: Cluster,
    topic: str,
    partition: int | None,
    *,
    last: int | None,
    offset: int | None,
    since: Duration | None,
    positions: Mapping[TopicPartition, int] | None,
    limit: int,
) -> HistoryPage:
    """Read a page; see `Cluster.history`."""
    given = [each for each in (last, offset, since, positions) if each is not None]
    if len(given) > 1:
        raise BadValueError("history: expected one of last, offset, since and positions")
    check_whole("limit", limit, 1)
    count = cluster._known_topic(topic).partitions
    if partition is None:
        partitions = partitions_of(topic, count)
    else:
        partitions = [TopicPartition(topic, check_whole("partition", partition))]
    if last is not None:
        return _last(cluster, partitions, check_whole("last", last, 1))
    starts = {}
    for each in partitions:
        view = cluster.inspect(each)
        start, end = view.start_offset, view.end_offset
        if offset is not None:
            start = max(start, check_whole("offset", offset))
        elif since is not None:
            find = FindOffset(0, to_us(since, "since"))
            found: FoundOffset = cluster.leader(each).ask(find, timeout=REQUEST_TIMEOUT_S)
            start = max(start, found.offset)
        elif positions is not None and each in positions:
            start = max(start, positions[each])
        starts[each] = min(start, end), end
    return _page(cluster, starts, limit)


def _last(cluster: Cluster, partitions: list[TopicPartition], last: int) -> HistoryPage:
    """Read the records that were appended last. Compaction may have left gaps before them."""
    found: list[Record] = []
    positions = {}
    for each in partitions:
        view = cluster.inspect(each)
        own: list[Record] = []
        end, width = view.end_offset, last
        while len(own) < last and end > view.start_offset:
            start = max(view.start_offset, end - width)
            own = [*cluster.read(each, start, end), *own]
            end, width = start, 2 * width
        found += own[-last:]
        positions[each] = view.end_offset
    return HistoryPage(tuple(sorted(found, key=_appended)[-last:]), positions, is_last=True)


def _page(
    cluster: Cluster, starts: Mapping[TopicPartition, tuple[int, int]], limit: int
) -> HistoryPage:
    found: list[Record] = []
    for each, (start, end) in starts.items():
        found += islice(cluster.read(each, start, end), limit + 1)
    found.sort(key=_appended)
    records = tuple(found[:limit])
    positions = {each: start for each, (start, _) in starts.items()}
    for record in records:
        positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
    return HistoryPage(records, positions, is_last=len(found) <= limit)


def _appended(record: Record) -> tuple[int, int, int]:
    return record.append_time_us, record.partition, record.offset
