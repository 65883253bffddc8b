"""A broker: has replicas of partitions and hosts group coordinators, as child actors on its node.

It asks the controller that it knows to be active, and the next one when there is no answer. Orders
carry the term of the controller: one that is active no more cannot disturb.

Each answered heartbeat gives it a lease from the moment that the heartbeat was sent. When the lease
ends, the controllers have fenced it, or soon will, and others coordinate its groups. Its replicas
go on, as Kafka's do: a leader that is replaced can commit nothing any more, because its followers
have left it. Only a partition in memory without another replica ends with the lease. The
controllers let it begin anew on another broker, and it must not have two leaders.

A broker that is told to stop runs until other brokers lead its partitions, where they can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ...model.events import kinds
from ...model.messages.cluster import (
    BrokerAlive,
    BrokerHeartbeat,
    BrokerUnknown,
    CoordinatorHosted,
    Drop,
    HostCoordinator,
    NotController,
    Register,
    Retire,
    ShutDown,
    ShutdownAllowed,
    StorageFailed,
)
from ...model.messages.replication import (
    ReplicaLeads,
    ReplicaOrder,
    ReplicaOrders,
    ReplicaOrdersDone,
)
from ..controller_finder import ControllerFinder
from ..engine.actor import Actor, Ended, receives
from .coordinator import Coordinator
from .partition import Partition

if TYPE_CHECKING:
    from ...model.settings import ClusterSettings
    from ...model.topics import TopicPartition
    from ..engine.ref import Ref
    from .loss_audit import LossAudit


SEARCH_US: Final = 100_000
"""Pause before the next controller is asked, when no active one is known."""


@attrs.frozen
class BrokerHeartbeatDue:
    """Time for a heartbeat to the controller."""


@attrs.frozen
class ControllerSearch:
    """Time to ask the next controller, as the last one does not know which one is active."""


@attrs.frozen
class LeaseCheck:
    """Time to check whether the lease has been renewed."""


@attrs.define(eq=False)
class Replica:
    """A replica on this broker."""

    ref: Ref
    """Its address."""
    order: ReplicaOrder
    """The last order that it got."""


class Broker(Actor):
    """One broker, on a node of its own."""

    def __init__(
        self,
        controllers: tuple[Ref, ...],
        settings: ClusterSettings,
        audit: LossAudit,
        rack: str | None = None,
    ) -> None:
        self.finder = ControllerFinder(controllers)
        self.settings = settings
        self.audit = audit
        self.rack = rack
        self.term = 0
        """The highest term of a controller that it has heard of."""
        self.epoch = -1
        """Its broker epoch; -1 before it is registered."""
        self.last_orders = (0, 0)
        """Term and number of the last orders that it has carried out."""
        self.replicas: dict[TopicPartition, Replica] = {}
        """Its replicas."""
        self.ending: dict[TopicPartition, Ref] = {}
        """Replicas that were told to end. One of the same partition has to wait for that."""
        self.waiting: dict[TopicPartition, ReplicaOrder] = {}
        """Orders that wait for the end of an earlier replica."""
        self.coordinators: dict[str, CoordinatorHosted] = {}
        """The coordinators that it hosts, by group."""
        self.has_lease = False
        self.lease_end_us = 0
        """When the lease ends, on this node's clock."""
        self.lost_leases = 0
        """Counts the leases that have ended."""
        self.lost_lease = False
        """Whether a lease has ended and the controllers may not know."""
        self.fence_requests: set[int] = set()
        """When heartbeats were sent since then."""
        self.searching = False
        """Whether it is about to ask the next controller."""
        self.stopping = False
        self.failed = False
        """Whether its disk has failed."""

    def started(self) -> None:
        self.every(
            self.settings.broker_heartbeat_interval_ms * 1_000, BrokerHeartbeatDue(), exactly=False
        )
        self.on_beat(BrokerHeartbeatDue())

    # The controller

    @receives(BrokerHeartbeatDue)
    def on_beat(self, due: BrokerHeartbeatDue) -> None:
        controller, name = self.finder.to_ask(), self.ref.name
        if self.epoch < 0:
            self.send(controller, Register(name, self.life, self.rack, self.now))
        else:
            if self.lost_lease:
                self.fence_requests.add(self.now)
            lost = self.lost_leases if self.lost_lease else 0
            beat = BrokerHeartbeat(name, self.epoch, self.now, self.stopping, lost)
            self.send(controller, beat)

    @receives(NotController)
    def on_not_controller(self, refused: NotController) -> None:
        if self.finder.refused(self.sender, refused.active):
            self.on_beat(BrokerHeartbeatDue())
        elif refused.active is None and not self.searching:
            self.searching = True
            self.after(SEARCH_US, ControllerSearch(), background=True)

    @receives(ControllerSearch)
    def on_controller_search(self, search: ControllerSearch) -> None:
        self.searching = False
        self.on_beat(BrokerHeartbeatDue())

    def obeys(self, term: int) -> bool:
        """Whether the message being handled is of the latest controller that it has heard of."""
        if term < self.term:
            return False
        self.term = term
        if self.sender in self.finder.controllers:
            self.finder.found(self.sender)
        return True

    @receives(BrokerAlive)
    def on_alive(self, alive: BrokerAlive) -> None:
        if alive.life != self.life or not self.obeys(alive.term):
            return
        self.epoch = alive.epoch
        if self.lost_lease:
            if alive.sent_us not in self.fence_requests:
                return  # the controllers may not know yet that the lease has ended
            self.lost_lease = False
            self.fence_requests.clear()
        lease_end_us = alive.sent_us + self.settings.broker_session_timeout_ms * 1_000
        self.lease_end_us = max(self.lease_end_us, lease_end_us)
        if not self.has_lease:
            if self.lease_end_us > self.now:
                self.has_lease = True
                self.on_lease_check(LeaseCheck())
            else:
                self.on_beat(BrokerHeartbeatDue())  # the answer took long

    @receives(BrokerUnknown)
    def on_unknown(self, unknown: BrokerUnknown) -> None:
        if unknown.epoch == self.epoch and self.obeys(unknown.term):
            self.epoch = -1
            self.on_beat(BrokerHeartbeatDue())

    @receives(LeaseCheck)
    def on_lease_check(self, check: LeaseCheck) -> None:
        left_us = self.lease_end_us - self.now
        if left_us > 0:
            self.after(left_us, check, background=True)
        else:
            self.end_lease()

    def end_lease(self) -> None:
        """Give up what others may have by now."""
        self.has_lease, self.lost_lease = False, True
        self.lost_leases += 1
        only = [
            partition
            for partition, replica in self.replicas.items()
            if self.settings.storage == "memory" and len(replica.order.state.replicas) == 1
        ]
        self.record(
            kinds.BROKER_FENCED, count=len(only),
            reason="no answer from the controller within the broker session timeout",
        )  # fmt: skip
        for partition in only:
            self.drop(Drop(partition, lost=True))
        for coordinating in self.coordinators.values():
            self.send(coordinating.ref, Retire())
        self.coordinators.clear()
        if self.stopping:
            self.stop()

    # Stopping

    @receives(ShutDown)
    def on_shut_down(self, shut_down: ShutDown) -> None:
        self.stopping = True
        if self.epoch >= 0 and self.has_lease:
            self.on_beat(BrokerHeartbeatDue())
        else:
            self.stop()

    @receives(ShutdownAllowed)
    def on_shutdown_allowed(self, allowed: ShutdownAllowed) -> None:
        if allowed.epoch == self.epoch and self.obeys(allowed.term):
            self.stop()

    @receives(StorageFailed)
    def on_storage_failed(self, failed: StorageFailed) -> None:
        if not self.failed:
            self.failed = True
            self.record(kinds.STORAGE_FAILED, reason=failed.reason)
            self.stop()

    # Replicas

    @receives(ReplicaOrders)
    def on_replica_orders(self, orders: ReplicaOrders) -> None:
        if orders.broker_epoch != self.epoch or not self.obeys(orders.term):
            return
        if (orders.term, orders.number) <= self.last_orders:
            return  # the network has delivered it again, or late: it is repeated if need be
        self.last_orders = orders.term, orders.number
        removed = list(orders.removed)
        if orders.complete:
            wanted = {order.partition for order in orders.orders}
            removed += [partition for partition in self.replicas if partition not in wanted]
        deleted = set(orders.deleted)
        for partition in removed:
            self.drop(Drop(partition, lost=False, deleted=partition in deleted))
        for order in orders.orders:
            self.carry_out(order)
        self.reply(ReplicaOrdersDone(self.ref.name, self.epoch, orders.number))

    def carry_out(self, order: ReplicaOrder) -> None:
        partition = order.partition
        known = self.replicas.get(partition)
        if known is not None and known.order.topic.id == order.topic.id:
            known.order = order
            self.send(known.ref, order)
            return
        if known is not None:  # the topic was deleted, and there is another one of its name
            self.drop(Drop(partition, lost=False, deleted=True))
        if partition in self.ending:
            self.waiting[partition] = order
            return
        ref = self.spawn(
            Partition, order.address, order, self.ref, self.epoch, self.settings,
            self.finder.controllers, self.audit,
        )  # fmt: skip
        self.replicas[partition] = Replica(ref, order)

    def drop(self, drop: Drop) -> None:
        """Have a replica end, if there is one."""
        self.waiting.pop(drop.partition, None)
        replica = self.replicas.pop(drop.partition, None)
        if replica is not None:
            self.ending[drop.partition] = replica.ref
            self.watch(replica.ref)
            self.send(replica.ref, drop)

    @receives(Ended)
    def on_ended(self, ended: Ended) -> None:
        for partition in [tp for tp, ref in self.ending.items() if ref is ended.ref]:
            del self.ending[partition]
            order = self.waiting.pop(partition, None)
            if order is not None:
                self.carry_out(order)

    @receives(ReplicaLeads)
    def on_replica_leads(self, leads: ReplicaLeads) -> None:
        self.send(self.finder.current, leads)

    # Coordinators

    @receives(HostCoordinator)
    def on_coordinate(self, coordinate: HostCoordinator) -> None:
        if not self.has_lease or not self.obeys(coordinate.term):
            return
        known = self.coordinators.get(coordinate.group)
        if known is None or known.epoch < coordinate.epoch:
            if known is not None:
                self.send(known.ref, Retire())
            epoch = f"@{coordinate.epoch}" if coordinate.epoch else ""
            ref = self.spawn(
                Coordinator,
                f"group-{coordinate.group}{epoch}",
                coordinate,
                self.finder.controllers,
            )
            known = CoordinatorHosted(coordinate.group, coordinate.epoch, ref)
            self.coordinators[coordinate.group] = known
        self.reply(known)
