"""Both engines are Pykka runtimes: Pykka's own references work on their actors."""

from typing import Any

import pykka
import pytest

import wavetank as wt
from helpers.notebook import Fail, Note, Notebook, Read


def test_the_hosts_are_pykka_actors_and_live_ones_threading_actors(system: Any) -> None:
    ref = system.spawn(Notebook, "book").actor_ref
    assert isinstance(ref, pykka.ActorRef)
    assert issubclass(ref.actor_class, pykka.Actor)
    live = system.engine == "live"
    assert issubclass(ref.actor_class, pykka.ThreadingActor) == live


def test_tell_ask_and_stop_of_a_pykka_reference_work(system: Any, settle: Any) -> None:
    ref = system.spawn(Notebook, "book").actor_ref
    ref.tell(Note("x"))
    assert ref.ask(Read(), timeout=20) == ("x",)
    assert ref.ask(Read(), block=False).get(timeout=20) == ("x",)
    assert ref.is_alive()
    assert ref.stop(timeout=20)
    settle(system)
    assert not ref.is_alive()
    assert [event.kind for event in system.events.of("closed")] == ["closed"]
    with pytest.raises(pykka.ActorDeadError):
        ref.tell(Note("y"))
    with pytest.raises(pykka.ActorDeadError):
        ref.ask(Read(), timeout=20)
    assert not ref.stop()


def test_a_pykka_future_raises_what_the_handler_raised(system: Any) -> None:
    ref = system.spawn(Notebook, "book").actor_ref
    with pytest.raises(RuntimeError, match="on purpose"):
        ref.ask(Fail(), timeout=20)


def test_pykkas_inbox_shows_what_waits_and_lets_nobody_else_take_it(system: Any) -> None:
    book = system.spawn(Notebook, "book", node="n")
    system.run_until_idle(timeout=20)
    inbox = book.actor_ref.actor_inbox
    assert inbox.empty()
    with pytest.raises(wt.errors.WavetankError):
        inbox.get()
    if system.engine == "simulated":
        book.tell(Note("x"))
        assert not inbox.empty()


def test_pykkas_global_registry_does_not_see_our_actors(system: Any) -> None:
    before = len(pykka.ActorRegistry.get_all())
    book = system.spawn(Notebook, "book")
    assert len(pykka.ActorRegistry.get_all()) == before
    pykka.ActorRegistry.stop_all()
    assert book.ask(Read(), timeout=20) == ()
