"""What happens to nodes: crash, restart, pause and wrong clocks."""

import threading
from typing import Any

import attrs
import pytest

import wavetank as wt
from helpers.notebook import Follow, Note, Notebook, Pass, Read, notes


@attrs.frozen
class Tick:
    """What timers send in these tests."""


def details(system: Any, kind: str) -> list[Any]:
    """What the events of a kind say, in words."""
    found = []
    for event in system.events.of(kind):
        message = event.message and f"{event.message} from {event.peer}"
        found.append(": ".join(filter(None, (message, event.reason, event.detail))))
    return found


def test_a_crash_takes_all_actors_of_a_node_and_only_these(system: Any, settle: Any) -> None:
    a, b = system.spawn(Notebook, "a", node="n"), system.spawn(Notebook, "b", node="n")
    other = system.spawn(Notebook, "other", node="m")
    settle(system)
    system.crash("n")
    a.tell(Note("lost"))
    settle(system)
    assert (a.is_alive(), b.is_alive(), other.is_alive()) == (False, False, True)
    assert details(system, "stopped") == ["crashed", "crashed"]
    assert details(system, "undeliverable") == ["Note from outside"]
    assert [event.count for event in system.events.of("node_crashed")] == [2]
    assert not system.events.of("closed"), "a crashed actor has no time for an orderly end"


def test_the_threads_of_a_crashed_node_end_also_if_its_actors_are_told_something_then(
    settle: Any,
) -> None:
    with wt.LiveSystem() as system:
        refs = [system.spawn(Notebook, f"a{number}", node="n") for number in range(50)]
        settle(system)
        system.crash("n")
        for ref in refs:
            ref.tell(Note("lost"))
        threads = [ref.host.thread for ref in refs]
        system.run_until(lambda: not any(map(threading.Thread.is_alive, threads)), timeout=10)
        assert details(system, "undeliverable") == ["Note from outside"] * 50


def test_a_crashed_node_loses_what_is_in_its_inboxes_and_on_its_timers(simulated: Any) -> None:
    class Clock(Notebook):
        def started(self) -> None:
            self.after(1_000, Note("rung"))

    clock = simulated.spawn(Clock, "clock", node="n")
    simulated.run(for_=0.0005)
    clock.tell(Note("in the inbox"))
    simulated.crash("n")
    simulated.restart("n")
    simulated.run(for_=0.0009)
    assert notes(clock) == []
    simulated.run_until_idle()
    assert notes(clock) == ["rung"], "its own timer, not that of the life before"
    assert simulated.events.of("noted")[0].time_us == 1_500
    assert details(simulated, "undeliverable") == ["Note from outside"]


def test_a_restarted_node_has_its_actors_back_without_their_memory(
    system: Any, settle: Any
) -> None:
    class PayloadStore(Notebook):
        def __init__(self, motto: str) -> None:
            super().__init__()
            self.motto = motto

        def started(self) -> None:
            self.notes.append(self.motto)

    book = system.spawn(PayloadStore, "book", "once more", node="n")
    book.tell(Note("forgotten"))
    settle(system)
    system.crash("n")
    system.restart("n")
    book.tell(Note("new"))
    assert notes(book) == ["once more", "new"]
    assert [event.count for event in system.events.of("node_restarted")] == [1]


def test_a_restart_starts_what_the_user_spawned_and_leaves_the_rest_to_it(
    system: Any, settle: Any
) -> None:
    class Parent(wt.Actor):
        def started(self) -> None:
            self.spawn(Notebook, "child")

    system.spawn(Parent, "parent", node="n")
    system.spawn(Notebook, "retired", node="n").stop()
    settle(system)
    system.crash("n")
    assert not system.ref("child").is_alive()
    system.restart("n")
    settle(system)
    assert system.ref("child").is_alive()
    assert not system.ref("retired").is_alive()


def test_what_was_on_its_way_to_a_crashed_node_does_not_reach_its_next_life(
    simulated: Any,
) -> None:
    a, b = simulated.spawn(Notebook, "a", node="l"), simulated.spawn(Notebook, "b", node="r")
    a.tell(Pass(b, "old"))
    simulated.run(for_=0.0001)
    simulated.crash("r")
    simulated.restart("r")
    simulated.run_until_idle()
    assert notes(b) == []
    assert details(simulated, "undeliverable") == ["Note from a"]


