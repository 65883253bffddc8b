"""What the leader of a partition knows of the other replicas, and which of them are in sync.

Theory of operation, as in Kafka. A follower tells with each fetch how far its log goes. The high
watermark is the lowest end of all logs in the in-sync set: whatever is below it, every member of
the set has, and any of them can lead next. A follower that has not caught up with the leader for
`replica_lag_time_max_ms` leaves the set, and one that reaches the high watermark joins it. The set
belongs to the controllers. A leader proposes a change, and until it hears that the change was made
it counts with the *maximal* set, the members before and after it: whichever of the two the
controllers have, no member is forgotten (Kafka's `PartitionState.maximalIsr`).

While the set is smaller than `min_insync_replicas` the high watermark stands still (KIP-966), so
that nothing is committed that one more crash can lose.

The other changes of a partition, such as positions of groups, are numbered and replicated with the
records. They have a watermark of their own, by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Final

import attrs

from ..messages.replication import ReplicaState


class InSyncState(StrEnum):
    """Whether a change of the in-sync set is on its way, under Kafka's names."""

    COMMITTED = "CommittedPartitionState"
    """The controllers have the set that is known here."""
    PENDING_EXPAND = "PendingExpandIsr"
    """It was proposed to add a follower."""
    PENDING_SHRINK = "PendingShrinkIsr"
    """It was proposed to remove followers."""


class InSyncEvent(StrEnum):
    """What happens to the set."""

    CAUGHT_UP = auto()
    """A follower has reached the high watermark."""
    FELL_BEHIND = auto()
    """Followers have not caught up for too long."""
    CONFIRMED = auto()
    """The controllers have a newer set."""
    REFUSED = auto()
    """The controllers have refused the proposal for good."""


TABLE: Final[Mapping[InSyncState, Mapping[InSyncEvent, InSyncState]]] = {
    InSyncState.COMMITTED: {
        InSyncEvent.CAUGHT_UP: InSyncState.PENDING_EXPAND,
        InSyncEvent.FELL_BEHIND: InSyncState.PENDING_SHRINK,
        InSyncEvent.CONFIRMED: InSyncState.COMMITTED,
    },
    InSyncState.PENDING_EXPAND: {
        InSyncEvent.CONFIRMED: InSyncState.COMMITTED,
        InSyncEvent.REFUSED: InSyncState.COMMITTED,
    },
    InSyncState.PENDING_SHRINK: {
        InSyncEvent.CONFIRMED: InSyncState.COMMITTED,
        InSyncEvent.REFUSED: InSyncState.COMMITTED,
    },
}
"""The next state for each state and event. What is not listed changes nothing: one proposal is on
its way at a time."""

UNKNOWN: Final = -1
"""The end of a log that is not known."""

RETRY_US: Final = 500_000
"""Time after which a follower is proposed again that the controllers have refused."""


@attrs.define(eq=False)
class Follower:
    """What the leader knows of one follower."""

    name: str
    """Name of its broker."""
    broker_epoch: int = UNKNOWN
    """Epoch of the broker that has fetched last."""
    request: int = UNKNOWN
    """Number of its last fetch: what comes later with a lower number is out of date."""
    end_offset: int = UNKNOWN
    """End of its log."""
    changes: int = UNKNOWN
    """Number of changes that it has."""
    caught_up_us: int = 0
    """When it last had all that the leader had at that time."""
    fetched_us: int = 0
    """When it has last fetched."""
    leader_end: int = 0
    """End of the leader's log at that time."""
    refused_us: int | None = None
    """When the controllers last refused to add it; it is proposed again after a while."""


@attrs.frozen
class Proposal:
    """A change of the in-sync set to propose."""

    partition_epoch: int
    """Epoch of the state that it changes."""
    in_sync: tuple[tuple[str, int], ...]
    """The new members, each with its broker epoch."""


