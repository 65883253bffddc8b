"""A node: the machine or process that actors live on, with its clock and its links."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...model.network import CALM, Faults

if TYPE_CHECKING:
    from random import Random

    from .actor import Program
    from .host import Host
    from .ref import Item

NodeState: TypeAlias = Literal["up", "paused", "crashed"]

_PPM = 1_000_000


class Link:
    """One direction between two nodes: its faults, and what it carries."""

    __slots__ = ("faults", "held", "in_transit", "last_us", "lock", "random")

    def __init__(self, random: Random) -> None:
        self.random = random
        self.faults: Faults = CALM
        self.last_us = 0
        """When the last ordered message arrives: the next one may not overtake it."""
        self.held: list[Item] = []
        """Messages that wait for the link to be healed."""
        self.in_transit = 0
        """The number of messages that the live engine's clock thread has not delivered yet."""
        self.lock = Lock()


class Node:
    """A machine or process on which actors live, pause and crash together."""

    __slots__ = (
        "aside",
        "drift_ppm",
        "hosts",
        "links",
        "monotonic_us",
        "name",
        "offset_us",
        "programs",
        "skewed_us",
        "state",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: NodeState = "up"
        self.hosts: dict[str, Host] = {}
        """The actors that live here now, in the order in which they started."""
        self.programs: list[Program] = []
        """The actors that a restart starts again: those that the outside had started."""
        self.links: dict[Node, Link] = {}
        """Its outgoing links, by the receiving node."""
        self.aside: list[Item] = []
        """Messages that reached the node while it was paused, in a simulation."""
        self.offset_us = 0
        self.drift_ppm = 0
        self.skewed_us = 0
        self.monotonic_us = 0
        """What its monotonic clock showed when the clock was last set off."""

    def clock_us(self, now_us: int) -> int:
        """The time on this node's clock at the true time `now_us`."""
        if self.drift_ppm:
            return now_us + self._offset_at(now_us)
        return now_us + self.offset_us

    def skew(self, now_us: int, offset_us: int, drift_ppm: int) -> None:
        """Set the clock off by `offset_us` from now on, and let it drift."""
        self.monotonic_us = self.steady_us(now_us)
        self.offset_us, self.drift_ppm, self.skewed_us = offset_us, drift_ppm, now_us

    def steady_us(self, now_us: int) -> int:
        """The time on a clock of this node that nobody sets: it drifts, and never jumps."""
        since_us = now_us - self.skewed_us
        return self.monotonic_us + since_us + since_us * self.drift_ppm // _PPM

    def true_us(self, duration_us: int) -> int:
        """How long a duration measured by this node's clock really takes, rounded up.

        Rounded down, it would end before the clock says so, and an actor that then waits for the
        last microsecond would wait no time at all, for ever.
        """
        if self.drift_ppm:
            return -(-duration_us * _PPM // (_PPM + self.drift_ppm))
        return duration_us

    def _offset_at(self, now_us: int) -> int:
        return self.offset_us + (now_us - self.skewed_us) * self.drift_ppm // _PPM
