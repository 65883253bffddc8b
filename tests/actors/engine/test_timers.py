"""The agenda against a plain sorted list."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wavetank.actors.engine.timers import _WORTH_SWEEPING, Agenda, Timer

ACTOR: Any = None
HOST: Any = SimpleNamespace(ref=None)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), max_size=60))
def test_what_is_due_comes_in_the_order_of_time_and_then_of_being_added(
    entries: list[tuple[int, bool, bool]],
) -> None:
    agenda = Agenda()
    expected: list[tuple[int, int, object]] = []
    for number, (due_us, is_timer, cancel) in enumerate(entries):
        message: object = number
        if is_timer:
            message = timer = Timer(agenda, ACTOR, number, due_us, 0)
            agenda.add_timer(timer, HOST)
            if cancel:
                timer.cancel()
        else:
            agenda.add(due_us, (HOST, number, HOST.ref, 0))
        expected.append((due_us, number, message))
    came: list[tuple[int, object]] = []
    while agenda.times:
        due_us = agenda.times[0]
        came += [(due_us, item[1]) for item in agenda.pop()]
    assert came == [(due, message) for due, _, message in sorted(expected, key=lambda e: e[:2])]
    assert agenda.size == 0


@given(st.lists(st.sampled_from(["once", "periodic", "cancel", "pop"]), max_size=80))
def test_an_agenda_is_idle_when_only_periodic_and_cancelled_timers_are_left(
    steps: list[str],
) -> None:
    agenda = Agenda()
    timers: list[Timer] = []
    for step in steps:
        if step in ("once", "periodic"):
            timer = Timer(agenda, ACTOR, None, len(timers), 1 if step == "periodic" else 0)
            agenda.add_timer(timer, HOST)
            timers.append(timer)
        elif step == "cancel" and timers:
            timers[len(timers) // 2].cancel()
        elif step == "pop" and agenda.times:
            for item in agenda.pop():
                assert isinstance(item[1], Timer)
                agenda.timer_came_up(item[1])
                timers.remove(item[1])
        assert agenda.is_idle() == all(t.cancelled or t.period_us for t in timers)


def test_cancelled_timers_do_not_pile_up() -> None:
    agenda = Agenda()
    kept = Timer(agenda, ACTOR, "kept", 5, 0)
    agenda.add_timer(kept, HOST)
    for number in range(20 * _WORTH_SWEEPING):
        timer = Timer(agenda, ACTOR, number, 1_000_000 + number, 0)
        agenda.add_timer(timer, HOST)
        timer.cancel()
    assert agenda.size <= 2 * _WORTH_SWEEPING + 2
    assert len(agenda.times) == len(agenda.due) <= agenda.size
    assert agenda.times[0] == 5
    assert not agenda.is_idle()