class ReplicaSet:
    """The replicas of a partition as its leader sees them."""

    def __init__(
        self,
        name: str,
        broker_epoch: int,
        state: ReplicaState,
        *,
        lag_time_us: int,
        min_insync: int,
        end_offset: int,
        now_us: int,
    ) -> None:
        """Begin an epoch as the leader on the broker `name`, with a log that ends at an offset."""
        self.name = name
        self.state = InSyncState.COMMITTED
        self._broker_epoch = broker_epoch
        self._lag_time_us = lag_time_us
        self._min_insync = min_insync
        self._began_us = now_us
        self.epoch_start = end_offset
        """Where the log ended when the epoch began: a member of the set must reach it."""
        self.followers: dict[str, Follower] = {}
        self.agreed = state
        """What the controllers have, as far as it is known here."""
        self.proposed: tuple[str, ...] | None = None
        """The in-sync set that was proposed."""
        self._counted: list[Follower] = []
        """The followers of the maximal set."""
        self.is_under_min = False
        """Whether the set is too small to commit anything (KIP-966)."""
        self.is_alone = False
        """Whether nobody else has to confirm anything."""
        self._take(state)

    def _take(self, state: ReplicaState) -> None:
        self.agreed = state
        others = [name for name in state.replicas if name != self.name]
        self.followers = {
            name: self.followers.get(name) or Follower(name, caught_up_us=self._began_us)
            for name in others
        }
        self._count()

    def _count(self) -> None:
        maximal = dict.fromkeys((*self.agreed.in_sync, *(self.proposed or ())))
        self._counted = [self.followers[name] for name in maximal if name in self.followers]
        # No more members are asked for than there are replicas.
        wanted = min(self._min_insync, len(self.agreed.replicas))
        self.is_under_min = len(self.agreed.in_sync) < wanted
        self.is_alone = not self._counted and not self.is_under_min

    def configure(self, min_insync: int) -> None:
        """Use another `min_insync_replicas` from now on."""
        self._min_insync = min_insync
        self._count()

    # What followers have

    def fetched(
        self, follower: Follower, end_offset: int, changes: int, leader_end: int, now_us: int
    ) -> None:
        """Note what a follower has, which asks for more.

        It has caught up if it has all that there is, or all that there was at its last fetch: a
        follower that is always one fetch behind a busy leader is in sync.
        """
        if end_offset >= leader_end:
            follower.caught_up_us = now_us
        elif end_offset >= follower.leader_end and follower.end_offset != UNKNOWN:
            follower.caught_up_us = max(follower.caught_up_us, follower.fetched_us)
        follower.end_offset, follower.changes = end_offset, changes
        follower.fetched_us, follower.leader_end = now_us, leader_end

    def restarted(self, follower: Follower, broker_epoch: int) -> None:
        """Note that another process of a follower's broker fetches: nothing is known of its log.

        A member of the set counts with what is known, which is nothing, until it fetches.
        """
        follower.broker_epoch, follower.request = broker_epoch, UNKNOWN
        follower.end_offset = follower.changes = UNKNOWN
        follower.refused_us = None

    def high_watermark(self, end_offset: int, known: int) -> int:
        """Return the high watermark of a log with this end, or the one known so far if higher."""
        if self.is_under_min:
            return known
        for follower in self._counted:
            if follower.end_offset < end_offset:
                end_offset = follower.end_offset
        return end_offset if end_offset > known else known

    def confirmed_changes(self, count: int, known: int) -> int:
        """Return how many of `count` changes all members have, or the number known so far."""
        if self.is_under_min:
            return known
        for follower in self._counted:
            if follower.changes < count:
                count = follower.changes
        return count if count > known else known

    # The in-sync set

    def lagging(self, end_offset: int, now_us: int) -> list[str]:
        """List the members that have not caught up for too long."""
        return [
            name
            for name in self.agreed.in_sync
            if name in self.followers and self._lags(self.followers[name], end_offset, now_us)
        ]

    def _lags(self, follower: Follower, end_offset: int, now_us: int) -> bool:
        late = now_us - follower.caught_up_us > self._lag_time_us
        return late and follower.end_offset != end_offset

    def propose_shrink(self, end_offset: int, now_us: int) -> Proposal | None:
        """Propose to remove the members that lag, if there are some and nothing is proposed."""
        lagging = self.lagging(end_offset, now_us)
        if not lagging:
            return None
        kept = tuple(name for name in self.agreed.in_sync if name not in lagging)
        return self._propose(InSyncEvent.FELL_BEHIND, kept)

    def propose_expand(
        self, follower: Follower, high_watermark: int, confirmed: int, now_us: int
    ) -> Proposal | None:
        """Propose to add a follower that has caught up, unless something is proposed.

        It must have all that is committed, and all that was there when the epoch began: records
        before that may be committed without the leader knowing it yet.
        """
        if follower.name in self.agreed.in_sync or self.state is not InSyncState.COMMITTED:
            return None
        reached = max(high_watermark, self.epoch_start)
        if follower.end_offset < reached or follower.changes < confirmed:
            return None
        if follower.refused_us is not None and now_us - follower.refused_us < RETRY_US:
            return None
        return self._propose(InSyncEvent.CAUGHT_UP, (*self.agreed.in_sync, follower.name))

    def _propose(self, event: InSyncEvent, members: tuple[str, ...]) -> Proposal | None:
        following = TABLE[self.state].get(event)
        if following is None:
            return None
        self.state, self.proposed = following, members
        self._count()
        return self.proposal()

    def proposal(self) -> Proposal | None:
        """Return the proposal that is on its way, to be sent again."""
        if self.proposed is None:
            return None
        epochs = {name: each.broker_epoch for name, each in self.followers.items()}
        epochs[self.name] = self._broker_epoch
        members = tuple((name, epochs[name]) for name in self.proposed if name in epochs)
        return Proposal(self.agreed.partition_epoch, members)

    def confirm(self, state: ReplicaState) -> bool:
        """Take a newer state of the same leader epoch; return False if it is not newer."""
        if state.partition_epoch <= self.agreed.partition_epoch:
            return False
        self.state = TABLE[self.state][InSyncEvent.CONFIRMED]
        self.proposed = None
        self._take(state)
        return True

    def refuse(self, partition_epoch: int, now_us: int) -> None:
        """Give the proposal up that the controllers have refused: they have not made the change."""
        if self.proposed is None or partition_epoch != self.agreed.partition_epoch:
            return
        for name in self.proposed:
            if name in self.followers and name not in self.agreed.in_sync:
                self.followers[name].refused_us = now_us
        self.state = TABLE[self.state][InSyncEvent.REFUSED]
        self.proposed = None
        self._count()
