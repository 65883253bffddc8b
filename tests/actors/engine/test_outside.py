"""Seen from outside: asking, waiting, and letting time pass."""

import threading
from typing import Any

import attrs
import pytest

import wavetank as wt
from helpers.notebook import Note, Notebook, Pass, Read, Stranger, notes


@attrs.frozen
class Later:
    """Asks for a reply after a while."""

    delay_us: int


@attrs.frozen
class Due:
    """The while is over."""

    asker: wt.Ref


class Slow(wt.Actor):
    """Replies in its own time, or never."""

    @wt.receives(Later)
    def on_later(self, later: Later) -> None:
        self.after(later.delay_us, Due(self.sender))

    @wt.receives(Due)
    def on_due(self, due: Due) -> None:
        self.send(due.asker, "at last")

    @wt.receives(Read)
    def on_read(self, read: Read) -> None:
        pass


def test_asking_waits_for_the_reply(system: Any) -> None:
    assert system.spawn(Slow, "slow").ask(Later(20_000), timeout=20) == "at last"
    assert system.now_us >= 20_000


def test_a_future_can_be_asked_for_and_read_more_than_once(system: Any) -> None:
    slow = system.spawn(Slow, "slow")
    futures = [slow.ask(Later(delay), block=False) for delay in (9_000, 3_000)]
    assert [future.get(timeout=20) for future in futures] == ["at last"] * 2
    assert futures[0].get() == "at last"
    assert futures[0].map(len).get() == 7


def test_a_reply_that_takes_longer_than_the_timeout_raises(system: Any) -> None:
    with pytest.raises(wt.errors.Timeout):
        system.spawn(Slow, "slow").ask(Later(3_600_000_000), timeout=0.02)
    if system.engine == "simulated":
        assert system.now == 0.02


def test_waiting_in_a_simulation_takes_no_longer_than_the_answer(simulated: Any) -> None:
    simulated.spawn(Slow, "slow").ask(Later(7_200_000_000), timeout=7_201)
    assert simulated.now == 7_200


def test_a_wait_that_can_never_end_raises_at_once(simulated: Any) -> None:
    slow = simulated.spawn(Slow, "slow")
    with pytest.raises(wt.errors.SimulationDeadlockError, match=r"nothing left to happen at 0.0 s"):
        slow.ask(Read())
    with pytest.raises(wt.errors.SimulationDeadlockError):
        simulated.run_until(lambda: False)


def test_a_wait_among_periodic_timers_gives_up_after_a_virtual_hour(simulated: Any) -> None:
    class Clock(Slow):
        def started(self) -> None:
            self.every(60_000_000, Note("tick"))

        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            pass

    with pytest.raises(wt.errors.Timeout, match="not within 1 h 00 m 00 s of virtual time"):
        simulated.spawn(Clock, "clock").ask(Read())


def test_an_actor_that_waits_is_told_not_to(system: Any, settle: Any) -> None:
    class Impatient(wt.Actor):
        def __init__(self, other: wt.Ref) -> None:
            self.other = other

        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            self.other.ask(Read())

    system.spawn(Impatient, "impatient", system.spawn(Notebook, "book")).tell(Note(""))
    settle(system)
    assert "an actor must not wait: send" in system.events.of("failed")[0].detail


def test_time_passes_for_a_duration_and_until_a_time(system: Any) -> None:
    began = system.now_us
    system.run(for_="30ms")
    assert system.now_us - began >= 30_000
    end = system.now + 0.17
    system.run(until=end)
    assert system.now >= end
    if system.engine == "simulated":
        assert system.now == end == 0.2


def test_what_is_due_at_the_very_end_of_a_run_happens_in_it(simulated: Any) -> None:
    answer = simulated.spawn(Slow, "slow").ask(Later(1_000), block=False)
    simulated.run(for_=0.000_999)
    assert not answer.is_settled()
    simulated.run(until=0.001)
    assert answer.is_settled()


def test_running_until_a_condition_stops_as_soon_as_it_holds(system: Any) -> None:
    class Clock(wt.Actor):
        event_kinds = ("ticked",)

        def started(self) -> None:
            self.every(1_000, Note("tick"))

        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            self.record("ticked")

    system.spawn(Clock, "clock")
    system.run_until(lambda: len(system.events.of("ticked")) >= 5, timeout=20)
    if system.engine == "simulated":
        assert (len(system.events.of("ticked")), system.now) == (5, 0.005)
    with pytest.raises(wt.errors.Timeout):
        system.run_until(lambda: False, timeout=0.02)


