"""What an actor can do, on both engines."""

from typing import Any, NamedTuple

import attrs
import pytest

import wavetank as wt
from helpers.notebook import Follow, Note, Notebook, Pass, Read, notes


@attrs.frozen
class Go:
    """Sets an actor off."""


@attrs.frozen
class Tick:
    """What timers send in these tests."""

    number: int = 0


def test_a_message_reaches_the_handler_of_its_type_and_the_reply_its_sender(system: Any) -> None:
    book = system.spawn(Notebook, "book")
    book.tell(Note("first"))
    book.tell(Note("second"))
    assert notes(book) == ["first", "second"]


def test_a_handler_knows_who_sent_the_message(system: Any, settle: Any) -> None:
    class Second(Notebook):
        @wt.receives(Read)
        def on_read(self, read: Read) -> None:
            self.reply(tuple(self.senders))

    first, second = system.spawn(Notebook, "first"), system.spawn(Second, "second")
    first.tell(Pass(second, "hello"))
    settle(system)
    assert notes(second) == ["first"]


def test_a_subclass_overrides_a_handler_by_overriding_the_method(system: Any) -> None:
    class Loud(Notebook):
        def on_note(self, note: Note) -> None:
            self.notes.append(note.text.upper())

    book = system.spawn(Loud, "book")
    book.tell(Note("quiet"))
    assert notes(book) == ["QUIET"]


def test_messages_are_dispatched_by_their_exact_type(system: Any) -> None:
    @attrs.frozen
    class SpecialNote(Note):
        pass

    book = system.spawn(Notebook, "book")
    book.tell(SpecialNote("x"))
    assert notes(book) == []
    [event] = system.events.of("unhandled")
    assert (event.message, event.peer) == ("SpecialNote", "outside")


def test_a_message_type_that_can_change_is_refused_when_the_class_is_made() -> None:
    @attrs.define
    class Mutable:
        text: str

    with pytest.raises(TypeError, match=r"@receives\(Mutable\).*@attrs.frozen"):
        wt.receives(Mutable)
    with pytest.raises(TypeError, match=r"@receives\(dict\)"):
        wt.receives(dict)
    with pytest.raises(TypeError, match=r"@receives\(tuple\)"):
        wt.receives(tuple)


def test_a_named_tuple_is_a_message_as_any_other(system: Any) -> None:
    class Pair(NamedTuple):
        one: str
        other: str

    class Reader(Notebook):
        @wt.receives(Pair)
        def on_pair(self, pair: Pair) -> None:
            self.notes += pair

    book = system.spawn(Reader, "book")
    book.tell(Pair("a", "b"))
    assert notes(book) == ["a", "b"]


def test_two_handlers_of_one_type_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"Torn.one and Torn.two both receive Go"):

        class Torn(wt.Actor):
            @wt.receives(Go)
            def one(self, go: Go) -> None: ...

            @wt.receives(Go)
            def two(self, go: Go) -> None: ...


def test_an_async_handler_is_refused() -> None:
    with pytest.raises(TypeError, match="later: a handler is a plain method"):

        class Async(wt.Actor):
            @wt.receives(Go)  # type: ignore[arg-type]
            async def later(self, go: Go) -> None: ...


def test_started_runs_before_the_first_message_and_stopped_at_the_end(engine: Any) -> None:
    class Diary(Notebook):
        def started(self) -> None:
            self.notes.append("started")

    with engine() as system:
        book = system.spawn(Diary, "book")
        book.tell(Note("then"))
        assert notes(book) == ["started", "then"]
        assert not system.events.of("closed")
    assert [event.actor for event in system.events.of("closed")] == ["book"]


def test_an_actor_may_send_in_a_way_of_its_own(system: Any, settle: Any) -> None:
    class Polite(Notebook):
        def send(self, to: wt.Ref, message: object) -> None:
            super().send(to, Note("please"))
            super().send(to, message)

    polite, book = system.spawn(Polite, "polite"), system.spawn(Notebook, "book", node="m")
    polite.tell(Pass(book, "now"))
    settle(system)
    assert notes(book) == ["please", "now"]


def test_stop_lets_an_actor_finish_what_is_in_its_inbox(system: Any, settle: Any) -> None:
    book = system.spawn(Notebook, "book")
    book.tell(Note("before"))
    book.stop()
    book.tell(Note("after"))
    settle(system)
    assert [event.detail for event in system.events.of("noted")] == ["before"]
    assert [event.message for event in system.events.of("undeliverable")] == ["Note"]
    assert not book.is_alive()


