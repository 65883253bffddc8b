"""What an actor is: a handler for each type of message, and effects through the engine alone.

    class Greeter(Actor):
        @receives(Hello)
        def greet(self, hello: Hello) -> None:
            self.reply(Welcome(hello.name))

The same class runs on both engines. It owns its state alone, never blocks, and touches the world
only through the methods below: that is what makes a simulated run repeatable.
"""

import inspect
import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import attrs
import numpy as np
from pykka.messages import _ActorStop

from ...model.errors import BadValueError
from .effects import Effects, Supervision
from .timers import Timer

if TYPE_CHECKING:
    from .disk import ActorDisk
    from .host import Host
    from .ref import Ref

Handlers: TypeAlias = dict[type, Callable[[Any, Any], None]]

A = TypeVar("A", bound="Actor")
M = TypeVar("M")


@attrs.frozen
class Ended:
    """Tells a watcher that an actor has ended."""

    ref: "Ref"
    """The actor that ended."""
    reason: str
    """"stopped", "failed", "crashed" (with its node) or "parent restarted"."""


@attrs.frozen
class StartActor:
    """The engine's first message to every actor: run `started`."""


@attrs.frozen
class Program:
    """Everything needed to make an actor, now and at each restart."""

    name: str
    actor_class: "type[Actor]"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    on_failure: Supervision
    parent: "Host | None" = None
    """The actor that spawned it. `None`: the outside, whose actors start again with their node."""

    def __attrs_post_init__(self) -> None:
        """Raise `BadValueError` if no actor can be made of this."""
        if not isinstance(self.name, str) or not self.name:
            raise BadValueError(f"name = {self.name!r}: expected a text that is not empty")
        if not isinstance(self.actor_class, type) or not issubclass(self.actor_class, Actor):
            raise BadValueError(
                f"actor {self.name!r}: expected a subclass of Actor, not {self.actor_class!r}"
            )
        if self.on_failure not in ("restart", "stop"):
            raise BadValueError(
                f"actor {self.name!r}: on_failure = {self.on_failure!r}: "
                'expected "restart" or "stop"'
            )

    def make(self) -> "Actor":
        """Make the actor."""
        return self.actor_class(*self.args, **self.kwargs)


def receives(message_type: type[M]) -> Callable[[Callable[[A, M], None]], Callable[[A, M], None]]:
    """Declare a method as the handler of one type of message (exactly this type)."""
    if not _is_immutable(message_type):
        raise TypeError(
            f"@receives({getattr(message_type, '__name__', message_type)!s}): "
            "a message type is an attrs class made with @attrs.frozen, or a NamedTuple"
        )

    def declare(method: Callable[[A, M], None]) -> Callable[[A, M], None]:
        if inspect.iscoroutinefunction(method):
            raise TypeError(f"{method.__qualname__}: a handler is a plain method, not async")
        method.__dict__.setdefault("receives", []).append(message_type)
        return method

    return declare


def _is_immutable(message_type: type) -> bool:
    if attrs.has(message_type):
        return attrs.inspect(message_type).is_frozen
    return hasattr(message_type, "_fields") and issubclass(message_type, tuple)


