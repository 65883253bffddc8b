"""A broker: leads partitions and hosts group coordinators, as child actors on its node.

It may do so only while it has a lease from the controller. Each answered heartbeat renews the lease
from the moment that the heartbeat was sent. A broker whose lease runs out ends its partitions
itself, before the controller gives them to other brokers: a partition never has two leaders.

A broker that is told to stop goes on until the controller has moved all of this to other brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...model.events import kinds
from ...model.messages.cluster import (
    BrokerAlive,
    BrokerHeartbeat,
    BrokerUnknown,
    CoordinatorHosted,
    Drop,
    HostCoordinator,
    Lead,
    Leading,
    Register,
    Retire,
    ShutDown,
    ShutdownAllowed,
    StorageFailed,
)
from ..engine.actor import Actor, receives
from .coordinator import Coordinator
from .partition import Partition

if TYPE_CHECKING:
    from ...model.settings import ClusterSettings
    from ...model.topics import TopicPartition
    from ..engine.ref import Ref


@attrs.frozen
class BrokerHeartbeatDue:
    """Time for a heartbeat to the controller."""


@attrs.frozen
class LeaseCheck:
    """Time to check whether the lease has been renewed."""


class Broker(Actor):
    """One broker, on a node of its own."""

    def __init__(self, controller: Ref, settings: ClusterSettings) -> None:
        self.controller = controller
        self.settings = settings
        self.partitions: dict[TopicPartition, Leading] = {}
        """The partitions that it leads."""
        self.coordinators: dict[str, CoordinatorHosted] = {}
        """The coordinators that it hosts, by group."""
        self.registrations = 1
        """Counts its registrations since the node started."""
        self.registered = False
        self.lease_end_us = 0
        """When the lease ends, on this node's clock."""
        self.stopping = False
        self.ready: set[TopicPartition] = set()
        """The partitions on disk that have read their logs."""
        self.failed = False
        """Whether its disk has failed."""

    @property
    def session(self) -> tuple[int, int]:
        """Identifies its registration: after each, a broker starts without partitions."""
        return (self.life, self.registrations)

    def started(self) -> None:
        self.every(
            self.settings.broker_heartbeat_interval_ms * 1_000, BrokerHeartbeatDue(), exactly=False
        )
        self.on_beat(BrokerHeartbeatDue())

    @receives(BrokerHeartbeatDue)
    def on_beat(self, beat: BrokerHeartbeatDue) -> None:
        if self.registered:
            heartbeat = BrokerHeartbeat(self.ref.name, self.session, self.now, self.stopping)
            self.send(self.controller, heartbeat)
        else:
            self.send(self.controller, Register(self.ref.name, self.session, self.now))

    @receives(ShutDown)
    def on_shut_down(self, shut_down: ShutDown) -> None:
        self.stopping = True
        if self.registered:
            self.on_beat(BrokerHeartbeatDue())
        else:
            self.stop()

    @receives(ShutdownAllowed)
    def on_shutdown_allowed(self, allowed: ShutdownAllowed) -> None:
        if allowed.session == self.session:
            self.stop()

    @receives(BrokerAlive)
    def on_alive(self, alive: BrokerAlive) -> None:
        if alive.session != self.session:
            return
        lease_end_us = alive.sent_us + self.settings.broker_session_timeout_ms * 1_000
        self.lease_end_us = max(self.lease_end_us, lease_end_us)
        if not self.registered:
            self.registered = True
            self.on_lease_check(LeaseCheck())

    @receives(LeaseCheck)
    def on_lease_check(self, check: LeaseCheck) -> None:
        if self.registered:
            left_us = self.lease_end_us - self.now
            if left_us > 0:
                self.after(left_us, check, background=True)
            else:
                self.step_down("no answer from the controller within the broker session timeout")

    @receives(BrokerUnknown)
    def on_unknown(self, unknown: BrokerUnknown) -> None:
        if unknown.session == self.session and self.registered:
            self.step_down("removed by the controller")

    def step_down(self, reason: str) -> None:
        """Give up all partitions and coordinators, which others may have by now; register again."""
        self.record(kinds.BROKER_FENCED, count=len(self.partitions), reason=reason)
        for partition, leading in self.partitions.items():
            self.send(leading.ref, Drop(partition, lost=True))
        for coordinating in self.coordinators.values():
            self.send(coordinating.ref, Retire())
        self.partitions.clear()
        self.ready.clear()
        self.coordinators.clear()
        self.registered = False
        self.registrations += 1
        if self.stopping:
            self.stop()
        else:
            self.on_beat(BrokerHeartbeatDue())

    @receives(Lead)
    def on_lead(self, lead: Lead) -> None:
        known = self.partitions.get(lead.partition)
        if known is None or known.epoch < lead.epoch:
            name = f"{lead.partition}" + (f"@{lead.epoch}" if lead.epoch else "")
            if known is not None and self.settings.storage == "disk":
                self.ready.discard(lead.partition)
                self.send(known.ref, Drop(lead.partition, lost=True))  # one actor writes the files
            ref = self.spawn(Partition, name, lead, self.ref, self.settings)
            known = self.partitions[lead.partition] = Leading(lead.partition, lead.epoch, ref)
            if self.settings.storage == "disk":
                return  # the partition says so itself, once it has read its log
        if self.settings.storage == "memory" or known.partition in self.ready:
            self.send(self.controller, known)

    @receives(Leading)
    def on_leading(self, leading: Leading) -> None:
        if self.partitions.get(leading.partition) == leading:
            self.ready.add(leading.partition)
            self.send(self.controller, leading)

    @receives(StorageFailed)
    def on_storage_failed(self, failed: StorageFailed) -> None:
        if not self.failed:
            self.failed = True
            self.record(kinds.STORAGE_FAILED, reason=failed.reason)
            self.stop()

    @receives(Drop)
    def on_drop(self, drop: Drop) -> None:
        leading = self.partitions.pop(drop.partition, None)
        self.ready.discard(drop.partition)
        if leading is not None:
            self.send(leading.ref, drop)

    @receives(HostCoordinator)
    def on_coordinate(self, coordinate: HostCoordinator) -> None:
        known = self.coordinators.get(coordinate.group)
        if known is None or known.epoch < coordinate.epoch:
            epoch = f"@{coordinate.epoch}" if coordinate.epoch else ""
            ref = self.spawn(
                Coordinator,
                f"group-{coordinate.group}{epoch}",
                coordinate,
                self.controller,
            )
            known = CoordinatorHosted(coordinate.group, coordinate.epoch, ref)
            self.coordinators[coordinate.group] = known
        self.send(self.controller, known)