def test_an_actor_stops_itself_after_what_is_in_its_inbox(system: Any, settle: Any) -> None:
    class Mayfly(Notebook):
        @wt.receives(Go)
        def on_go(self, go: Go) -> None:
            self.send(self.ref, Note("last words"))
            self.stop()
            self.send(self.ref, Note("too late"))

    fly = system.spawn(Mayfly, "fly")
    fly.tell(Go())
    settle(system)
    assert [event.detail for event in system.events.of("noted")] == ["last words"]
    assert [event.reason for event in system.events.of("stopped")] == ["stopped"]


def test_a_timer_delivers_its_message_after_its_delay(system: Any, settle: Any) -> None:
    class Waiter(wt.Actor):
        def started(self) -> None:
            self.began = self.now
            self.after(30_000, Tick())

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            self.record("waited", count=self.now - self.began)

    system.spawn(Waiter, "waiter")
    settle(system)
    [event] = system.events.of("waited")
    assert event.count >= 30_000
    if system.engine == "simulated":
        assert event.count == 30_000


def test_a_cancelled_timer_does_not_go_off_even_when_it_is_due(system: Any, settle: Any) -> None:
    class Undecided(wt.Actor):
        def started(self) -> None:
            self.late = self.after(20_000, Tick(1))
            # Both are due at the same instant, or in the inbox together: the first cancels.
            self.after(5_000, Tick(0))
            self.twin = self.after(5_000, Tick(2))

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            self.record("ticked", count=tick.number)
            self.late.cancel()
            self.twin.cancel()
            self.twin.cancel()

    system.spawn(Undecided, "undecided")
    settle(system)
    system.run(for_=0.05)
    assert 1 not in [event.count for event in system.events.of("ticked")]
    if system.engine == "simulated":
        assert [event.count for event in system.events.of("ticked")] == [0]


def test_a_periodic_timer_goes_on_until_it_is_cancelled(system: Any) -> None:
    class Clock(wt.Actor):
        event_kinds = ("ticked",)

        def started(self) -> None:
            self.ticks = 0
            self.timer = self.every(2_000, Tick())

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            self.ticks += 1
            self.record("ticked")
            if self.ticks == 5:
                self.timer.cancel()

    system.spawn(Clock, "clock")
    system.run_until(lambda: len(system.events.of("ticked")) == 5, timeout=20)
    system.run(for_=0.02)
    ticks = system.events.of("ticked")
    assert len(ticks) == 5
    if system.engine == "simulated":
        assert [event.time_us for event in ticks] == [2_000, 4_000, 6_000, 8_000, 10_000]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda actor: actor.after(-1, Tick()), "delay_us = -1: expected zero or more"),
        (lambda actor: actor.every(0, Tick()), "period_us = 0: expected more than zero"),
    ],
)
def test_an_impossible_timer_is_refused(simulated: Any, call: Any, text: str) -> None:
    class Wrong(wt.Actor):
        def started(self) -> None:
            call(self)

    simulated.spawn(Wrong, "wrong")
    simulated.run_until_idle()
    assert text in simulated.events.of("failed")[0].detail


def test_the_timers_of_an_actor_end_with_it(system: Any, settle: Any) -> None:
    class Clock(wt.Actor):
        def started(self) -> None:
            self.every(1_000, Tick())
            self.after(10_000, Tick())

        @wt.receives(Tick)
        def on_tick(self, tick: Tick) -> None:
            self.record("ticked")
            self.stop()

    system.spawn(Clock, "clock")
    settle(system)
    system.run(for_=0.02)
    before = len(system.events.of("ticked"))
    system.run(for_=0.02)
    assert len(system.events.of("ticked")) == before <= 2
    assert not system.events.of("undeliverable")


def test_an_actor_spawns_children_on_its_own_node(system: Any, settle: Any) -> None:
    class Parent(wt.Actor):
        def started(self) -> None:
            self.send(self.spawn(Notebook, "child"), Note("hello"))

    system.spawn(Parent, "parent", node="home")
    settle(system)
    child = system.ref("child")
    assert (notes(child), child.node) == (["hello"], "home")


def test_children_stop_with_their_parent(system: Any, settle: Any) -> None:
    class Parent(wt.Actor):
        def started(self) -> None:
            self.spawn(Notebook, "child")

    parent = system.spawn(Parent, "parent")
    settle(system)
    parent.stop()
    settle(system)
    assert not system.ref("child").is_alive()
    assert len(system.events.of("closed")) == 1


