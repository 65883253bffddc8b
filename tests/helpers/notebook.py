"""Small actors that the engine's tests put together."""

from typing import Any

import attrs

import wavetank as wt


@attrs.frozen
class Note:
    """Something to remember."""

    text: Any


@attrs.frozen
class Pass:
    """Asks an actor to send a note on."""

    to: wt.Ref
    text: Any


@attrs.frozen
class Read:
    """Asks for all notes so far."""


@attrs.frozen
class Fail:
    """Asks an actor to raise."""

    text: str = "on purpose"


@attrs.frozen
class Stranger:
    """What nobody has a handler for."""


@attrs.frozen
class Follow:
    """Asks an actor to watch another."""

    ref: wt.Ref


class Notebook(wt.Actor):
    """Remembers notes, with the time of its clock and who sent them; passes some on."""

    event_kinds = ("noted", "closed")

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.times: list[int] = []
        self.senders: list[str] = []

    @wt.receives(Note)
    def on_note(self, note: Note) -> None:
        self.notes.append(note.text)
        self.times.append(self.now)
        self.senders.append(self.sender.name)
        self.record("noted", detail=str(note.text))

    @wt.receives(Pass)
    def on_pass(self, order: Pass) -> None:
        self.send(order.to, Note(order.text))

    @wt.receives(Read)
    def on_read(self, read: Read) -> None:
        self.reply(tuple(self.notes))

    @wt.receives(Fail)
    def on_fail(self, fail: Fail) -> None:
        raise RuntimeError(fail.text)

    @wt.receives(Follow)
    def on_follow(self, follow: Follow) -> None:
        self.watch(follow.ref)

    @wt.receives(wt.Ended)
    def on_ended(self, ended: wt.Ended) -> None:
        self.notes.append((ended.ref.name, ended.reason))

    def stopped(self) -> None:
        self.record("closed")


def notes(ref: wt.Ref) -> list[Any]:
    """Look into a notebook."""
    return list(ref.ask(Read(), timeout=20))
