"""How fast the engines deliver messages, against the least that could do the same work.

The model is a ring: each of 1,000 actors hands every token it gets to its neighbour. The bare
heapq loop and SimPy run the very same handler; only who carries the message differs.
"""

import heapq
import threading
from itertools import count
from typing import Any

import attrs
import pykka
import simpy
from measure import Figure, best_rates

import wavetank as wt

ACTORS = 1_000
HOPS = 300
"""Times each token goes from hand to hand."""
DELAY_US = 500
TELLS = 200_000


@attrs.frozen
class Token:
    """What goes round."""


TOKEN = Token()


@attrs.frozen
class Sit:
    """Tells an actor who its neighbour is."""

    neighbour: Any


class Relay(wt.Actor):
    """Hands on what it gets."""

    neighbour: Any
    left = HOPS

    @wt.receives(Sit)
    def on_sit(self, sit: Sit) -> None:
        self.neighbour = sit.neighbour

    @wt.receives(Token)
    def on_token(self, token: Token) -> None:
        if self.left:
            self.left -= 1
            self.send(self.neighbour, token)


class BareRelay:
    """The same handler with a bare `send`."""

    left = HOPS
    on_token = Relay.on_token

    def __init__(self, loop: Any) -> None:
        self.send = loop
        self.handlers = {Token: BareRelay.on_token}


def simulated(nodes: int) -> int:
    """Our engine; the ring spans so many nodes, so that its messages cross the network or not."""
    with wt.SimulatedSystem(seed=1, network=wt.network.constant(f"{DELAY_US}us")) as system:
        ring = [system.spawn(Relay, f"relay-{i}", node=f"node-{i % nodes}") for i in range(ACTORS)]
        for i, ref in enumerate(ring):
            ref.tell(Sit(ring[(i + 1) % ACTORS]))
        for ref in ring:
            ref.tell(TOKEN)
        system.run_until_idle()
    return ACTORS * HOPS


def bare_heapq() -> int:
    """A heap of (time, number, receiver, message) and a loop; no engine could be smaller."""
    heap: list[tuple[int, int, BareRelay, object]] = []
    number = count()
    now_us = 0

    def send(to: BareRelay, message: object) -> None:
        heapq.heappush(heap, (now_us + DELAY_US, next(number), to, message))

    ring = [BareRelay(send) for _ in range(ACTORS)]
    for i, relay in enumerate(ring):
        relay.neighbour = ring[(i + 1) % ACTORS]
        send(relay, TOKEN)
    while heap:
        now_us, _, to, message = heapq.heappop(heap)
        to.handlers[type(message)](to, message)
    return ACTORS * HOPS


def simpy_events() -> int:
    """SimPy at its leanest: a time-out event for each delivery, whose callback is the handler."""
    env = simpy.Environment()

    def send(to: BareRelay, message: object) -> None:
        env.timeout(DELAY_US, (to, message)).callbacks.append(deliver)

    def deliver(event: Any) -> None:
        to, message = event.value
        to.handlers[type(message)](to, message)

    ring = [BareRelay(send) for _ in range(ACTORS)]
    for i, relay in enumerate(ring):
        relay.neighbour = ring[(i + 1) % ACTORS]
        send(relay, TOKEN)
    env.run()
    return ACTORS * HOPS


class Counter(wt.Actor):
    """Counts what it is told."""

    def __init__(self, done: threading.Event) -> None:
        self.done = done
        self.left = TELLS

    @wt.receives(Token)
    def on_token(self, token: Token) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()


class PykkaCounter(pykka.ThreadingActor):
    """The same as a plain Pykka actor."""

    def __init__(self, done: threading.Event) -> None:
        super().__init__()
        self.done = done
        self.left = TELLS

    def on_receive(self, message: object) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()


def live_tell() -> int:
    """Tell one live actor from outside until it has everything."""
    done = threading.Event()
    with wt.LiveSystem() as system:
        tell = system.spawn(Counter, "counter", done).tell
        for _ in range(TELLS):
            tell(TOKEN)
        done.wait()
    return TELLS


def pykka_tell() -> int:
    """Tell one stock Pykka actor."""
    done = threading.Event()
    ref = PykkaCounter.start(done)
    for _ in range(TELLS):
        ref.tell(TOKEN)
    done.wait()
    ref.stop()
    return TELLS


class Pusher(wt.Actor):
    """Tells another actor as often as the counter counts."""

    def __init__(self, counter: wt.Ref) -> None:
        self.counter = counter

    def started(self) -> None:
        for _ in range(TELLS):
            self.send(self.counter, TOKEN)


class PykkaPusher(pykka.ThreadingActor):
    """The same as a plain Pykka actor."""

    def __init__(self, counter: Any) -> None:
        super().__init__()
        self.counter = counter

    def on_start(self) -> None:
        for _ in range(TELLS):
            self.counter.tell(TOKEN)


def live_send() -> int:
    """One live actor sends to another."""
    done = threading.Event()
    with wt.LiveSystem() as system:
        counter = system.spawn(Counter, "counter", done)
        system.spawn(Pusher, "pusher", counter)
        done.wait()
    return TELLS


def pykka_send() -> int:
    """One stock Pykka actor tells another."""
    done = threading.Event()
    counter = PykkaCounter.start(done)
    pusher = PykkaPusher.start(counter)
    done.wait()
    pusher.stop()
    counter.stop()
    return TELLS


def run() -> list[Figure]:
    """Measure everything, in turns."""
    rates = best_rates(
        {
            "network": lambda: simulated(nodes=2),
            "local": lambda: simulated(nodes=1),
            "heapq": bare_heapq,
            "simpy": simpy_events,
            "live tell": live_tell,
            "pykka tell": pykka_tell,
            "live send": live_send,
            "pykka send": pykka_send,
        }
    )
    unit = "deliveries/s"
    network, local = "simulated, across nodes", "simulated, within a node"
    heap, simpy_name = "bare heapq loop", "SimPy events"
    return [
        Figure(network, rates["network"], heap, rates["heapq"], unit, target=0.6),
        Figure(network, rates["network"], simpy_name, rates["simpy"], unit, target=1.5),
        Figure(local, rates["local"], heap, rates["heapq"], unit, target=0.6),
        Figure(local, rates["local"], simpy_name, rates["simpy"], unit, target=1.5),
        Figure(
            "live tell, from outside",
            rates["live tell"],
            "Pykka tell",
            rates["pykka tell"],
            unit,
            target=3.0,
        ),
        Figure(
            "live send, actor to actor",
            rates["live send"],
            "Pykka tell",
            rates["pykka send"],
            unit,
            target=3.0,
        ),
    ]