def test_a_watcher_hears_of_the_end_of_another_actor_once(system: Any, settle: Any) -> None:
    watcher, other = system.spawn(Notebook, "watcher"), system.spawn(Notebook, "other", node="far")
    watcher.tell(Follow(other))
    watcher.tell(Follow(other))
    settle(system)
    other.stop()
    settle(system)
    assert notes(watcher) == [("other", "stopped")]


def test_watching_the_dead_is_answered_at_once(system: Any, settle: Any) -> None:
    watcher, other = system.spawn(Notebook, "watcher"), system.spawn(Notebook, "other")
    other.stop()
    settle(system)
    watcher.tell(Follow(other))
    settle(system)
    assert notes(watcher) == [("other", "stopped")]


class Dice(wt.Actor):
    """Rolls both kinds of random numbers when asked."""

    @wt.receives(Go)
    def on_go(self, go: Go) -> None:
        self.reply((self.random.random(), float(self.numpy_random.random())))


def test_random_streams_depend_on_the_seed_and_the_name_alone(engine: Any) -> None:
    def roll(seed: int, *names: str) -> list[Any]:
        with engine(seed=seed) as system:
            return [system.spawn(Dice, name).ask(Go(), timeout=20) for name in names]

    [alone] = roll(1, "a")
    [again, other] = roll(1, "a", "b")
    [reseeded] = roll(2, "a")
    assert alone == again
    assert len({*alone, *other, *reseeded}) == 6


def test_both_engines_give_an_actor_the_same_random_streams() -> None:
    rolls = []
    for engine in (wt.SimulatedSystem, wt.LiveSystem):
        with engine(seed=5) as system:
            rolls.append(system.spawn(Dice, "dice").ask(Go(), timeout=20))
    assert rolls[0] == rolls[1]


def test_what_an_actor_records_carries_its_time_its_place_and_its_lamport_time(
    system: Any, settle: Any
) -> None:
    class Recorder(wt.Actor):
        @wt.receives(Go)
        def on_go(self, go: Go) -> None:
            self.record(
                "appended", topic="orders", partition=3, group="g", member="m", producer="p",
                base_offset=10, count=5, bytes=500, epoch=2, append_time_us=77, detail="d",
            )  # fmt: skip

    system.spawn(Recorder, "r", node="n").tell(Go())
    settle(system)
    [event] = system.events.of("appended")
    assert (event.node, event.actor) == ("n", "r")
    assert (event.topic, event.partition) == ("orders", 3)
    assert (event.group, event.member, event.producer) == ("g", "m", "p")
    assert (event.base_offset, event.count, event.bytes, event.epoch) == (10, 5, 500, 2)
    assert (event.append_time_us, event.detail) == (77, "d")
    assert event.lamport > 0
    assert event.clock_us == event.time_us


@pytest.mark.parametrize("rows", [3, 3_000])
def test_many_events_can_be_recorded_at_once_in_their_place(
    system: Any, settle: Any, rows: int
) -> None:
    class Recorder(wt.Actor):
        @wt.receives(Go)
        def on_go(self, go: Go) -> None:
            self.record("before")
            self.record_columns("appended", rows, topic="orders", base_offset=range(rows), count=1)
            self.record("after")

    system.spawn(Recorder, "r", node="n").tell(Go())
    settle(system)
    kinds = [event.kind for event in system.events][1:]
    assert kinds == ["before", *["appended"] * rows, "after"]
    events = system.events.of("appended")
    assert [event.base_offset for event in events] == list(range(rows))
    assert {(e.node, e.actor, e.topic, e.count) for e in events} == {("n", "r", "orders", 1)}
    assert len({event.lamport for event in events}) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((Notebook, ""), "name = '': expected a text"),
        ((Note, "x"), "actor 'x': expected a subclass of Actor, not .*Note"),
        ((Notebook, "taken"), "actor 'taken' exists already, on 'main'"),
    ],
)
def test_an_actor_that_cannot_be_is_refused(system: Any, arguments: Any, text: str) -> None:
    system.spawn(Notebook, "taken")
    with pytest.raises(wt.errors.BadValueError, match=text):
        system.spawn(*arguments)


def test_an_unknown_policy_is_refused(system: Any) -> None:
    with pytest.raises(
        wt.errors.BadValueError, match=r"on_failure = 'retry': expected .restart. or"
    ):
        system.spawn(Notebook, "x", on_failure="retry")


def test_an_unknown_actor_is_refused_with_the_nearest_name(system: Any) -> None:
    system.spawn(Notebook, "consumer-1")
    with pytest.raises(
        wt.errors.UnknownNameError, match="unknown actor 'consumer_1': did you mean"
    ):
        system.ref("consumer_1")