def test_idle_means_that_messages_and_timers_are_done_but_for_periodic_ones(system: Any) -> None:
    class Busy(Notebook):
        def started(self) -> None:
            self.every(1_000, Stranger())
            self.after(25_000, Note("later"))
            self.cancelled = self.after(3_600_000_000, Note("never"))
            self.cancelled.cancel()

        @wt.receives(Stranger)
        def on_stranger(self, stranger: Stranger) -> None:
            pass

    busy = system.spawn(Busy, "busy")
    system.run_until_idle(timeout=20)
    assert [event.detail for event in system.events.of("noted")] == ["later"]
    assert notes(busy) == ["later"]
    assert system.now < 20


def test_idle_waits_for_a_long_chain_across_nodes(system: Any) -> None:
    class Hop(wt.Actor):
        other: wt.Ref

        @wt.receives(Pass)
        def on_pass(self, order: Pass) -> None:
            self.record("hopped")
            if order.text:
                self.send(order.to, Pass(self.ref, order.text - 1))

    a, b = system.spawn(Hop, "a", node="l"), system.spawn(Hop, "b", node="r")
    a.tell(Pass(b, 2_000))
    system.run_until_idle(timeout=20)
    assert len(system.events.of("hopped")) == 2_001


def test_waiting_for_idle_gives_up_in_time(system: Any) -> None:
    class Restless(wt.Actor):
        def started(self) -> None:
            self.after(1_000, Note(""))

        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            self.after(1_000, Note(""))

    system.spawn(Restless, "restless")
    with pytest.raises(wt.errors.Timeout):
        system.run_until_idle(timeout=0.05)


def test_waiting_for_idle_gives_up_in_time_on_a_live_actor_that_is_stuck() -> None:
    free = threading.Event()

    class Stuck(wt.Actor):
        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            free.wait()

    with wt.LiveSystem() as system:
        system.spawn(Stuck, "stuck").tell(Note(""))
        with pytest.raises(wt.errors.Timeout):
            system.run_until_idle(timeout=0.05)
        free.set()


def test_actors_that_keep_time_from_moving_are_found_out(
    simulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Echo(wt.Actor):
        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            self.send(self.ref, note)

    monkeypatch.setattr("wavetank.actors.engine.simulated.CROWDED", 10_000)
    simulated.spawn(Echo, "echo").tell(Note("again"))
    with pytest.raises(
        wt.errors.SimulationLivelockError, match=r"at 0.0 s.*Note from echo to echo"
    ):
        simulated.run(for_=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "either for_"),
        ({"for_": 1, "until": 2}, "either for_"),
        ({"for_": "soon"}, "for_ = 'soon': expected seconds or a text"),
        ({"for_": -1}, "for_ = -1: expected zero or more"),
        ({"until": 0}, "until = 0: expected .* s or later"),
    ],
)
def test_an_impossible_run_is_refused(system: Any, arguments: Any, text: str) -> None:
    system.run(for_=0.001)
    with pytest.raises(wt.errors.BadValueError, match=text):
        system.run(**arguments)


def test_a_stopped_system_refuses_everything_clearly(engine: Any) -> None:
    with engine() as system:
        book = system.spawn(Notebook, "book")
    for call in (
        lambda: book.tell(Note("x")),
        lambda: book.ask(Read()),
        lambda: system.spawn(Notebook, "other"),
        lambda: system.run(for_=1),
    ):
        with pytest.raises(wt.errors.ActorDeadError, match="the system has been stopped"):
            call()
    system.stop()


@pytest.mark.parametrize("seed", [1.5, "7", None, True])
def test_a_seed_that_is_no_whole_number_is_refused(engine: Any, seed: Any) -> None:
    with pytest.raises(wt.errors.BadValueError, match=r"seed = .*: expected a whole number"):
        engine(seed=seed)


def test_a_timeout_names_the_time_that_was_waited(system: Any) -> None:
    system.spawn(Slow, "slow").ask(Later(300_000), block=False)
    with pytest.raises(wt.errors.Timeout, match=r"^not within 20 ms( of virtual time)?$"):
        system.run_until(lambda: False, "20ms")
