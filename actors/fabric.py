"""The network half of a system: nodes, the links between them, and what crosses.

What crosses nodes gets a verdict from the network's function; a fault is a state of a link that
`disturb` applies to that verdict, never a special case inside an actor.
"""

from __future__ import annotations

import abc
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any

import attrs

from ..model import kinds
from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError
from ..model.events import NULL_INT
from ..model.network import CALM, Faults, Verdict
from ..model.seeds import python_stream
from ..strategies.network import Network, disturb
from .node import Link, Node

if TYPE_CHECKING:
    from .eventlog import EventLog
    from .ref import Item


class Fabric(abc.ABC):
    """Nodes and links, their faults, and the way of a message through them."""

    now_us: int
    """The true time in µs since the system began: virtual or real."""

    def __init__(self, seed: int, network: Network, log: EventLog) -> None:
        self.seed = seed
        self.network = network
        self.log = log
        self.lock = RLock()
        self.nodes: dict[str, Node] = {}
        self.outside = Node("outside")
        """Where the user stands: no network lies between the outside and a node."""
        self._lamport = count(1)
        """The outside's Lamport clock: a counter needs no lock to advance, and all may tell."""

    # What a user does to links and clocks

    def cut(self, source: str, target: str, *, one_way: bool = False, hold: bool = False) -> None:
        """Let nothing through between two nodes, or only not from the first to the second.

        What is sent is lost, or with `hold` arrives once the link is healed.
        """
        fault = {"hold": True} if hold else {"cut": True}
        self._change_links(source, target, one_way, kinds.LINK_CUT, **fault)

    def heal(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Undo every fault of the link, and deliver what it held."""
        self._change_links(source, target, one_way, kinds.LINK_HEALED, **attrs.asdict(CALM))

    def slow(self, source: str, target: str, delay: Duration, *, one_way: bool = False) -> None:
        """Add a delay to whatever crosses the link."""
        delay_us = to_us(delay, "delay")
        self._change_links(source, target, one_way, kinds.LINK_CHANGED, delay_us=delay_us)

    def disturb(self, source: str, target: str, *, one_way: bool = False, **faults: float) -> None:
        """Set shares of messages to `drop`, `duplicate` and `reorder` (see `Faults`)."""
        known = {field.name for field in attrs.fields(Faults)}
        for name in faults:
            if name not in known:
                raise UnknownNameError("fault", name, known)
        self._change_links(source, target, one_way, kinds.LINK_CHANGED, **faults)

    def skew(self, node: str, offset: Duration, drift_ppm: int = 0) -> None:
        """Set a node's clock off by `offset` from now on, running fast by `drift_ppm`.

        Its actors read the wrong time; their timers measure durations, so only drift moves them.
        """
        offset_us = to_us(offset, "offset", negative=True)
        if not -1_000_000 < drift_ppm < 1_000_000:
            raise BadValueError(f"drift_ppm = {drift_ppm!r}: expected less than a million")
        with self.lock:
            skewed = self._node(node)
            skewed.skew(self.now_us, offset_us, drift_ppm)
            self.note(kinds.CLOCK_SKEWED, skewed, detail=f"{offset_us:+} us, {drift_ppm:+} ppm")

    # The way of a message

    def carry(self, source: Node, item: Item) -> None:
        """Bring a message to its receiver: straight into the inbox, or over the network."""
        if item[0].node is source:
            item[0].put(item)
        else:
            self.transmit(source, item)

    def transmit(self, source: Node, item: Item) -> None:
        """Let a message cross from node to node: the network's verdict decides."""
        target = item[0].node
        link = source.links.get(target)
        if link is None:
            if target is self.outside:
                item[0].put(item)
                return
            link = self._link(source, target)
        now_us = self.now_us
        verdict = self.network(source.name, target.name, item[1], now_us, link.random)
        if link.faults is not CALM:
            verdict = disturb(verdict, link.faults, link.random)
        if type(verdict) is int and verdict >= 0:
            due_us = now_us + verdict
            if due_us < link.last_us:
                due_us = link.last_us
            link.last_us = due_us
            self._deliver(link, due_us, item)
        else:
            self._carry_out(verdict, link, item, source, target)

    def _carry_out(
        self, verdict: int | Verdict, link: Link, item: Item, source: Node, target: Node
    ) -> None:
        """Do with a message what a verdict out of the ordinary says."""
        if not isinstance(verdict, Verdict) or min(verdict.delays_us, default=0) < 0:
            raise BadValueError(
                f"the network's verdict on {type(item[1]).__name__} = {verdict!r}: "
                "expected a delay in whole µs, zero or more, or a Verdict of such"
            )
        delays_us, hold, ordered = verdict
        if not delays_us:
            if hold:
                link.held.append(item)
            self._note_fate(kinds.HELD if hold else kinds.DROPPED, source, target, item)
            return
        due_us = self.now_us + delays_us[0]
        if ordered:
            due_us = link.last_us = max(due_us, link.last_us)
        self._deliver(link, due_us, item)
        for delay_us in delays_us[1:]:
            self._note_fate(kinds.DUPLICATED, source, target, item)
            self._deliver(link, self.now_us + delay_us, item)

    @abc.abstractmethod
    def _deliver(self, link: Link, due_us: int, item: Item) -> None:
        """Put a message into its receiver's inbox at this time."""

    # What is recorded

    def note(
        self,
        kind: str,
        node: Node,
        *,
        actor: str | None = None,
        count: int = NULL_INT,
        lamport: int | None = None,
        detail: str | None = None,
    ) -> None:
        """Record an event of the engine itself."""
        now_us = self.now_us
        row = (now_us, kind, node.name, actor, None, NULL_INT, None, None, None, NULL_INT, count)
        when = self.tick() if lamport is None else lamport
        self.log.append((*row, NULL_INT, NULL_INT, when, NULL_INT, node.clock_us(now_us), detail))

    def tick(self) -> int:
        """Advance the outside's Lamport clock: it takes part as one more process."""
        return next(self._lamport)

    def heard(self, lamport: int) -> None:
        """Take in the Lamport time of what has reached the outside."""
        with self.lock:
            self._lamport = count(max(lamport, next(self._lamport)) + 1)

    def _node(self, name: str) -> Node:
        try:
            return self.nodes[name]
        except KeyError:
            raise UnknownNameError("node", name, self.nodes) from None

    def _link(self, source: Node, target: Node) -> Link:
        with self.lock:
            link = source.links.get(target)
            if link is None:
                name = f"link {source.name} > {target.name}"
                link = source.links[target] = Link(python_stream(self.seed, name))
            return link

    def _change_links(
        self, source: str, target: str, one_way: bool, kind: str, **changes: Any
    ) -> None:
        first, second = self._node(source), self._node(target)
        if first is second:
            raise BadValueError(f"link {source!r} to {target!r}: expected two different nodes")
        for here, there in [(first, second)] if one_way else [(first, second), (second, first)]:
            link = self._link(here, there)
            with self.lock, link.lock:
                faults = attrs.evolve(link.faults, **changes)
                link.faults = CALM if faults == CALM else faults
                self.note(kind, here, detail=f"to {there.name}: {_describe(faults)}")
                held, link.held = link.held, []
            for item in held:
                self.transmit(here, item)

    def _note_fate(self, kind: str, source: Node, target: Node, item: Item) -> None:
        _, message, _, lamport = item
        what = f"{type(message).__name__} to {target.name}"
        self.note(kind, source, lamport=lamport, detail=what)


def _describe(faults: Faults) -> str:
    wrong = attrs.asdict(faults, filter=lambda field, value: value != field.default)
    return ", ".join(f"{name} {value}" for name, value in wrong.items()) or "calm"
