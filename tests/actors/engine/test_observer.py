"""Inboxes and messages, observed once in every interval, on either engine."""

from collections import Counter
from typing import Any

import attrs
import pytest
from conftest import DEADLINE, Engine

import wavetank as wt
from helpers.short_runs import quick
from wavetank.actors.engine.simulated import SimulatedHost
from wavetank.scenarios.runner import Runner

S = 1_000_000
OBSERVED = ("inbox_observed", "messages_observed")


@attrs.frozen
class Ping:
    """A message."""


@attrs.frozen
class Pong:
    """Its answer."""


class Wall(wt.Actor):
    """Throws everything back."""

    @wt.receives(Ping)
    def on_ping(self, ping: Ping) -> None:
        self.reply(Pong())


class Player(wt.Actor):
    """Plays so many balls against the wall, and looks up once a second."""

    def __init__(self, wall: Any, balls: int) -> None:
        self.wall, self.balls = wall, balls

    def started(self) -> None:
        self.every(S, Ping())
        for _ in range(self.balls):
            self.send(self.wall, Ping())

    @wt.receives(Ping)
    def on_ping(self, ping: Ping) -> None:
        """Time has passed."""

    @wt.receives(Pong)
    def on_pong(self, pong: Pong) -> None:
        """Caught it."""


def play(system: Any, balls: int = 3) -> None:
    wall = system.spawn(Wall, "wall", node="far")
    system.spawn(Player, "player", wall, balls, node="near")


def seen(system: Any) -> list[tuple[Any, ...]]:
    return [
        (e.time_us, e.kind, e.node, e.actor, e.count, _facts(e))
        for e in system.events.of(*OBSERVED)
    ]


def _facts(event: wt.Event) -> str:
    if event.message:
        return f"{event.message} from {event.peer}"
    return f"deepest {event.peak}, received {event.total}"


def test_each_interval_has_an_event_for_each_inbox_in_use_and_each_kind_of_message() -> None:
    with wt.SimulatedSystem(observe="2s") as system:
        play(system)
        system.run(for_=5)
    first, rest = 2 * S, [(4 * S, 2), (5 * S, 2)]
    assert seen(system) == [
        (first, "inbox_observed", "near", "player", 0, "deepest 3, received 5"),
        (first, "messages_observed", "near", "player", 1, "Ping from player"),
        (first, "messages_observed", "near", "player", 3, "Pong from wall"),
        (first, "messages_observed", "near", "player", 1, "StartActor from outside"),
        (first, "inbox_observed", "far", "wall", 0, "deepest 3, received 4"),
        (first, "messages_observed", "far", "wall", 3, "Ping from player"),
        (first, "messages_observed", "far", "wall", 1, "StartActor from outside"),
        *[
            event
            for at, count in rest
            for event in (
                (at, "inbox_observed", "near", "player", 0, f"deepest 1, received {count}"),
                (at, "messages_observed", "near", "player", count, "Ping from player"),
            )
        ],
    ]


def test_what_a_paused_node_does_not_take_is_waiting() -> None:
    with wt.SimulatedSystem(observe=1) as system:
        wall = system.spawn(Wall, "wall", node="far")
        system.run(for_="500ms")
        system.pause("far")
        system.spawn(Player, "player", wall, 7, node="near")
        system.run(for_=2)
        system.resume("far")
        system.run(for_=1)
    waiting = [e.count for e in system.events.of("inbox_observed") if e.actor == "wall"]
    assert waiting == [7, 7, 0]


def test_a_crash_and_a_failure_leave_no_trace_in_the_depth() -> None:
    class Clumsy(Wall):
        @wt.receives(Ping)
        def on_ping(self, ping: Ping) -> None:
            raise ValueError

    with wt.SimulatedSystem(observe=1) as system:
        clumsy = system.spawn(Clumsy, "wall", node="far", on_failure="restart")
        system.spawn(Player, "player", clumsy, 5, node="near")
        system.run(for_=1)
        system.pause("far")
        clumsy.tell(Ping())
        system.run(for_="1500ms")
        system.crash("far")
        system.restart("far")
        system.run(for_=3)
    walls = [(e.time_us, e.count) for e in system.events.of("inbox_observed") if e.actor == "wall"]
    assert walls == [(S, 0), (2 * S, 1), (3 * S, 0)]


@pytest.mark.parametrize("observe", [0, "0s", -1, "often"])
def test_an_interval_is_longer_than_nothing(engine: Engine, observe: Any) -> None:
    with pytest.raises(wt.errors.BadValueError, match="observe = "):
        engine(observe=observe)
    with pytest.raises(wt.errors.BadValueError, match="observe = "):
        quick(observe=observe)


def test_both_engines_observe_the_same_messages(engine: Engine) -> None:
    with engine(observe="20ms") as system:
        play(system, balls=50)
        system.run_until(
            lambda: sum(e.count or 0 for e in messages(system, "Pong")) == 50, timeout=DEADLINE
        )
        assert sum(e.count or 0 for e in messages(system, "Ping") if e.actor == "wall") == 50
    depths = system.events.of("inbox_observed")
    assert all(event.peak >= event.count for event in depths)
    received = sum(event.total for event in depths)
    assert received == sum(e.count or 0 for e in system.events.of("messages_observed"))


def messages(system: Any, kind: str) -> list[wt.Event]:
    found = system.events.of("messages_observed")
    return [e for e in found if e.message == kind]


FAULTS = [
    wt.actions.Crash(2, "billing-0", for_=2),
    wt.actions.Pause(3, "billing-1", for_=1),
    wt.actions.Crash(4, "broker-0", for_=1),
]


def events_of(scenario: wt.Scenario) -> list[wt.Event]:
    with Runner(scenario).run() as cluster:
        pass
    return [attrs.evolve(e, sequence=0) for e in cluster.events]


def test_to_be_observed_changes_nothing_that_happens() -> None:
    plain = events_of(quick(timeline=FAULTS))
    observed = events_of(quick(timeline=FAULTS, observe="100ms"))
    assert [e for e in observed if e.kind not in OBSERVED] == plain
    times = [e.time_us for e in observed]
    assert times == sorted(times)
    assert len({e.time_us for e in observed if e.kind in OBSERVED}) == 100


def test_all_that_is_handled_was_observed_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of a handler in an undisturbed run, but for what comes when all is over."""
    handled: Counter[tuple[str, str]] = Counter()
    receive = SimulatedHost.receive

    def count(host: Any, message: Any, sender: Any, lamport: int) -> None:
        inner = (
            getattr(message, "message", message) if type(message).__name__ == "Timer" else message
        )
        if not getattr(message, "cancelled", False):
            handled[host.ref.name, f"{type(inner).__name__} from {sender.name}"] += 1
        receive(host, message, sender, lamport)

    monkeypatch.setattr(SimulatedHost, "receive", count)
    observed: Counter[tuple[str, str]] = Counter()
    for event in events_of(quick(duration=3, observe="700ms")):
        if event.kind == "messages_observed":
            observed[event.actor or "", _facts(event)] += event.count or 0
    assert observed == handled
    assert observed.total() > 500
