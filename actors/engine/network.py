"""The network of a system: the links between nodes, their faults, and what crosses them.

A message that crosses nodes gets a verdict from the network model. A fault is a state of a link
that `disturb` applies to that verdict, never a special case inside an actor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ...model.durations import Duration, to_us
from ...model.errors import BadValueError, UnknownNameError
from ...model.events import kinds
from ...model.network import CALM, Faults, Verdict
from ...model.seeds import python_stream
from ...strategies.network import Always, NetworkModel, disturb
from .node import Link

if TYPE_CHECKING:
    from .node import Node
    from .ref import Item
    from .system import System


class Network:
    """Links and their faults, and the way of a message through them."""

    def __init__(self, system: System, model: NetworkModel) -> None:
        self._system = system
        self._model = model
        self.latency_us = model.latency_us if isinstance(model, Always) else None
        """The latency of every healthy link, if it is constant: then nothing needs a verdict."""

    # What a user does to links

    def cut(self, source: str, target: str, *, one_way: bool = False, hold: bool = False) -> None:
        """Block traffic between two nodes; with `one_way`, only from source to target.

        Messages are lost, or with `hold` arrive once the link is healed.
        """
        fault = {"hold": True} if hold else {"cut": True}
        self._change_links(source, target, one_way, kinds.LINK_CUT, **fault)

    def heal(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Remove every fault of the link, and deliver the messages it held."""
        self._change_links(source, target, one_way, kinds.LINK_HEALED, **attrs.asdict(CALM))

    def delay(self, source: str, target: str, delay: Duration, *, one_way: bool = False) -> None:
        """Add a delay to every message that crosses the link."""
        delay_us = to_us(delay, "delay")
        self._change_links(source, target, one_way, kinds.LINK_CHANGED, delay_us=delay_us)

    def disturb(self, source: str, target: str, *, one_way: bool = False, **faults: float) -> None:
        """Set the shares of messages to `drop`, `duplicate` and `reorder` (see `Faults`)."""
        known = {field.name for field in attrs.fields(Faults)}
        for name in faults:
            if name not in known:
                raise UnknownNameError("fault", name, known)
        self._change_links(source, target, one_way, kinds.LINK_CHANGED, **faults)

    # The way of a message

    def carry(self, source: Node, item: Item) -> None:
        """Bring a message to its receiver: straight into the inbox, or over the network."""
        if item[0].node is source:
            item[0].put(item)
        else:
            self.transmit(source, item)

    def transmit(self, source: Node, item: Item) -> None:
        """Let a message cross from node to node as the model's verdict says."""
        target, system = item[0].node, self._system
        link = source.links.get(target)
        if link is None:
            if target is system.outside:
                item[0].put(item)
                return
            link = self._link(source, target)
        with link.lock:
            now_us = system.now_us
            verdict = self._model(source.name, target.name, item[1], now_us, link.random)
            if link.faults is not CALM:
                verdict = disturb(verdict, link.faults, link.random)
            if type(verdict) is int and verdict >= 0:
                due_us = now_us + verdict
                if due_us < link.last_us:
                    due_us = link.last_us
                link.last_us = due_us
                system.deliver(link, due_us, item)
            else:
                self._carry_out(verdict, link, item, source, target)

    def _carry_out(
        self, verdict: int | Verdict, link: Link, item: Item, source: Node, target: Node
    ) -> None:
        """Apply a verdict that is more than a delay."""
        system = self._system
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
        due_us = system.now_us + delays_us[0]
        if ordered:
            due_us = link.last_us = max(due_us, link.last_us)
        system.deliver(link, due_us, item)
        for delay_us in delays_us[1:]:
            self._note_fate(kinds.DUPLICATED, source, target, item)
            system.deliver(link, system.now_us + delay_us, item)

    def _link(self, source: Node, target: Node) -> Link:
        with self._system.lock:
            link = source.links.get(target)
            if link is None:
                name = f"link {source.name} > {target.name}"
                link = source.links[target] = Link(python_stream(self._system.seed, name))
            return link

    def _change_links(
        self, source: str, target: str, one_way: bool, kind: str, **changes: Any
    ) -> None:
        system = self._system
        first, second = system.node(source), system.node(target)
        if first is second:
            raise BadValueError(f"link {source!r} to {target!r}: expected two different nodes")
        for here, there in [(first, second)] if one_way else [(first, second), (second, first)]:
            link = self._link(here, there)
            with system.lock, link.lock:
                faults = attrs.evolve(link.faults, **changes)
                link.faults = CALM if faults == CALM else faults
                system.note(kind, here, peer=there.name, detail=_describe(faults))
                held, link.held = link.held, []
            for item in held:
                self.transmit(here, item)

    def _note_fate(self, kind: str, source: Node, target: Node, item: Item) -> None:
        _, message, _, lamport = item
        what = type(message).__name__
        self._system.note(kind, source, lamport=lamport, message=what, peer=target.name)


def _describe(faults: Faults) -> str:
    wrong = attrs.asdict(faults, filter=lambda field, value: value != field.default)
    return ", ".join(f"{name} {value}" for name, value in wrong.items()) or "calm"
