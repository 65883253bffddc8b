"""The address of an actor: stays the same when the actor restarts, here or with its node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

if TYPE_CHECKING:
    from pykka import ActorRef, Future

    from .host import Host

Item: TypeAlias = "tuple[Host, object, Ref, int]"
"""A message on its way or in an inbox: receiver, message, sender, Lamport time.

The receiver is one life of an actor, as a connection has one process at its other end: a message to
a life that has ended does not reach the next one at the same address.
"""


class Ref:
    """An actor's address. Inside an actor, `self.send(ref, …)`; outside, `tell` and `ask`."""

    __slots__ = ("host", "name")

    host: Host

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name} on {self.host.node.name}>"

    @property
    def node(self) -> str:
        """The name of the node the actor lives on."""
        return self.host.node.name

    @property
    def actor_ref(self) -> ActorRef[Any]:
        """Pykka's own reference to the actor as it lives now; a restarted node makes a new one."""
        return self.host.actor_ref

    def is_alive(self) -> bool:
        """Whether there is an actor at this address now."""
        return not self.host.ended

    def tell(self, message: object) -> None:
        """Send a message from outside the system; no network lies between."""
        self.host.tell(message)

    @overload
    def ask(self, message: object, *, block: Literal[False]) -> Future[Any]: ...

    @overload
    def ask(
        self, message: object, *, block: Literal[True] = True, timeout: float | None = None
    ) -> Any: ...

    def ask(self, message: object, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message from outside and get the reply, or (`block=False`) a future of it.

        `timeout` is in seconds, virtual ones in a simulation, where waiting is what makes time
        pass. Raises what the handler raised, and `pykka.ActorDeadError` when nobody is there.
        """
        future = self.host.ask(message)
        return future.get(timeout=timeout) if block else future

    def stop(self) -> None:
        """Stop the actor once it has handled what is in its inbox."""
        self.host.request_stop()
