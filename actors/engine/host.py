"""One life of one actor: the part that both engines' Pykka actors have in common.

A host dispatches messages to an actor, supervises it and ends it. It lives from the start of the
actor to its end or its node's crash; a restart after a failure puts a new actor into the same host,
a restarted node makes a new host at the same address.

Nothing is checked for each message: an actor that must not receive now (it has ended, its node is
paused) has an empty dispatch table, so that the one look-up fails and `set_aside` handles the rest.
"""

from __future__ import annotations

import logging
import random
import traceback
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pykka
from pykka import ActorDeadError
from pykka.messages import _ActorStop

from ...model.errors import UnhandledMessageError
from ...model.events import kinds
from ...model.seeds import numpy_stream, python_stream
from .actor import Ended, Handlers, Program, StartActor
from .effects import Effects, KilledError, Supervision
from .promise import Promise, Promises, settle
from .timers import Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka._envelope import Envelope

    from .actor import Actor
    from .node import Node
    from .ref import Item, Ref
    from .system import System

logger = logging.getLogger("wavetank")

NO_HANDLERS: Final[Handlers] = {}


class Host(pykka.Actor):
    """The engine-independent half of a Pykka actor that hosts one of ours."""

    put: Callable[[Item], None]

    def __init__(self, system: System, node: Node, ref: Ref, program: Program, life: int) -> None:
        # Pykka's own initialiser is left out: it draws a uuid4, and makes a threading.Event and
        # a reference for each actor, which 100,000 simulated ones have no use for.
        self.actor_urn = f"urn:wavetank:{ref.name}:{life}"
        self.system = system
        self.node = node
        self.ref = ref
        self.program = program
        self.life = life
        """1 for the first at this address, 2 after its node's first restart, …"""
        self.lamport = 0
        self.sender: Ref = ref
        self.ended = ""
        """The reason of its end; empty while it lives."""
        self.held: list[Item] | None = None
        """Messages that the actor does not want yet; `None` if it wants all."""
        self.watchers: list[Ref] = []
        self.children: dict[str, Host] = {}
        self.actor = program.make()
        self.adopt()
        self.table = self.actor.handlers

    @property
    def actor_ref(self) -> pykka.ActorRef[Any]:
        """Pykka's reference to this actor; tell, ask and stop work as Pykka's users expect."""
        return pykka.ActorRef(self)

    def __str__(self) -> str:
        return f"{self.program.actor_class.__name__} ({self.ref.name})"

    @cached_property
    def python_random(self) -> random.Random:
        return python_stream(self.system.seed, self._stream)

    @cached_property
    def numpy_random(self) -> np.random.Generator:
        return numpy_stream(self.system.seed, self._stream)

    @cached_property
    def timer_random(self) -> random.Random:
        return python_stream(self.system.seed, f"{self._stream}/timers")

    @property
    def _stream(self) -> str:
        return self.ref.name if self.life == 1 else f"{self.ref.name}#{self.life}"

    def adopt(self) -> None:
        """Give the actor its effects."""
        self.actor.effects = self.make_effects()

    def make_effects(self) -> Effects:
        """Make what the actor acts through."""
        return Effects(self)

    def abandon(self) -> None:
        """Take the actor's effects away: whatever it still tries raises."""
        self.actor.effects.end()

    def spawn(
        self,
        actor_class: type[Actor],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        on_failure: Supervision,
    ) -> Ref:
        """Start a child of the actor on the same node."""
        program = Program(name, actor_class, args, kwargs, on_failure, parent=self)
        return self.system.start(program, self.node)

    # The outside's ways in

    def tell(self, message: object) -> None:
        system = self.system
        if system.stopped:
            system.require_running()
        self.put((self, message, system.nobody, system.tick()))

    def ask(self, message: object) -> pykka.Future[Any]:
        future = self._create_future()
        self.ask_for(future, message)
        return future

    def ask_for(
        self, future: pykka.Future[Any], message: object, promise: Promises = Promise
    ) -> None:
        self.system.require_running()
        self.put((self, message, promise(self.system, future).ref, self.system.tick()))

    def request_stop(self) -> None:
        self.tell(_ActorStop())

    def post(self, envelope: Envelope[Any]) -> None:
        """Accept a message that came through Pykka's own reference."""
        if envelope.reply_to is None:
            self.tell(envelope.message)
        else:
            self.ask_for(envelope.reply_to, envelope.message)

    # Handling

    def receive(self, message: object, sender: Ref, lamport: int) -> None:
        """Handle one message."""
        handler = self.table.get(type(message))
        if handler is None:
            self.set_aside(message, sender, lamport)
            return
        own = self.lamport
        self.lamport = (lamport if lamport > own else own) + 1
        self.sender = sender
        try:
            handler(self.actor, message)
        except Exception as error:
            self.fail(error, message)
        except KilledError:
            self.killed_while_handling(sender)

    def killed_while_handling(self, sender: Ref) -> None:
        """Tell a waiting asker that there will be no answer."""
        settle(sender, error=ActorDeadError(f"{self} has ended: {self.ended}"))

    def set_aside(self, message: object, sender: Ref, lamport: int) -> None:
        """Deal with a message for which the dispatch table has no handler."""
        if self.ended:
            self.bury(message, sender)
        elif self.node.state == "paused":
            self.hold(message, sender, lamport)
        elif self.held is not None and type(message) in self.actor.handlers:
            self.held.append((self, message, sender, lamport))
        elif type(message) in self.table:
            # A live node was resumed between the look-up and now.
            self.receive(message, sender, lamport)
        else:
            self.unhandled(message, sender)

    def hold(self, message: object, sender: Ref, lamport: int) -> None:
        """Keep a message until the node is resumed."""
        raise NotImplementedError

    def handlers_now(self) -> Handlers:
        """The handlers of the messages that the actor wants at present."""
        handlers = self.actor.handlers
        if self.held is None:
            return handlers
        return {kind: handlers[kind] for kind in (StartActor, Timer, _ActorStop)}

    def hold_messages(self) -> None:
        """Keep all messages of others for later; timers and answers of the disk go on."""
        self.held = []
        self.table = self.handlers_now()

    def release_messages(self) -> None:
        """Let the actor have the messages that were kept, in order, and all others."""
        held, self.held = self.held or [], None
        self.table = self.actor.handlers
        for item in held:
            self.put(item)

    def unhandled(self, message: object, sender: Ref) -> None:
        what = type(message).__name__
        logger.warning("%s has no handler for %s from %s", self, what, sender.name)
        self.note(kinds.UNHANDLED, message=what, peer=sender.name)
        error = UnhandledMessageError(f"{self} has no handler for {type(message).__name__}")
        settle(sender, error=error)

    def bury(self, message: object, sender: Ref) -> None:
        """Record a message to an actor that has ended as undeliverable."""
        if isinstance(message, Timer):
            self.system.agenda.timer_came_up(message)
        elif isinstance(message, _ActorStop):
            settle(sender)
        elif not isinstance(message, StartActor | Ended):
            self.note(kinds.UNDELIVERABLE, message=type(message).__name__, peer=sender.name)
            settle(sender, error=ActorDeadError(f"{self} has ended: {self.ended}"))

    # Failing and ending

    def fail(self, error: BaseException, message: object) -> None:
        """Record a handler's error, pass it to a waiting asker, and restart or stop the actor."""
        settle(self.sender, error=error)
        if self.ended or (self.system.stopped and isinstance(error, ActorDeadError)):
            return  # a live system that stops under a running handler is no error of the handler
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}"
        logger.error("%s failed on %s", self, type(message).__name__, exc_info=error)
        self.note(
            kinds.FAILED, f"{what} on {type(message).__name__} at {where.name}:{where.lineno}"
        )
        # An actor that fails in `started` would fail for ever.
        if self.program.on_failure == "stop" or isinstance(message, StartActor):
            self.kill("failed")
        else:
            self.restart()

    def restart(self) -> None:
        """Put a new actor into this host; inbox, watchers and random streams stay."""
        self.abandon()
        for child in list(self.children.values()):
            child.kill("parent restarted")
        try:
            self.actor = self.program.make()
        except Exception as error:
            self.fail(error, StartActor())
            return
        self.adopt()
        self.note(kinds.RESTARTED)
        self.receive(StartActor(), self.ref, self.lamport)

    def end(self, reason: str) -> None:
        """End in order: `stopped` runs first. Only from the actor's own context."""
        asked_by = self.sender
        try:
            self.actor.stopped()
        except Exception as error:
            logger.error("%s failed while it stopped", self, exc_info=error)
            self.note(kinds.FAILED, f"{type(error).__name__}: {error} in stopped()")
        self.kill(reason)
        settle(asked_by)

    def kill(self, reason: str) -> None:
        """End at once, from any context: the actor has no effects any more."""
        with self.system.lock:
            if self.ended:
                return
            self.ended = reason
            self.table = NO_HANDLERS
            self.actor_stopped.set()
            if reason != "stopped":
                self.actor.killed()
            self.note(kinds.STOPPED, reason=reason)
            self.abandon()
            del self.node.hosts[self.ref.name]
            if self.program.parent is not None:
                self.program.parent.children.pop(self.ref.name, None)
            for watcher in self.watchers:
                self.announce_end(watcher)
            for child in self.children.values():
                child.put((child, _ActorStop(), self.ref, self.tick()))
            held, self.held = self.held or [], None
            for _, message, sender, _ in held:
                self.bury(message, sender)
        self.after_end()

    def after_end(self) -> None:
        """Clean up what this engine keeps for the actor."""

    def announce_end(self, watcher: Ref) -> None:
        """Send a watcher the notice, as a message from here."""
        notice = (watcher.host, Ended(self.ref, self.ended), self.ref, self.tick())
        self.system.network.carry(self.node, notice)

    def note(self, kind: str, detail: str | None = None, **names: str | None) -> None:
        """Record an event of the engine about this actor."""
        lamport = self.tick()
        self.system.note(
            kind, self.node, actor=self.ref.name, lamport=lamport, detail=detail, **names
        )

    def tick(self) -> int:
        """Advance the actor's Lamport clock."""
        self.lamport += 1
        return self.lamport
