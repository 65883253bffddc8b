"""The outside as a sender: what stands behind the address to which an actor replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..model import kinds
from .ref import Ref

if TYPE_CHECKING:
    from pykka import Future

    from .ref import Item
    from .system import System


class Nobody:
    """The sender of what the outside tells: a reply to it is recorded and goes nowhere."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.node = system.outside
        self.ended = ""
        self.ref = Ref("outside")
        # An address that only ever appears as a sender: it needs `node` and `put`, no more.
        self.ref.host = self  # type: ignore[assignment]

    def put(self, item: Item) -> None:
        """Account for a reply that nobody waits for."""
        _, message, sender, lamport = item
        self.system.heard(lamport)
        self.system.note(
            kinds.UNDELIVERABLE,
            self.node,
            detail=f"{type(message).__name__} from {sender.name}: nobody waits for a reply",
        )


class Promise(Nobody):
    """The sender of what the outside asks: the first reply goes to its future."""

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
        """Hand the future its value or its error, once; whether this was the time."""
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
"""What makes a promise: the class itself, or one that does more than to hand on the reply."""


def settle(sender: Ref, value: object = None, error: BaseException | None = None) -> None:
    """Answer whoever sent a message, if it is the outside and it waits."""
    if isinstance(sender.host, Promise):
        sender.host.settle(value, error)
