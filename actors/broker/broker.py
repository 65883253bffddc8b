"""A broker: leads partitions and hosts group coordinators, as child actors on its node.

It may do so only while it has a lease from the controller. Each answered heartbeat renews the lease
from the moment that the heartbeat was sent. A broker whose lease runs out ends its partitions
itself, before the controller gives them to other brokers: a partition never has two leaders.

A broker asks the controller that it knows to be active, and the next one when there is no answer.
Orders carry the term of the controller: one that is active no more cannot disturb.

A broker that is told to stop goes on until the controller has moved all of this to other brokers.
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
    Lead,
    Leading,
    NotController,
    Register,
    Retire,
    ShutDown,
    ShutdownAllowed,
    StorageFailed,
)
from ..controller_finder import ControllerFinder
from ..engine.actor import Actor, receives
from .coordinator import Coordinator
from .partition import Partition

if TYPE_CHECKING:
    from ...model.settings import ClusterSettings
    from ...model.topics import TopicPartition
    from ..engine.ref import Ref


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


class Broker(Actor):
    """One broker, on a node of its own."""

    def __init__(self, controllers: tuple[Ref, ...], settings: ClusterSettings) -> None:
        self.finder = ControllerFinder(controllers)
        self.term = 0
        """The highest term of a controller that it has heard of."""
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
        self.epoch = -1
        """Broker epoch of its last registration."""
        self.searching = False
        """Whether it is about to ask the next controller."""
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
        controller = self.finder.to_ask()
        if self.registered:
            heartbeat = BrokerHeartbeat(self.ref.name, self.session, self.now, self.stopping)
            self.send(controller, heartbeat)
        else:
            self.send(controller, Register(self.ref.name, self.session, self.now))

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

    @receives(ShutDown)
    def on_shut_down(self, shut_down: ShutDown) -> None:
        self.stopping = True
        if self.registered:
            self.on_beat(BrokerHeartbeatDue())
        else:
            self.stop()

    @receives(ShutdownAllowed)
    def on_shutdown_allowed(self, allowed: ShutdownAllowed) -> None:
        if allowed.session == self.session and self.obeys(allowed.term):
            self.stop()

    @receives(BrokerAlive)
    def on_alive(self, alive: BrokerAlive) -> None:
        if alive.session != self.session or not self.obeys(alive.term):
            return
        self.epoch = alive.epoch
        lease_end_us = alive.sent_us + self.settings.broker_session_timeout_ms * 1_000
        self.lease_end_us = max(self.lease_end_us, lease_end_us)
        if not self.registered:
            if self.lease_end_us > self.now:
                self.registered = True
                self.on_lease_check(LeaseCheck())
            else:
                self.on_beat(BrokerHeartbeatDue())  # it took long to store the registration

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
        if unknown.session == self.session and self.registered and self.obeys(unknown.term):
            self.step_down("removed by the controller")

    def step_down(self, reason: str) -> None:
        """Give up all partitions and coordinators, which others may have by now; register again."""
        self.record(kinds.BROKER_FENCED, count=len(self.partitions), reason=reason)
        for partition, leading in self.partitions.items():
            self.send(leading.ref, Drop(partition, lost=True, term=self.term))
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
        if not self.registered or not self.obeys(lead.term):
            return
        known = self.partitions.get(lead.partition)
        if known is None or known.epoch < lead.epoch:
            name = f"{lead.partition}" + (f"@{lead.epoch}" if lead.epoch else "")
            if known is not None and self.settings.storage == "disk":
                self.ready.discard(lead.partition)
                drop = Drop(lead.partition, lost=True, term=self.term)
                self.send(known.ref, drop)  # one actor writes the files
            ref = self.spawn(Partition, name, lead, self.ref, self.settings)
            known = self.partitions[lead.partition] = Leading(lead.partition, lead.epoch, ref)
            if self.settings.storage == "disk":
                return  # the partition says so itself, once it has read its log
        if self.settings.storage == "memory" or known.partition in self.ready:
            self.send(self.finder.current, known)

    @receives(Leading)
    def on_leading(self, leading: Leading) -> None:
        if self.partitions.get(leading.partition) == leading:
            self.ready.add(leading.partition)
            self.send(self.finder.current, leading)

    @receives(StorageFailed)
    def on_storage_failed(self, failed: StorageFailed) -> None:
        if not self.failed:
            self.failed = True
            self.record(kinds.STORAGE_FAILED, reason=failed.reason)
            self.stop()

    @receives(Drop)
    def on_drop(self, drop: Drop) -> None:
        if not self.obeys(drop.term):
            return
        leading = self.partitions.pop(drop.partition, None)
        self.ready.discard(drop.partition)
        if leading is not None:
            self.send(leading.ref, drop)

    @receives(HostCoordinator)
    def on_coordinate(self, coordinate: HostCoordinator) -> None:
        if not self.registered or not self.obeys(coordinate.term):
            return
        known = self.coordinators.get(coordinate.group)
        if known is None or known.epoch < coordinate.epoch:
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
