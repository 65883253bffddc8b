"""What leaders have told producers and consumers, to record exactly which records are lost.

A leader that answers before its followers have a record (acks = 1) may be replaced by one that does
not have it. The new leader cannot know. So leaders note here what they have answered too early, and
up to where records were visible, and whoever leads next compares that with its log. No actor
decides anything by it: it is for the record alone, as the true time is. It knows this process only:
what was lost while a cluster with a data directory was down is not recorded.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from ...model.events import kinds
from ...model.events.schema import NULL_INT

if TYPE_CHECKING:
    from ...model.log.batch import Batch
    from ...model.log.log import MemoryLog
    from ...model.topics import TopicPartition
    from ..engine.effects import Effects


@attrs.define(eq=False)
class LedEpoch:
    """One epoch of a leader."""

    epoch: int
    log: MemoryLog
    answered: deque[Batch] = attrs.Factory(deque)
    """Batches that were answered and are above the high watermark; whoever takes one off records
    what became of it."""


@attrs.define(eq=False)
class PartitionAudit:
    """One partition."""

    visible_to: int = -1
    """End of the records that were recorded as appended; -1 before the first leader."""
    epochs: list[LedEpoch] = attrs.Factory(list)
    """The last epoch, and earlier ones with batches to be judged."""

    def clear(self) -> None:
        """Forget everything: the topic was deleted."""
        self.visible_to, self.epochs = -1, []


class LossAudit:
    """All partitions of a cluster."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionAudit] = {}

    def of(self, partition: TopicPartition) -> PartitionAudit:
        """The audit of a partition."""
        return self._partitions.setdefault(partition, PartitionAudit())


def begin_epoch(
    audit: PartitionAudit,
    effects: Effects,
    partition: TopicPartition,
    epoch: int,
    log: MemoryLog,
    *,
    alone: bool,
    unclean: bool,
) -> LedEpoch:
    """Begin an epoch with a log, and record what it lacks of what earlier leaders have promised.

    What the only replica has lost, it has recorded itself.
    """
    led = LedEpoch(epoch, log)
    if audit.epochs and audit.epochs[-1].epoch > epoch:
        # It was elected long ago and paused since: what it lacks, a later leader has.
        audit.epochs.insert(0, led)
        return led
    if audit.epochs:
        # The high watermark of a leader is the end of what it has recorded as appended.
        audit.visible_to = max(audit.visible_to, audit.epochs[-1].log.high_watermark)
    elif audit.visible_to < 0:
        audit.visible_to = log.end_offset
    if not alone:
        for former in audit.epochs:
            judge(former, effects, partition, log)
        if audit.visible_to > log.end_offset:
            _record_unseen(audit, effects, partition, log, unclean=unclean)
    audit.visible_to = min(audit.visible_to, log.end_offset)
    audit.epochs = [each for each in audit.epochs if each.answered]
    audit.epochs.append(led)
    return led


def judge_own(
    audit: PartitionAudit, effects: Effects, partition: TopicPartition, log: MemoryLog
) -> None:
    """Record what a former leader has answered and had to cut off, as another one leads now."""
    for former in audit.epochs:
        if former.log is log:
            judge(former, effects, partition, log)


def judge(former: LedEpoch, effects: Effects, partition: TopicPartition, log: MemoryLog) -> None:
    """Record the batches that a former leader has answered and that are not in a log."""
    while former.answered:
        batch = former.answered.popleft()
        if not _has(log, batch):
            reason = "acknowledged by its leader alone"
            _record(effects, kinds.TAIL_LOST, partition, batch, reason)


def _has(log: MemoryLog, batch: Batch) -> bool:
    """Whether a log has a batch, or had it and has removed it since."""
    first = batch.base_offset
    if first < log.start_offset:
        return True
    found = log.whole_batches(first, first + 1)
    return bool(found) and found[0].epoch == batch.epoch


def _record_unseen(
    audit: PartitionAudit,
    effects: Effects,
    partition: TopicPartition,
    log: MemoryLog,
    *,
    unclean: bool,
) -> None:
    """Record the committed records that a new log does not have."""
    reason = "unclean leader election" if unclean else "lost with all in-sync replicas"
    former = audit.epochs[-1].log if audit.epochs else None
    if former is None:
        return
    for batch in former.pieces(log.end_offset, audit.visible_to):
        _record(effects, kinds.LOST, partition, batch, reason)


def _record(
    effects: Effects, kind: str, partition: TopicPartition, batch: Batch, reason: str
) -> None:
    topic, number = partition
    effects.record(
        kind, topic=topic, partition=number, producer=batch.producer,
        base_offset=batch.base_offset, count=batch.count, bytes=batch.bytes, epoch=batch.epoch,
        append_time_us=batch.append_time_us if batch.append_time_us >= 0 else NULL_INT,
        reason=reason,
    )  # fmt: skip