def test_a_restarted_actor_draws_other_random_numbers_than_in_its_life_before(
    system: Any,
) -> None:
    class Dice(wt.Actor):
        @wt.receives(Read)
        def on_read(self, read: Read) -> None:
            self.reply(self.random.random())

    dice = system.spawn(Dice, "dice", node="n")
    first = dice.ask(Read(), timeout=20)
    system.crash("n")
    system.restart("n")
    assert dice.ask(Read(), timeout=20) != first


def test_a_watcher_elsewhere_hears_of_a_crash(system: Any, settle: Any) -> None:
    watcher, book = system.spawn(Notebook, "w", node="m"), system.spawn(Notebook, "book", node="n")
    watcher.tell(Follow(book))
    settle(system)
    system.crash("n")
    settle(system)
    assert notes(watcher) == [("book", "crashed")]


def test_a_handler_that_a_live_crash_interrupts_has_no_further_effect() -> None:
    at_work, crashed = threading.Event(), threading.Event()

    class Worker(wt.Actor):
        def __init__(self, other: wt.Ref) -> None:
            self.other = other

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            at_work.set()
            crashed.wait()
            self.send(self.other, Note("from beyond"))

    with wt.LiveSystem() as system:
        book = system.spawn(Notebook, "book", node="m")
        worker = system.spawn(Worker, "worker", book, node="n")
        answer = worker.ask(Tick(), block=False)
        at_work.wait()
        system.crash("n")
        crashed.set()
        with pytest.raises(wt.errors.ActorDeadError, match="crashed"):
            answer.get(timeout=20)
        system.run_until_idle(timeout=20)
        assert notes(book) == []


def test_an_actor_that_crashes_its_own_node_has_no_further_effect(system: Any, settle: Any) -> None:
    class Saboteur(wt.Actor):
        def __init__(self, other: wt.Ref) -> None:
            self.other = other

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            self.send(self.other, Note("before"))
            system.crash("n")
            self.send(self.other, Note("from beyond"))

    book = system.spawn(Notebook, "book", node="m")
    system.spawn(Saboteur, "saboteur", book, node="n").tell(Tick())
    settle(system)
    assert notes(book) == ["before"]


def test_a_paused_node_does_nothing_and_loses_nothing(system: Any, settle: Any) -> None:
    a, b = system.spawn(Notebook, "a", node="l"), system.spawn(Notebook, "b", node="r")
    settle(system)
    system.pause("r")
    for number in range(3):
        a.tell(Pass(b, number))
    b.tell(Note("told"))
    settle(system)
    system.run(for_=0.05)
    assert not system.events.of("noted")
    system.resume("r")
    settle(system)
    assert sorted(map(str, notes(b))) == ["0", "1", "2", "told"]
    assert [text for text in notes(b) if text != "told"] == [0, 1, 2]
    assert [e.kind for e in system.events.of("node_paused", "node_resumed")] == [
        "node_paused",
        "node_resumed",
    ]


def test_an_actor_spawned_on_a_paused_node_waits(system: Any, settle: Any) -> None:
    system.spawn(Notebook, "first", node="n")
    system.pause("n")
    late = system.spawn(Notebook, "late", node="n")
    late.tell(Note("x"))
    settle(system)
    assert not system.events.of("noted")
    system.resume("n")
    assert notes(late) == ["x"]


def test_timers_that_come_due_in_a_pause_go_off_at_its_end_without_piling_up(
    simulated: Any,
) -> None:
    class Clock(wt.Actor):
        def started(self) -> None:
            self.every(10_000, Tick())

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            self.record("ticked")

    simulated.spawn(Clock, "clock", node="n")
    simulated.run(for_=0.015)
    simulated.pause("n")
    simulated.run(for_=0.05)
    simulated.resume("n")
    simulated.run(until=0.085)
    assert [event.time_us for event in simulated.events.of("ticked")] == [
        10_000,
        65_000,
        70_000,
        80_000,
    ]


def test_a_node_that_crashes_while_paused_loses_what_it_held(system: Any, settle: Any) -> None:
    book = system.spawn(Notebook, "book", node="n")
    settle(system)
    system.pause("n")
    book.tell(Note("held"))
    settle(system)
    system.crash("n")
    system.restart("n")
    settle(system)
    assert notes(book) == []
    assert details(system, "undeliverable") == ["Note from outside"]


def test_a_paused_system_stops_all_the_same(engine: Any) -> None:
    with engine() as system:
        book = system.spawn(Notebook, "book", node="n")
        system.pause("n")
        book.tell(Note("never"))
    assert not book.is_alive()


