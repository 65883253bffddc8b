"""A broker: leads partitions and hosts group coordinators, as children on its node.

It may do so only while the controller counts on it. Each answered heartbeat is a lease from the
moment the heartbeat was sent; a broker whose lease runs out ends its partitions itself, before the
controller gives them to others: there are never two leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..model import kinds
from ..model.protocol import (
    BrokerAlive,
    BrokerHeartbeat,
    BrokerUnknown,
    Coordinate,
    Coordinating,
    Drop,
    Lead,
    Leading,
    Register,
    Retire,
)
from .actor import Actor, receives
from .coordinator import Coordinator
from .partition import Partition

if TYPE_CHECKING:
    from ..model.settings import ClusterSettings
    from ..model.topics import TopicPartition
    from .ref import Ref


@attrs.frozen
class Beat:
    """Time for a heartbeat."""


@attrs.frozen
class LeaseCheck:
    """Time to see whether the lease has been renewed."""


class Broker(Actor):
    """One broker."""

    def __init__(self, controller: Ref, settings: ClusterSettings) -> None:
        self.controller = controller
        self.settings = settings
        self.led: dict[TopicPartition, Leading] = {}
        self.groups: dict[str, Coordinating] = {}
        self.registrations = 1
        self.registered = False
        self.lease_us = 0
        """Until when the controller counts on this broker, on this node's clock."""

    @property
    def session(self) -> tuple[int, int]:
        return (self.life, self.registrations)

    def started(self) -> None:
        self.every(self.settings.broker_heartbeat_interval_ms * 1_000, Beat())
        self.on_beat(Beat())

    @receives(Beat)
    def on_beat(self, beat: Beat) -> None:
        offer = BrokerHeartbeat if self.registered else Register
        self.send(self.controller, offer(self.ref.name, self.session, self.now))

    @receives(BrokerAlive)
    def on_alive(self, alive: BrokerAlive) -> None:
        if alive.session != self.session:
            return
        lease_us = alive.sent_us + self.settings.broker_session_timeout_ms * 1_000
        self.lease_us = max(self.lease_us, lease_us)
        if not self.registered:
            self.registered = True
            self.on_lease_check(LeaseCheck())

    @receives(LeaseCheck)
    def on_lease_check(self, check: LeaseCheck) -> None:
        if self.registered:
            left_us = self.lease_us - self.now
            if left_us > 0:
                self.after(left_us, check)
            else:
                self.step_down("no answer from the controller within the broker session timeout")

    @receives(BrokerUnknown)
    def on_unknown(self, unknown: BrokerUnknown) -> None:
        if unknown.session == self.session and self.registered:
            self.step_down("the controller counts on it no more")

    def step_down(self, reason: str) -> None:
        """Give up everything, for by now others may have been put in charge; offer oneself anew."""
        self.record(kinds.BROKER_FENCED, count=len(self.led), detail=reason)
        for partition, leading in self.led.items():
            self.send(leading.ref, Drop(partition, lost=True))
        for coordinating in self.groups.values():
            self.send(coordinating.ref, Retire())
        self.led.clear()
        self.groups.clear()
        self.registered = False
        self.registrations += 1
        self.on_beat(Beat())

    @receives(Lead)
    def on_lead(self, lead: Lead) -> None:
        known = self.led.get(lead.partition)
        if known is None or known.epoch < lead.epoch:
            name = f"{lead.partition}" + (f"@{lead.epoch}" if lead.epoch else "")
            ref = self.spawn(Partition, name, lead, self.ref.name, self.settings)
            known = self.led[lead.partition] = Leading(lead.partition, lead.epoch, ref)
        self.send(self.controller, known)

    @receives(Drop)
    def on_drop(self, drop: Drop) -> None:
        leading = self.led.pop(drop.partition, None)
        if leading is not None:
            self.send(leading.ref, drop)

    @receives(Coordinate)
    def on_coordinate(self, coordinate: Coordinate) -> None:
        known = self.groups.get(coordinate.group)
        if known is None or known.epoch < coordinate.epoch:
            epoch = f"@{coordinate.epoch}" if coordinate.epoch else ""
            ref = self.spawn(
                Coordinator,
                f"group-{coordinate.group}{epoch}",
                coordinate.config,
                coordinate.metadata,
                self.controller,
            )
            known = Coordinating(coordinate.group, coordinate.epoch, ref)
            self.groups[coordinate.group] = known
        self.send(self.controller, known)
