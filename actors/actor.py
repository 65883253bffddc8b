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
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

import attrs
import numpy as np
from pykka.messages import _ActorStop

from ..model.errors import BadValueError
from ..model.events import NULL_INT
from ..model.rows import pack
from .timers import Timer

if TYPE_CHECKING:
    from ..model.batch import Batch
    from ..model.topics import TopicPartition
    from .host import Host
    from .ref import Ref

Supervision: TypeAlias = Literal["restart", "stop"]
Handlers: TypeAlias = dict[type, Callable[[Any, Any], None]]

A = TypeVar("A", bound="Actor")
M = TypeVar("M")


@attrs.frozen
class Ended:
    """Tells a watcher that an actor is no more."""

    ref: "Ref"
    """Who ended."""
    reason: str
    """"stopped", "failed", "crashed" (with its node) or "parent restarted"."""


@attrs.frozen
class Start:
    """The engine's first message to every actor: run `started`."""


@attrs.frozen
class Program:
    """What it takes to make an actor, now and at each restart."""

    name: str
    actor_class: "type[Actor]"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    on_failure: Supervision
    parent: "Host | None" = None
    """Who spawned it; what the outside spawned (None) starts again when its node restarts."""

    def __attrs_post_init__(self) -> None:
        """Refuse what can make no actor."""
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
        """Make the actor anew."""
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
    _host: "Host"

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
        """Run as the actor is killed, for the record only: it can still do nothing but `record`.

        It may run beside a handler that is cut short, so it must change nothing.
        """

    @property
    def ref(self) -> "Ref":
        """The actor's own address, to hand to others."""
        return self._host.ref

    @property
    def sender(self) -> "Ref":
        """Who sent the message being handled; keep it to reply later."""
        return self._host.sender

    @property
    def now(self) -> int:
        """The time on this node's clock, in µs (a skewed clock says something else)."""
        host = self._host
        node = host.node
        if node.drift_ppm:
            return node.clock_us(host.system.now_us)
        return host.system.now_us + node.offset_us  # without a call: it is asked for so often

    @property
    def true_now(self) -> int:
        """The true time in µs: for what is recorded about a run, never for a decision in it."""
        return self._host.system.now_us

    @property
    def life(self) -> int:
        """1 in an actor's first life, 2 after its node's first restart, and so on."""
        return self._host.life

    @property
    def random(self) -> random.Random:
        """This actor's own stream of Python's random numbers."""
        return self._host.python_random

    @property
    def numpy_random(self) -> np.random.Generator:
        """This actor's own stream of NumPy's random numbers."""
        return self._host.numpy_random

    def send(self, to: "Ref", message: object) -> None:
        """Send a message; whether it arrives is up to the network and the receiver."""
        host = self._host
        lamport = host.lamport = host.lamport + 1
        target = to.host
        item = (target, message, host.ref, lamport)
        if target.node is host.node:
            target.put(item)
        else:
            host.system.transmit(host.node, item)

    def reply(self, message: object) -> None:
        """Send a message to whoever sent the one being handled."""
        self.send(self._host.sender, message)

    def after(self, delay_us: int, message: object) -> Timer:
        """Get `message` from oneself after a delay; the timer can be cancelled."""
        return self._host.system.set_timer(self, delay_us, message, periodic=False)

    def every(self, period_us: int, message: object) -> Timer:
        """Get `message` from oneself once every period, until cancelled."""
        return self._host.system.set_timer(self, period_us, message, periodic=True)

    def spawn(
        self,
        actor_class: "type[Actor]",
        name: str,
        *args: Any,
        on_failure: Supervision = "stop",
        **kwargs: Any,
    ) -> "Ref":
        """Start a child on the same node; it is stopped when this actor ends or restarts."""
        host = self._host
        program = Program(name, actor_class, args, kwargs, on_failure, parent=host)
        return host.system.start(program, host.node)

    def stop(self) -> None:
        """Stop once the messages that are in the inbox now have been handled."""
        self.send(self._host.ref, _ActorStop())

    def watch(self, ref: "Ref") -> None:
        """Get `Ended` when that actor ends; at once when it is dead already.

        The notice crosses the network as any message does: a cut link loses it.
        """
        self._host.system.watch(self._host, ref)

    def record(
        self,
        kind: str,
        *,
        topic: str | None = None,
        partition: int = NULL_INT,
        group: str | None = None,
        member: str | None = None,
        producer: str | None = None,
        base_offset: int = NULL_INT,
        count: int = NULL_INT,
        bytes: int = NULL_INT,
        epoch: int = NULL_INT,
        append_time_us: int = NULL_INT,
        detail: str | None = None,
    ) -> None:
        """Record an event of this actor: past tense, a range of records rather than each."""
        host = self._host
        lamport = host.lamport = host.lamport + 1
        system, node = host.system, host.node
        now_us = system.now_us
        clock_us = node.clock_us(now_us) if node.drift_ppm else now_us + node.offset_us
        row = (
            now_us, kind, node.name, host.ref.name, topic, partition, group, member, producer,
            base_offset, count, bytes, epoch, lamport, append_time_us, clock_us, detail,
        )  # fmt: skip
        system.log.append(row)

    def subject(
        self,
        kind: str,
        partition: "TopicPartition",
        *,
        producer: str | None = None,
        group: str | None = None,
        member: str | None = None,
    ) -> int:
        """Give the number of what happens to records of a partition again and again.

        It holds for all of the actor's life: who records often about the same keeps it.
        """
        host = self._host
        where, (topic, number) = (kind, host.node.name, host.ref.name), partition
        return host.system.log.subject((*where, topic, number, group, member, producer))

    def record_pieces(
        self,
        subject: int,
        pieces: Iterable["Batch"],
        epoch: int = NULL_INT,
        detail: str | None = None,
    ) -> None:
        """Record what happened to all records of some batches: an event for each."""
        host = self._host
        lamport, node, log = host.lamport, host.node, host.system.log
        now_us = host.system.now_us
        clock_us = node.clock_us(now_us) if node.drift_ppm else now_us + node.offset_us
        text = NULL_INT if detail is None else log.detail(detail)
        rows = []
        for piece in pieces:
            lamport += 1
            rows.append(pack(
                subject, text, now_us, piece.base_offset, piece.count, piece.bytes, epoch, lamport,
                piece.append_time_us, clock_us,
            ))  # fmt: skip
        host.lamport = lamport
        log.extend(b"".join(rows))

    def record_whole(
        self, subject: int, batch: "Batch", epoch: int, detail: str | None = None
    ) -> None:
        """Do the same for one batch: every batch of a run passes here, twice or more."""
        host = self._host
        lamport = host.lamport = host.lamport + 1
        system, node = host.system, host.node
        log, now_us = system.log, system.now_us
        clock_us = node.clock_us(now_us) if node.drift_ppm else now_us + node.offset_us
        text = NULL_INT if detail is None else log.detail(detail)
        buffer = log.buffer
        buffer.extend(pack(
            subject, text, now_us, batch.base_offset, batch.count, batch.bytes, epoch, lamport,
            batch.append_time_us, clock_us,
        ))  # fmt: skip
        if len(buffer) >= log.limit:
            log.reached_limit()

    def record_batch(self, kind: str, rows: int, **columns: Any) -> None:
        """Record many events of one kind at once, a column at a time.

        A column is a value for all of them, or a sequence with one for each; their time, place
        and Lamport time are those of this moment.
        """
        host = self._host
        now_us = host.system.now_us
        host.system.log.append_columns(
            rows,
            kind=kind,
            time_us=now_us,
            node=host.node.name,
            actor=host.ref.name,
            lamport=host.tick(),
            clock_us=host.node.clock_us(now_us),
            **columns,
        )


def _start(actor: Actor, message: Start) -> None:
    actor.started()


def _fire(actor: Actor, timer: Timer) -> None:
    handler = actor.handlers.get(type(timer.message))
    if handler is None or timer.period_us or timer.cancelled or timer.actor is not actor:
        actor._host.system.fire(actor, timer)
    else:
        # One that goes off once, as it was meant to, is nearly all that there is.
        timer.pending = False
        handler(actor, timer.message)


def _stop(actor: Actor, message: _ActorStop) -> None:
    actor._host.end("stopped")


_ENGINE_HANDLERS: Handlers = {Start: _start, Timer: _fire, _ActorStop: _stop}
Actor.handlers = _ENGINE_HANDLERS