def test_a_skewed_clock_is_read_wrong_and_recorded_beside_the_true_time(
    system: Any, settle: Any
) -> None:
    right, wrong = system.spawn(Notebook, "a", node="r"), system.spawn(Notebook, "b", node="w")
    system.skew("w", "-2s")
    for book in (right, wrong):
        book.tell(Note("x"))
    settle(system)
    offsets = {event.actor: event.clock_us - event.time_us for event in system.events.of("noted")}
    assert offsets == {"a": 0, "b": -2_000_000}
    assert details(system, "clock_skewed") == ["-2000000 us, +0 ppm"]


def test_a_drifting_clock_goes_further_wrong_and_its_timers_with_it(simulated: Any) -> None:
    class Clock(wt.Actor):
        def started(self) -> None:
            self.record("began")
            self.after(10_000_000, Tick())

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            self.record("rang")

    simulated.spawn(Notebook, "first", node="fast")
    simulated.skew("fast", "1s", drift_ppm=250_000)
    simulated.spawn(Clock, "clock", node="fast")
    simulated.run_until_idle()
    [began], [rang] = simulated.events.of("began"), simulated.events.of("rang")
    assert began.clock_us == 1_000_000
    assert rang.time_us == 8_000_000, "ten of its seconds are eight true ones"
    assert rang.clock_us == 11_000_000


@pytest.mark.parametrize("drift_ppm", [20_000, 1, -1, -300_000])
def test_who_waits_for_a_time_on_a_drifting_clock_gets_there(
    simulated: Any, drift_ppm: int
) -> None:
    class Waiter(wt.Actor):
        def started(self) -> None:
            self.due_us = self.now + 1_003
            self.times = 0
            self.after(self.due_us - self.now, Tick())

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            self.times += 1
            assert self.times < 5, "a timer that goes off too early is set again and again"
            if self.now < self.due_us:
                self.after(self.due_us - self.now, Tick())
            else:
                self.record("rang")

    simulated.spawn(Notebook, "first", node="n")
    simulated.run(for_=0.000_7)
    simulated.skew("n", "1s", drift_ppm)
    simulated.run(for_=0.000_33)
    for number in range(50):
        simulated.spawn(Waiter, f"waiter-{number}", node="n")
        simulated.run(for_=0.000_011)
    simulated.run_until_idle()
    assert len(simulated.events.of("rang")) == 50


def test_a_skew_can_be_taken_back(simulated: Any) -> None:
    book = simulated.spawn(Notebook, "book", node="n")
    simulated.skew("n", 5, drift_ppm=100)
    simulated.run(for_=1)
    simulated.skew("n", 0)
    book.tell(Note("x"))
    simulated.run_until_idle()
    [event] = simulated.events.of("noted")
    assert event.clock_us == event.time_us


def test_pausing_crashing_and_resuming_twice_is_as_good_as_once(system: Any) -> None:
    system.spawn(Notebook, "book", node="n")
    for _ in range(2):
        system.pause("n")
    for _ in range(2):
        system.resume("n")
    for _ in range(2):
        system.crash("n")
    kinds = [e.kind for e in system.events.of("node_paused", "node_resumed", "node_crashed")]
    assert kinds == ["node_paused", "node_resumed", "node_crashed"]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda s: s.crash("borker"),
            wt.errors.UnknownNameError,
            "'borker': did you mean 'broker'",
        ),
        (
            lambda s: s.restart("broker"),
            wt.errors.BadValueError,
            "is up: only a crashed one restarts",
        ),
        (lambda s: s.pause("dead"), wt.errors.BadValueError, "is crashed: it cannot be paused"),
        (lambda s: s.resume("dead"), wt.errors.BadValueError, "is crashed: restart it instead"),
        (
            lambda s: s.spawn(Notebook, "x", node="dead"),
            wt.errors.BadValueError,
            "'dead' is crashed; re",
        ),
        (lambda s: s.skew("broker", "soon"), wt.errors.BadValueError, "offset = 'soon'"),
        (
            lambda s: s.skew("broker", 0, 10**6),
            wt.errors.BadValueError,
            "drift_ppm = 1000000: expected",
        ),
    ],
)
def test_what_cannot_be_done_to_a_node_is_refused(
    system: Any, call: Any, error: type[Exception], text: str
) -> None:
    system.spawn(Notebook, "book", node="broker")
    system.spawn(Notebook, "ghost", node="dead")
    system.crash("dead")
    with pytest.raises(error, match=text):
        call(system)
