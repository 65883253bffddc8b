"""The part of a leader that replicates: it serves followers, and keeps the high watermark.

A follower's fetch tells what it has, and waits here until there is more: records, or changes of
what else the partition promises. When the high watermark passes a batch, the batch is visible, and
producers that asked for it (acks = all) get their answer. The rules are in
model/consensus/replica_set.py.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from ...model.consensus.replica_set import ReplicaSet
from ...model.messages.client import NotLeader, make_tuple
from ...model.messages.replication import (
    NO_EPOCH,
    AlterPartition,
    ReplicaDiverged,
    ReplicaFetched,
    ReplicaFetchRefused,
    ReplicaOutOfRange,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...model.consensus.replica_set import Follower, Proposal
    from ...model.log.batch import Batch
    from ...model.log.log import MemoryLog
    from ...model.messages.replication import Change, ReplicaFetch, ReplicaState
    from ...model.settings import ClusterSettings
    from ...model.topics import Topic, TopicPartition
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from ..engine.timers import Timer
    from .change_log import ChangeLog
    from .loss_audit import LedEpoch, PartitionAudit
    from .record_loader import RecordLoader

ALL: Final = -1
"""The acks of a producer that waits for all in-sync replicas."""


REPEAT_US: Final = 1_000_000
"""Time after which a proposal is sent again that was not answered."""


@attrs.frozen
class InSyncCheck:
    """Time to look for followers that lag, and to repeat a proposal that was not answered."""


@attrs.frozen
class FollowersWait:
    """The maximum wait of a follower's fetch may be over."""


class AwaitedAnswer(NamedTuple):
    """An answer to a producer that waits for the high watermark."""

    offset: int
    """The high watermark that it waits for."""
    to: Ref
    request: int
    answer: object


