"""Nothing fails silently: what goes wrong is recorded, told, and dealt with as the policy says."""

import logging
import sys
from typing import Any

import attrs
import pytest

import wavetank as wt
from helpers.notebook import Fail, Follow, Note, Notebook, Read, Stranger, notes


@attrs.frozen
class Go:
    """Sets an actor off."""


def details(system: Any, kind: str) -> list[Any]:
    """What the events of a kind say, in words."""
    found = []
    for event in system.events.of(kind):
        message = event.message and f"{event.message} from {event.peer}"
        found.append(": ".join(filter(None, (message, event.reason, event.detail))))
    return found


def test_a_message_without_a_handler_is_recorded_and_logged(
    system: Any, settle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    book = system.spawn(Notebook, "book")
    book.tell(Stranger())
    settle(system)
    assert details(system, "unhandled") == ["Stranger from outside"]
    assert "Notebook (book) has no handler for Stranger from outside" in caplog.text
    assert book.is_alive()


def test_who_asks_what_nobody_handles_is_told(system: Any) -> None:
    book = system.spawn(Notebook, "book")
    with pytest.raises(wt.errors.UnhandledMessageError, match=r"Notebook \(book\).*Stranger"):
        book.ask(Stranger(), timeout=20)


def test_a_timer_with_a_message_without_a_handler_is_recorded(system: Any, settle: Any) -> None:
    class Careless(wt.Actor):
        def started(self) -> None:
            self.after(1, Stranger())

    system.spawn(Careless, "careless")
    settle(system)
    assert details(system, "unhandled") == ["Stranger from careless"]


def test_an_exception_in_a_handler_is_recorded_and_logged_with_its_trace(
    system: Any, settle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    system.spawn(Notebook, "book").tell(Fail())
    settle(system)
    [detail] = details(system, "failed")
    assert detail.startswith("RuntimeError: on purpose on Fail at on_fail:")
    [record] = [entry for entry in caplog.records if entry.levelno == logging.ERROR]
    assert record.exc_info


def test_who_asks_gets_what_the_handler_raised(system: Any) -> None:
    with pytest.raises(RuntimeError, match="so there"):
        system.spawn(Notebook, "book").ask(Fail("so there"), timeout=20)


def test_an_actor_that_fails_is_stopped_unless_told_otherwise(system: Any, settle: Any) -> None:
    watcher, book = system.spawn(Notebook, "watcher"), system.spawn(Notebook, "book")
    watcher.tell(Follow(book))
    settle(system)
    book.tell(Fail())
    book.tell(Note("lost"))
    settle(system)
    assert details(system, "stopped") == ["failed"]
    assert details(system, "undeliverable") == ["Note from outside"]
    assert notes(watcher) == [("book", "failed")]
    assert not system.events.of("closed"), "stopped() is for an orderly end"


def test_a_restarted_actor_has_its_inbox_but_a_new_state(system: Any, settle: Any) -> None:
    watcher = system.spawn(Notebook, "watcher")
    book = system.spawn(Notebook, "book", on_failure="restart")
    watcher.tell(Follow(book))
    settle(system)
    book.tell(Note("forgotten"))
    book.tell(Fail())
    book.tell(Note("kept"))
    settle(system)
    assert notes(book) == ["kept"]
    assert notes(watcher) == []
    assert [event.actor for event in system.events.of("restarted")] == ["book"]


def test_a_restart_ends_the_timers_and_the_children_of_the_old_self(
    system: Any, settle: Any
) -> None:
    class Parent(Notebook):
        def started(self) -> None:
            self.spawn(Notebook, "child")
            self.after(2_000, Note("rung"))

    parent = system.spawn(Parent, "parent", on_failure="restart")
    parent.tell(Fail())
    settle(system)
    assert notes(parent) == ["rung"], "one timer, not two"
    assert system.ref("child").is_alive()
    assert details(system, "stopped") == ["parent restarted"]


def test_an_actor_that_cannot_start_is_not_restarted_for_ever(system: Any, settle: Any) -> None:
    class Broken(wt.Actor):
        def started(self) -> None:
            raise RuntimeError("cannot")

    system.spawn(Broken, "broken", on_failure="restart")
    settle(system)
    assert len(system.events.of("failed")) == 1
    assert details(system, "stopped") == ["failed"]


def test_an_actor_whose_constructor_raises_is_never_spawned(system: Any) -> None:
    class Picky(wt.Actor):
        def __init__(self, size: int) -> None:
            if size < 0:
                raise ValueError(f"size = {size}")

    with pytest.raises(ValueError, match="size = -1"):
        system.spawn(Picky, "picky", -1)
    assert not system.events.of("started")
    system.spawn(Picky, "picky", 1)


def test_a_constructor_that_raises_at_a_restart_ends_the_actor(system: Any, settle: Any) -> None:
    lives = []

    class OneLife(Notebook):
        def __init__(self) -> None:
            super().__init__()
            lives.append(1)
            if len(lives) > 1:
                raise RuntimeError("no second life")

    system.spawn(OneLife, "cat", on_failure="restart").tell(Fail())
    settle(system)
    assert len(system.events.of("failed")) == 2
    assert details(system, "stopped") == ["failed"]


def test_an_exception_in_stopped_is_recorded(engine: Any) -> None:
    class Sore(wt.Actor):
        def stopped(self) -> None:
            raise RuntimeError("not like this")

    with engine() as system:
        system.spawn(Sore, "sore")
    assert details(system, "failed") == ["RuntimeError: not like this in stopped()"]
    assert details(system, "stopped") == ["stopped"]


def test_a_message_to_a_dead_actor_is_recorded_and_its_asker_told(system: Any, settle: Any) -> None:
    book = system.spawn(Notebook, "book")
    book.stop()
    settle(system)
    with pytest.raises(wt.errors.ActorDeadError, match=r"Notebook \(book\) has ended: stopped"):
        book.ask(Read(), timeout=20)
    assert details(system, "undeliverable") == ["Read from outside"]


def test_a_reply_to_what_was_only_told_is_recorded(system: Any, settle: Any) -> None:
    system.spawn(Notebook, "book").tell(Read())
    settle(system)
    assert details(system, "undeliverable") == ["tuple from book: nobody waits for a reply"]


def test_a_second_reply_to_one_question_is_recorded(system: Any, settle: Any) -> None:
    class Chatty(wt.Actor):
        @wt.receives(Go)
        def on_go(self, go: Go) -> None:
            self.reply(1)
            self.reply(2)

    assert system.spawn(Chatty, "chatty").ask(Go(), timeout=20) == 1
    settle(system)
    assert details(system, "undeliverable") == ["int from chatty: nobody waits for a reply"]


def test_a_dead_name_can_be_taken_again_and_the_address_works_again(
    system: Any, settle: Any
) -> None:
    book = system.spawn(Notebook, "book", node="one")
    book.tell(Note("old"))
    book.stop()
    settle(system)
    assert system.spawn(Notebook, "book", node="two") is book
    book.tell(Note("new"))
    assert (notes(book), book.node) == (["new"], "two")


def test_sys_exit_in_a_live_handler_does_not_end_its_thread_without_a_trace() -> None:
    class Leaver(wt.Actor):
        @wt.receives(Go)
        def on_go(self, go: Go) -> None:
            sys.exit("bye")

    with wt.LiveSystem() as system:
        system.spawn(Leaver, "leaver").tell(Go())
        system.run_until(lambda: bool(system.events.of("stopped")), timeout=20)
        [detail] = details(system, "failed")
    assert detail.startswith("SystemExit: bye on Go")
