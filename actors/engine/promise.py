"""The outside as a sender: it receives the replies to what the user tells and asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ...model.events import kinds
from .ref import Ref

if TYPE_CHECKING:
    from pykka import Future

    from .ref import Item
    from .system import System


class Nobody:
    """The sender of messages that the outside tells: a reply to it is recorded as undeliverable."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.node = system.outside
        self.ended = ""
        self.ref = Ref("outside")
        # An address that only ever appears as a sender: it needs `node` and `put`, no more.
        self.ref.host = self  # type: ignore[assignment]

    def put(self, item: Item) -> None:
        """Record a reply that nobody waits for."""
        _, message, sender, lamport = item
        self.system.heard(lamport)
        self.system.note(
            kinds.UNDELIVERABLE,
            self.node,
            message=type(message).__name__,
            peer=sender.name,
            detail="nobody waits for a reply",
        )


class Promise(Nobody):
    """The sender of messages that the outside asks: the first reply goes to its future."""

    def __init__(self, system: System, future: Future[Any]) -> None:
        super().__init__(system)
        self.future: Future[Any] | None = future

    def put(self, item: Item) -> None:
        """Take the reply."""
        if not self.settle(item[1], None):
            super().put(item)
        else:
            self.system.heard(item[3])

    def settle(self, value: object, error: BaseException | None) -> bool:
        """Set the future's value or error; return False if that was done before."""
        with self.system.lock:
            future, self.future = self.future, None
        if future is None:
            return False
        if error is None:
            future.set(value)
        else:
            future.set_exception((type(error), error, error.__traceback__))
        return True


Promises: TypeAlias = "Callable[[System, Future[Any]], Promise]"
"""Makes a promise: the class itself, or one that does more than pass the reply on."""


def settle(sender: Ref, value: object = None, error: BaseException | None = None) -> None:
    """Answer the sender of a message if it is the outside, waiting for a reply."""
    if isinstance(sender.host, Promise):
        sender.host.settle(value, error)