class Replication:
    """The followers of one partition, in one leader epoch."""

    def __init__(
        self,
        effects: Effects,
        partition: TopicPartition,
        topic: Topic,
        settings: ClusterSettings,
        log: MemoryLog,
        changes: ChangeLog,
        snapshot: Callable[[], Iterable[Change]],
        committed: Callable[[Batch], None],
        propose: Callable[[AlterPartition], None],
        *,
        broker: str,
        broker_epoch: int,
        state: ReplicaState,
        led: LedEpoch,
        audit: PartitionAudit,
        loader: RecordLoader | None,
    ) -> None:
        """Begin to lead. `committed` is called for each batch that becomes visible.

        `snapshot` describes what followers need beside the log; `propose` sends a proposal to the
        controller.
        """
        self._effects = effects
        self._partition = partition
        self._log = log
        self._changes = changes
        self._snapshot = snapshot
        self._committed = committed
        self._propose = propose
        self._broker = broker
        self._broker_epoch = broker_epoch
        self._epoch = state.leader_epoch
        self._led = led
        self._audit = audit
        self._loader = loader
        self.set = ReplicaSet(
            broker, broker_epoch, state,
            lag_time_us=settings.replica_lag_time_max_ms * 1_000,
            min_insync=topic.min_insync_replicas,
            end_offset=log.end_offset, now_us=effects.now,
        )  # fmt: skip
        self._waiting: dict[str, tuple[ReplicaFetch, Ref, int]] = {}
        """By follower: a fetch that waits, its sender, and when its wait is over."""
        self._uncommitted: deque[Batch] = deque(log.pieces(log.high_watermark, log.end_offset))
        """Batches above the high watermark."""
        self._answers: deque[AwaitedAnswer] = deque()
        self._timer: Timer | None = None
        self._timer_us = 0
        self._throttled_until_us = 0
        """When followers that are not in sync get records again, if there is a limit for them."""
        self._resigned = False
        if self.set.followers:
            changes.replicate(self._wake_for_change)

    # What producers want

    @property
    def is_under_min(self) -> bool:
        """Whether there are too few in-sync replicas for acks = all."""
        return self.set.is_under_min

    def appended(self, batch: Batch) -> bool:
        """Replicate a batch that was added to the log; return whether it is visible at once."""
        self._uncommitted.append(batch)
        if self._waiting:
            self._wake()
        return self.set.is_alone and self.advance()

    def answered_early(self, batch: Batch) -> None:
        """Note a batch that was answered (acks = 1), if followers may not have it."""
        if batch.base_offset + batch.count > self._log.high_watermark:
            self._led.answered.append(batch)

    def answer_when_committed(self, offset: int, to: Ref, request: int, answer: object) -> None:
        """Answer a producer once the high watermark has reached an offset."""
        if self._log.high_watermark >= offset:
            self._effects.send(to, answer)
        else:
            self._answers.append(AwaitedAnswer(offset, to, request, answer))

    # What followers have

    def on_fetch(self, fetch: ReplicaFetch, sender: Ref) -> bool:
        """Take a fetch of a follower; return whether something became visible."""
        follower = self.set.followers.get(fetch.broker)
        if follower is None or fetch.leader_epoch != self._epoch:
            self._effects.send(sender, ReplicaFetchRefused(fetch.request, self._epoch))
            return False
        if fetch.broker_epoch != follower.broker_epoch:
            if fetch.broker_epoch < follower.broker_epoch:
                return False  # of a process that has ended
            self.set.restarted(follower, fetch.broker_epoch)
        if fetch.request <= follower.request:
            return False  # repeated by the network, or late
        follower.request = fetch.request
        log, offset = self._log, fetch.offset
        if self._diverges(fetch, sender):
            return False
        if not log.start_offset <= offset <= log.end_offset:
            out = ReplicaOutOfRange(fetch.request, self._epoch, log.start_offset)
            self._effects.send(sender, out)
            return False
        now_us, changes = self._effects.now, self._changes
        self.set.fetched(follower, offset, fetch.changes, log.end_offset, now_us)
        moved = self.advance()
        if follower.name not in self.set.agreed.in_sync:
            proposal = self.set.propose_expand(
                follower, log.high_watermark, changes.confirmed, now_us
            )
            if proposal is not None:
                self._send_proposal(proposal)
        throttled = self._is_throttled(follower)
        if (offset < log.end_offset and not throttled) or fetch.changes < changes.count:
            self._answer(follower, fetch, sender)
        else:
            over_us = now_us + fetch.max_wait_us
            if throttled:
                over_us = min(over_us, self._throttled_until_us)
            self._waiting[follower.name] = fetch, sender, over_us
            if self._timer is None or over_us < self._timer_us:
                self._set_timer(over_us)
        return moved

    def _diverges(self, fetch: ReplicaFetch, sender: Ref) -> bool:
        """Tell a follower to cut its log if it has other records than this one (KIP-595)."""
        log, last = self._log, fetch.last_epoch
        if last == log.last_epoch and fetch.offset <= log.end_offset:
            return False
        if last == NO_EPOCH or fetch.offset <= log.start_offset:
            return False  # it has nothing that could differ, or begins anew
        epoch, end = log.end_of_epoch(last)
        if epoch == last and fetch.offset <= end:
            return False
        diverged = ReplicaDiverged(fetch.request, self._epoch, epoch, end)
        self._effects.send(sender, diverged)
        return True

    def advance(self) -> bool:
        """Move the high watermark; return whether it has moved."""
        log, changes = self._log, self._changes
        if changes.confirmed < changes.count:
            confirmed = self.set.confirmed_changes(changes.count, changes.confirmed)
            if confirmed > changes.confirmed:
                changes.confirm(confirmed)
                changes.forget_before(min(each.changes for each in self.set.followers.values()))
        known, end = log.high_watermark, log.end_offset
        if known == end:
            return False
        reached = self.set.high_watermark(end, known)
        if reached <= known:
            return False
        uncommitted, audit = self._uncommitted, self._audit
        while uncommitted and uncommitted[0].base_offset < reached:
            batch = uncommitted.popleft()
            end = batch.base_offset + batch.count
            if audit.visible_to < end:
                self._committed(batch)
                audit.visible_to = end
        # Last: a process that is killed meanwhile has moved it only if all of that is recorded.
        log.high_watermark = reached
        answered = self._led.answered
        while answered and answered[0].base_offset < reached:
            answered.popleft()
        answers = self._answers
        while answers and answers[0].offset <= reached:
            waiting = answers.popleft()
            self._effects.send(waiting.to, waiting.answer)
        return True

    # Answers to followers

    def _wake(self) -> None:
        """Answer the fetches that wait, except those that wait for the throttle."""
        waiting, self._waiting = self._waiting, {}
        for name, (fetch, sender, over_us) in waiting.items():
            follower = self.set.followers[name]
            if self._is_throttled(follower):
                self._waiting[name] = fetch, sender, over_us
            else:
                self._answer(follower, fetch, sender)

    def _wake_for_change(self) -> None:
        if self._waiting:
            self._wake()

    def _answer(self, follower: Follower, fetch: ReplicaFetch, sender: Ref) -> None:
        log, loader, offset = self._log, self._loader, fetch.offset
        end, max_bytes, rate = log.end_offset, fetch.max_bytes, self._rate_of(follower)
        if rate is not None:
            max_bytes = min(max_bytes, rate)  # no more at once than in a second
            if self._is_throttled(follower):
                end = offset
        if offset < end and loader is not None and not loader.is_simple(offset):
            end = loader.readable_to(offset)
            missing = loader.missing(offset, min(end, log.end_of_batches(offset, max_bytes)))
            if missing:
                loader.load(missing, lambda: self._loaded(follower, fetch, sender))
                return
        batches: tuple[Batch, ...] = ()
        if offset < end:
            # Followers get whole batches, so that all logs have the same ones.
            end = min(end, log.end_of_batches(offset, max_bytes))
            batches = tuple(log.whole_batches(offset, end))
            if rate is not None:
                spent_us = sum(batch.bytes for batch in batches) * 1_000_000 // rate
                self._throttled_until_us = self._effects.now + spent_us
        changes = self._changes
        known = changes.since(fetch.changes)
        snapshot = None
        if known is None:
            snapshot, known = tuple(self._snapshot()), ()
        fetched = (
            fetch.request, self._epoch, log.start_offset, log.high_watermark, batches, snapshot,
            known, changes.count,
        )  # fmt: skip
        self._effects.send(sender, make_tuple(ReplicaFetched, fetched))

    def _rate_of(self, follower: Follower) -> int | None:
        """The bytes per second that followers such as this one may get together, if limited."""
        agreed = self.set.agreed
        if agreed.throttle is None or follower.name in agreed.in_sync:
            return None
        return agreed.throttle

    def _is_throttled(self, follower: Follower) -> bool:
        """Whether a follower gets no records for now."""
        return self._rate_of(follower) is not None and self._effects.now < self._throttled_until_us

    def _loaded(self, follower: Follower, fetch: ReplicaFetch, sender: Ref) -> None:
        """Answer a fetch whose records were read, if this is still the leader's."""
        if not self._resigned and self.set.followers.get(follower.name) is follower:
            self._answer(follower, fetch, sender)

    def on_wait_over(self) -> None:
        """Answer the fetches whose wait is over, with nothing."""
        self._timer = None
        now_us = self._effects.now
        over = [name for name, (_, _, us) in self._waiting.items() if us <= now_us]
        for name in over:
            fetch, sender, _ = self._waiting.pop(name)
            if name in self.set.followers:
                self._answer(self.set.followers[name], fetch, sender)
        if self._waiting:
            self._set_timer(min(us for _, _, us in self._waiting.values()))

    def _set_timer(self, due_us: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = due_us
        self._timer = self._effects.after(
            max(0, due_us - self._effects.now), FollowersWait(), background=True
        )

    # The in-sync set

    def check(self) -> None:
        """Propose to remove followers that lag; repeat a proposal that was not answered."""
        proposal = self.set.proposal()
        if proposal is None:
            proposal = self.set.propose_shrink(self._log.end_offset, self._effects.now)
        if proposal is not None:
            self._send_proposal(proposal)

    def _send_proposal(self, proposal: Proposal) -> None:
        self._propose(
            AlterPartition(
                self._partition,
                self._broker,
                self._broker_epoch,
                self._epoch,
                proposal.partition_epoch,
                proposal.in_sync,
            )
        )
        self._effects.after(REPEAT_US, InSyncCheck(), background=True)

    def confirm(self, state: ReplicaState) -> bool:
        """Take a newer state of this epoch; return whether something became visible."""
        if not self.set.confirm(state):
            return False
        self._waiting = {
            name: waiting for name, waiting in self._waiting.items() if name in self.set.followers
        }
        if self.set.followers:
            self._changes.replicate(self._wake_for_change)
        return self.advance()

    def refuse(self, leader_epoch: int, partition_epoch: int) -> None:
        """Give up a proposal that the controller has refused."""
        if leader_epoch == self._epoch:
            self.set.refuse(partition_epoch, self._effects.now)

    def resign(self) -> None:
        """Send followers and producers away: another replica leads."""
        self._resigned = True
        for fetch, sender, _ in self._waiting.values():
            self._effects.send(sender, ReplicaFetchRefused(fetch.request, self._epoch))
        self._waiting.clear()
        for waiting in self._answers:
            self._effects.send(waiting.to, NotLeader(waiting.request))
        self._answers.clear()
        if self._timer is not None:
            self._timer.cancel()