class Actor:
    """The base of all actors; hosted by an engine, spawned with `spawn`."""

    handlers: ClassVar[Handlers]
    event_kinds: ClassVar[Collection[str]] = ()
    """Kinds of its own that it records. Whoever reads the log may ask for them before they occur;
    other kinds that have not occurred are refused as misspelt."""
    effects: Effects
    """What it may do; set by the engine before `started` runs. Parts of an actor get it too."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Build the dispatch table, by method name so that a subclass can override a handler."""
        super().__init_subclass__(**kwargs)
        names: dict[type, str] = {}
        for base in reversed(cls.__mro__):
            own: dict[type, str] = {}
            for name, member in vars(base).items():
                for message_type in getattr(member, "receives", ()):
                    if message_type in own:
                        raise TypeError(
                            f"{base.__name__}.{own[message_type]} and {base.__name__}.{name} "
                            f"both receive {message_type.__name__}"
                        )
                    own[message_type] = name
            names |= own
        cls.handlers = {message_type: getattr(cls, name) for message_type, name in names.items()}
        cls.handlers |= _ENGINE_HANDLERS

    def started(self) -> None:
        """Run once the actor lives, before its first message; effects work from here on."""

    def stopped(self) -> None:
        """Run when the actor is stopped, not when it fails or its node crashes."""

    def killed(self) -> None:
        """Run as the actor is killed, for the record only: nothing but `record` works.

        It may run beside a handler that is cut short, so it must change nothing.
        """

    @property
    def ref(self) -> "Ref":
        """The actor's own address, to hand to others."""
        return self.effects.ref

    @property
    def sender(self) -> "Ref":
        """The sender of the message being handled; keep it to reply later."""
        return self.effects.sender

    @property
    def now(self) -> int:
        """The time on this node's clock, in µs (a skewed clock is wrong)."""
        return self.effects.now

    @property
    def true_now(self) -> int:
        """The true time in µs: for what is recorded about a run, never for a decision in it."""
        return self.effects.true_now

    @property
    def life(self) -> int:
        """1 in an actor's first life, 2 after its node's first restart, and so on."""
        return self.effects.life

    @property
    def random(self) -> random.Random:
        """This actor's own stream of Python's random numbers."""
        return self.effects.random

    @property
    def numpy_random(self) -> np.random.Generator:
        """This actor's own stream of NumPy's random numbers."""
        return self.effects.numpy_random

    def send(self, to: "Ref", message: object) -> None:
        """Send a message; whether it arrives is up to the network and the receiver."""
        self.effects.send(to, message)

    def reply(self, message: object) -> None:
        """Send a message to the sender of the one being handled."""
        self.send(self.effects.sender, message)

    def after(self, delay_us: int, message: object, *, background: bool = False) -> Timer:
        """Send `message` to oneself after a delay; the timer can be cancelled.

        `run_until_idle` does not wait for a timer in the background, such as a check that a
        session is alive.
        """
        return self.effects.after(delay_us, message, background=background)

    def every(self, period_us: int, message: object, *, exactly: bool = True) -> Timer:
        """Send `message` to oneself once every period, until cancelled.

        Unless it has to be `exactly` so, the cluster's stagger and jitter of timers apply.
        """
        return self.effects.every(period_us, message, exactly=exactly)

    def spawn(
        self,
        actor_class: "type[Actor]",
        name: str,
        *args: Any,
        on_failure: Supervision = "stop",
        **kwargs: Any,
    ) -> "Ref":
        """Start a child on the same node; it is stopped when this actor ends or restarts."""
        return self.effects.spawn(actor_class, name, *args, on_failure=on_failure, **kwargs)

    @property
    def disk(self) -> "ActorDisk":
        """The disk of this node: files that outlive the actor. Keep it; each access makes one."""
        return self.effects.disk

    def stop(self) -> None:
        """Stop once the messages that are in the inbox now have been handled."""
        self.send(self.effects.ref, _ActorStop())

    def watch(self, ref: "Ref") -> None:
        """Receive `Ended` when that actor ends; at once if it has ended already.

        The notice crosses the network as any message does: a cut link loses it.
        """
        self.effects.watch(ref)

    @property
    def record(self) -> Callable[..., None]:
        """Record an event of this actor: past tense, a range of records rather than each.

        `self.record(kind, **fields)`: the fields are columns of the event log (see `Event`), such
        as topic, partition, group, base_offset, count, reason and detail.
        """
        return self.effects.record

    def record_columns(self, kind: str, rows: int, **columns: Any) -> None:
        """Record many events of one kind at once, a column at a time.

        A column is one value for all events, or a sequence with one value for each; their time,
        place and Lamport time are those of this moment.
        """
        self.effects.record_columns(kind, rows, **columns)


def _start(actor: Actor, message: StartActor) -> None:
    actor.started()


def _fire(actor: Actor, timer: Timer) -> None:
    handler = actor.handlers.get(type(timer.message))
    if handler is None or timer.background or timer.cancelled or timer.actor is not actor:
        actor.effects.host.system.fire(actor, timer)
    else:
        # Nearly all timers go off once, as planned: these take the short way.
        timer.pending = False
        handler(actor, timer.message)


def _stop(actor: Actor, message: _ActorStop) -> None:
    actor.effects.host.end("stopped")


_ENGINE_HANDLERS: Handlers = {StartActor: _start, Timer: _fire, _ActorStop: _stop}
Actor.handlers = _ENGINE_HANDLERS
