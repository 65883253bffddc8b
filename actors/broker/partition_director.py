"""The part of the active controller that directs brokers: who is there, and who leads what.

The rules are in model/consensus/replication_control.py: they say what changes. This part puts the
changes into the metadata log, tells brokers of them, and knows what is not in the log: when a
broker was last heard, which leaders have not begun yet, and who waits for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.consensus.replication_control import IsrRefusal
from ...model.events import kinds
from ...model.events.schema import NULL_INT
from ...model.messages.client import offset_gap
from ...model.messages.cluster import Leader, ShutDown
from ...model.messages.replication import (
    AlterPartition,
    AlterRefused,
    PartitionAltered,
    ReplicaOrder,
    ReplicaState,
    replica_name,
)
from ...model.topics import TopicPartition
from .broker_orders import BrokerOrders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...model.consensus.registration import PartitionRegistration
    from ...model.messages.cluster import BrokerHeartbeat, Reservation
    from ...model.messages.replication import ReplicaLeads, ReplicaOrdersDone
    from ...model.settings import ClusterSettings
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from .journal import Entry
    from .metadata_image import MetadataImage
    from .metadata_log import MetadataLog

RESERVE: Final = 100_000
"""Number of offsets that a leader in memory reserves at a time.

All the controllers know about a partition's log is what its leaders have reserved. If all replicas
are lost, a new log begins there: no offset is ever given to two records, at the price of a gap.
"""


@attrs.frozen
class ChangesCommitted:
    """Changes of partitions are committed: they can be recorded."""

    changes: tuple[PartitionChange, ...]
    """The changes."""


@attrs.frozen
class PartitionChange:
    """A change of a partition."""

    partition: TopicPartition
    """The partition."""
    before: PartitionRegistration | None
    """What it was before; `None` if it is new."""
    after: PartitionRegistration
    """What it is now."""
    reason: str
    """Why it was changed."""


class PartitionDirector:
    """Brokers and partitions, as the active controller directs them."""

    def __init__(
        self,
        effects: Effects,
        settings: ClusterSettings,
        log: MetadataLog,
        image: Callable[[], MetadataImage],
        change: Callable[[Iterable[Entry]], None],
        reservations: Callable[[str], tuple[Reservation, ...]],
    ) -> None:
        """Know no broker. `change` makes changes of the image and puts them into the log.

        `reservations` lists what the leaders of a topic keep for groups without consumers.
        """
        self._effects = effects
        self._settings = settings
        self._in_memory = settings.storage == "memory"
        self._log = log
        self._image = image
        self._make = change
        self._reservations = reservations
        self.orders = BrokerOrders(
            log.promise, self._partitions_on, self._describe,
            lambda partition: partition not in image().replication.partitions,
        )  # fmt: skip
        self.heard_us: dict[str, int] = {}
        """When the last heartbeat of each broker arrived."""
        self.lost_leases: dict[str, int] = {}
        """The last lease of each broker that is known to have ended."""
        self.draining: dict[str, tuple[TopicPartition, ...]] = {}
        """Brokers that want to stop, and what they have led."""
        self.beginning: dict[TopicPartition, None] = {}
        """Partitions whose leaders have not begun yet: clients do not know them."""
        self._new: dict[str, None] = {}
        """Brokers that get a part of the replicas once they are active."""

    def activated(self) -> None:
        """Begin as the active controller: count all brokers as heard, and tell them everything."""
        control = self._image().replication
        self.heard_us = dict.fromkeys(control.brokers, self._effects.now)
        self.beginning.clear()
        self.draining.clear()
        self.lost_leases.clear()
        self.orders.clear()
        for name, broker in control.brokers.items():
            self._add_broker(name, broker.epoch)
        self._restart_lost()
        self.change(control.elect_leaders(), "a new active controller")

    def _add_broker(self, name: str, epoch: int) -> None:
        ref = self._effects.find(name)
        if ref is not None:
            self.orders.add_broker(name, ref, epoch)

    # Changes

    def change(self, entries: Iterable[Entry], reason: str, *, asked: bool = False) -> bool:
        """Make changes of brokers and partitions; return whether clients have to know.

        With `asked`, the leader has asked for them and gets an answer.
        """
        entries = list(entries)
        if not entries:
            return False
        control = self._image().replication
        affected = control.affected_brokers(entries)
        touched = [_partition_of(entry) for entry in entries if entry[0] == "partition"]
        before = {partition: control.partitions.get(partition) for partition in touched}
        self._make(entries)
        changes = tuple(
            PartitionChange(partition, known, control.partitions[partition], reason)
            for partition, known in before.items()
        )
        quiet = set()
        for each in changes:
            if each.before is not None and _route(each.before) == _route(each.after):
                quiet.add(each.partition)
            elif each.after.leader is not None and (
                each.before is None or each.before.leader_epoch != each.after.leader_epoch
            ):
                self.beginning[each.partition] = None
        for broker, partitions in affected.items():
            self.orders.add(
                broker,
                [
                    tp
                    for tp in partitions
                    if tp not in quiet or (control.partitions[tp].leader == broker and not asked)
                ],
            )
        if changes:
            self._log.promise(self._effects.ref, ChangesCommitted(changes))
        return len(quiet) < len(entries)

    def record(self, committed: ChangesCommitted) -> None:
        """Record changes of in-sync sets and replicas, and leaders that are lost."""
        for change in committed.changes:
            before, after = change.before, change.after
            if before is None:
                continue
            topic, number = change.partition
            where: dict[str, Any] = {"topic": topic, "partition": number}
            if before.isr != after.isr or len(before.replicas) != len(after.replicas):
                self._effects.record(
                    kinds.IN_SYNC_CHANGED, **where, count=len(after.isr),
                    total=len(after.replicas), epoch=after.leader_epoch, peer=after.leader,
                    reason=change.reason, detail=", ".join(after.isr),
                )  # fmt: skip
            if (before.replicas, before.adding) != (after.replicas, after.adding):
                self._effects.record(
                    kinds.REPLICAS_CHANGED, **where, total=len(after.replicas),
                    epoch=after.leader_epoch, reason=change.reason,
                    detail=", ".join(after.replicas),
                )  # fmt: skip
            if before.leader is not None and after.leader is None:
                self._effects.record(
                    kinds.LEADER_LOST, **where, peer=before.leader, epoch=after.leader_epoch,
                    reason=change.reason,
                )  # fmt: skip

    def repeat(self, before_us: int) -> None:
        """Tell brokers again what they have not answered, and leaders that have not begun."""
        partitions = self._image().replication.partitions
        for partition in self.beginning:
            leader = partitions[partition].leader
            if leader is not None:
                self.orders.add(leader, [partition])
        self.orders.repeat(before_us)
        self.flush()

    def flush(self) -> None:
        """Tell brokers what has changed."""
        self.orders.flush(self._log.term, self._effects.now)

    # Orders

    def _partitions_on(self, broker: str) -> Iterable[TopicPartition]:
        return sorted(self._image().replication.index.replicas.get(broker, ()))

    def _describe(self, broker: str, partition: TopicPartition) -> ReplicaOrder | None:
        image = self._image()
        known = image.replication.partitions.get(partition)
        if known is None or broker not in known.replicas:
            return None
        reservations = self._reservations(partition.topic) if broker == known.leader else ()
        return ReplicaOrder(
            partition, image.replication.topics[partition.topic], replica_state(known),
            self.address(partition, broker),
            None if known.leader is None else self.address(partition, known.leader),
            image.log_starts.get(partition, 0), image.reserved.get(partition, RESERVE),
            reservations,
        )  # fmt: skip

    def address(self, partition: TopicPartition, broker: str) -> str:
        """Return the name of the actor that is the replica of a broker."""
        control = self._image().replication
        deletions = control.deletions.get(partition.topic, 0)
        return replica_name(partition, broker, control.brokers[broker].life, deletions)

    def leader(self, partition: TopicPartition) -> Leader:
        """Describe the leader of a partition to clients."""
        known = self._image().replication.partitions[partition]
        ref = None
        if known.leader is not None and partition not in self.beginning:
            ref = self._effects.find(self.address(partition, known.leader))
        return Leader(ref, known.leader, known.leader_epoch)

    def on_orders_done(self, done: ReplicaOrdersDone) -> None:
        """Note that a broker has taken orders."""
        self.orders.done(done)

    def on_leads(self, leads: ReplicaLeads) -> bool:
        """Note that a leader has begun; return whether that is news."""
        partition = leads.partition
        known = self._image().replication.partitions.get(partition)
        if known is None or known.leader_epoch != leads.leader_epoch:
            return False
        if partition not in self.beginning:
            return False
        del self.beginning[partition]
        start = self._image().log_starts.get(partition, 0)
        began_anew = known.unclean and start > 0
        self._effects.record(
            kinds.LEADER_CHANGED,
            topic=partition.topic, partition=partition.partition, epoch=leads.leader_epoch,
            peer=known.leader, reason="unclean" if known.unclean else None,
            base_offset=start if began_anew else NULL_INT,
            detail=offset_gap(start) if began_anew else None,
        )  # fmt: skip
        return True

    def on_alter(self, alter: AlterPartition, sender: Ref) -> bool:
        """Change an in-sync set as its leader wants; return whether clients have to know."""
        control = self._image().replication
        changed = control.alter_isr(
            alter.partition, alter.broker, alter.broker_epoch, alter.leader_epoch,
            alter.partition_epoch, alter.in_sync,
        )  # fmt: skip
        if changed is IsrRefusal.INELIGIBLE_REPLICA:
            refused = AlterRefused(alter.partition, alter.leader_epoch, alter.partition_epoch)
            self._log.promise(sender, refused)
            return False
        if isinstance(changed, IsrRefusal):
            if alter.partition in control.partitions:
                self.orders.add(alter.broker, [alter.partition])
            return False
        is_news = self.change(changed, "proposed by the leader", asked=True)
        known = control.partitions[alter.partition]
        self._log.promise(sender, PartitionAltered(alter.partition, replica_state(known)))
        return is_news

    # Brokers

    def register(self, name: str, life: int, rack: str | None) -> bool:
        """Register a process of a broker; return whether it is a new one."""
        control = self._image().replication
        known = control.brokers.get(name)
        self.heard_us[name] = self._effects.now
        if known is not None and known.life == life:
            return False
        epoch = control.broker_epoch + 1
        # What the earlier process had stored may be incomplete, however it has ended: whether a
        # disk has lost something is known only when it is read (KIP-966).
        self.change(control.register(name, life, rack, epoch, clean=False), "registered again")
        self._add_broker(name, epoch)
        self._effects.record(kinds.BROKER_REGISTERED, peer=name)
        self._replace_lost(name, "registered again")
        self.draining.pop(name, None)
        self.lost_leases.pop(name, None)
        if known is None or self._in_memory or not control.index.targets.get(name):
            self._new[name] = None
        self.unfence(name)
        return True

    def heard(self, name: str) -> None:
        """Note a heartbeat of a broker; one that was fenced takes part again."""
        self.heard_us[name] = self._effects.now
        if self._image().replication.brokers[name].fenced:
            self.unfence(name)

    def has_lost_lease(self, beat: BrokerHeartbeat) -> bool:
        """Whether a heartbeat tells that another lease has ended; it is told until it is heard."""
        is_news = beat.lost_leases > self.lost_leases.get(beat.broker, 0)
        if is_news:
            self.lost_leases[beat.broker] = beat.lost_leases
        return is_news

    def unfence(self, name: str) -> None:
        """Let a broker take part, and give it a part of the replicas if it is new."""
        control = self._image().replication
        if self._in_memory:
            # Its memory is empty: it is not elected where it has led before.
            self.change([("unfence", name)], "the broker is back")
            self._restart_lost()
        self.change(control.unfence(name), "the broker is back")
        self._replace_lost(name, "the broker is back")
        if name in self._new:
            del self._new[name]
            self.change(control.rebalance_replicas(), "a broker joined")

    def silent(self) -> list[str]:
        """List the brokers that have been silent for the broker session timeout."""
        timeout_us = self._settings.broker_session_timeout_ms * 1_000
        now_us = self._effects.now
        return [
            name
            for name, broker in self._image().replication.brokers.items()
            if not broker.fenced and now_us - self.heard_us[name] > timeout_us
        ]

    def fence(self, name: str, reason: str) -> None:
        """Fence a broker: others lead its partitions, if they may."""
        self.draining.pop(name, None)
        self.change(self._image().replication.fence(name), reason)
        self._replace_lost(name, reason)
        if self._in_memory:
            self._new[name] = None  # what others have taken over is to be evened out again

    def _replace_lost(self, name: str, reason: str) -> None:
        """Begin logs anew whose only replica, in memory, was lost with its broker."""
        if not self._in_memory:
            return
        control = self._image().replication
        for partition in sorted(control.index.leaderless.get(name, ())):
            if control.partitions[partition].target == (name,):
                self._restart(partition, reason)

    def _restart_lost(self) -> None:
        """Begin logs anew, in memory, of which no replica is left that has all records.

        A broker that is fenced may still have them, and is eligible until it registers again.
        """
        if self._in_memory:
            partitions = self._image().replication.partitions
            leaderless = self._image().replication.index.leaderless
            for partition in sorted(set().union(*leaderless.values())):
                if not partitions[partition].elr:
                    self._restart(partition, "all replicas lost, in memory")

    def _restart(self, partition: TopicPartition, reason: str) -> None:
        """Begin a log anew, on brokers that are active, if there are any."""
        control, image = self._image().replication, self._image()
        entries = control.restart_empty(partition)
        if entries:
            start = image.reserved.get(partition, RESERVE)
            topic, number = partition
            anew = (
                ("log_start", topic, number, start),
                ("reserved", topic, number, start + RESERVE),
            )
            self.change([*anew, *entries], reason)

    # Controlled shutdown

    def drain(self, name: str) -> None:
        """Let others have what a stopping broker has: its only replicas first, then its leaders.

        If no other broker can have the only replicas, it waits for one.
        """
        control = self._image().replication
        self.draining.setdefault(name, tuple(control.index.led.get(name, ())))
        if control.brokers[name].stopping:
            return
        self.change(control.evacuate(name, sole=True), "controlled shutdown")
        if not self._has_to_move(name):
            self.change(control.begin_shutdown(name), "controlled shutdown")

    def _has_to_move(self, name: str) -> bool:
        """Whether a broker has replicas that others do not have yet."""
        control = self._image().replication
        known = (control.partitions[each] for each in control.index.replicas.get(name, ()))
        return any(name in each.removing or each.target == (name,) for each in known)

    def release_leaving(self) -> None:
        """Shut down the brokers that are to be removed and have no replicas, then forget them."""
        control = self._image().replication
        for name, broker in list(control.brokers.items()):
            if not broker.leaving or not control.is_empty(name):
                continue
            ref = self._effects.find(name)
            if broker.fenced:
                self.change(control.unregister(name), "removed")
                self.orders.remove_broker(name)
                self._effects.record(kinds.BROKER_REMOVED, peer=name)
            elif not broker.stopping and ref is not None:
                self._log.promise(ref, ShutDown())

    def may_stop(self, name: str) -> bool:
        """Whether a stopping broker leads nothing any more, and others have begun to."""
        control = self._image().replication
        if not control.brokers[name].stopping or control.has_leaders(name):
            return False
        led = self.draining.get(name, ())
        return not any(partition in self.beginning for partition in led)


def _partition_of(entry: Entry) -> TopicPartition:
    """The partition of an entry."""
    return TopicPartition(entry[1], entry[2])


def _route(known: PartitionRegistration) -> tuple[object, ...]:
    """What brokers other than the leader's have to know of a partition."""
    return known.leader, known.leader_epoch, known.replicas


def replica_state(known: PartitionRegistration) -> ReplicaState:
    """Describe a partition to its replicas."""
    return ReplicaState(
        known.replicas, known.isr, known.leader, known.leader_epoch, known.partition_epoch,
        known.unclean, known.throttle,
    )  # fmt: skip
