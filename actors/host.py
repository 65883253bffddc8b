"""One life of one actor: the part that both engines' Pykka actors have in common.

A host dispatches, supervises and ends an actor. It lives from the start of the actor to its end
or its node's crash; a restart after a failure puts a fresh actor into the same host, a restarted
node makes a new host at the same address.

Nothing is checked for each message: an actor that must not receive now (it has ended, its node is
paused) has an empty dispatch table, so that the one look-up fails and `set_aside` sorts it out.
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

from ..model import kinds
from ..model.errors import UnhandledMessageError
from ..model.seeds import numpy_stream, python_stream
from .actor import Ended, Handlers, Program, Start
from .promise import Promise, Promises, settle
from .timers import Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka._envelope import Envelope

    from .node import Node
    from .ref import Item, Ref
    from .system import System

logger = logging.getLogger("wavetank")

NO_HANDLERS: Final[Handlers] = {}


class KilledError(BaseException):
    """Unwinds a handler whose actor was killed while it ran; no user code should catch it."""


class _Grave:
    """What an actor finds in place of its host after its end: no effect is possible any more."""

    def __getattribute__(self, name: str) -> Any:
        raise KilledError

    def __setattr__(self, name: str, value: object) -> None:
        raise KilledError


_GRAVE: Final[Any] = _Grave()


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
        """Why it ended; empty while it lives."""
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

    @property
    def _stream(self) -> str:
        return self.ref.name if self.life == 1 else f"{self.ref.name}#{self.life}"

    def adopt(self) -> None:
        """Be the host of the actor: from now on it has effects."""
        self.actor._host = self

    def abandon(self) -> None:
        """See to it that the actor has no effect any more, whatever it still does."""
        self.actor._host = _GRAVE

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
        """Take what came through Pykka's own reference."""
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
            settle(sender, error=ActorDeadError(f"{self} has ended: {self.ended}"))

    def set_aside(self, message: object, sender: Ref, lamport: int) -> None:
        """Deal with a message for which the dispatch table has no handler."""
        if self.ended:
            self.bury(message, sender)
        elif self.node.state == "paused":
            self.hold(message, sender, lamport)
        elif type(message) in self.table:
            # A live node was resumed between the look-up and now.
            self.receive(message, sender, lamport)
        else:
            self.unhandled(message, sender)

    def hold(self, message: object, sender: Ref, lamport: int) -> None:
        """Keep a message until the node goes on."""
        raise NotImplementedError

    def unhandled(self, message: object, sender: Ref) -> None:
        what = f"{type(message).__name__} from {sender.name}"
        logger.warning("%s has no handler for %s", self, what)
        self.note(kinds.UNHANDLED, what)
        error = UnhandledMessageError(f"{self} has no handler for {type(message).__name__}")
        settle(sender, error=error)

    def bury(self, message: object, sender: Ref) -> None:
        """Account for a message to an actor that has ended."""
        if isinstance(message, Timer):
            self.system.agenda.timer_came_up(message)
        elif isinstance(message, _ActorStop):
            settle(sender)
        elif not isinstance(message, Start | Ended):
            self.note(kinds.UNDELIVERABLE, f"{type(message).__name__} from {sender.name}")
            settle(sender, error=ActorDeadError(f"{self} has ended: {self.ended}"))

    # Failing and ending

    def fail(self, error: BaseException, message: object) -> None:
        """Record what a handler raised, tell whoever waits, and restart or stop the actor."""
        settle(self.sender, error=error)
        if self.ended:
            return
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}"
        logger.error("%s failed on %s", self, type(message).__name__, exc_info=error)
        self.note(
            kinds.FAILED, f"{what} on {type(message).__name__} at {where.name}:{where.lineno}"
        )
        # One that cannot even start would fail for ever.
        if self.program.on_failure == "stop" or isinstance(message, Start):
            self.kill("failed")
        else:
            self.restart()

    def restart(self) -> None:
        """Put a fresh actor into this host; inbox, watchers and random streams stay."""
        self.abandon()
        for child in list(self.children.values()):
            child.kill("parent restarted")
        try:
            self.actor = self.program.make()
        except Exception as error:
            self.fail(error, Start())
            return
        self.adopt()
        self.note(kinds.RESTARTED)
        self.receive(Start(), self.ref, self.lamport)

    def end(self, reason: str) -> None:
        """End in an orderly way: `stopped` runs first. Only from the actor's own context."""
        asked_by = self.sender
        try:
            self.actor.stopped()
        except Exception as error:
            logger.error("%s failed while it stopped", self, exc_info=error)
            self.note(kinds.FAILED, f"{type(error).__name__}: {error} in stopped()")
        self.kill(reason)
        settle(asked_by)

    def kill(self, reason: str) -> None:
        """End at once, from any context: nothing more of this actor takes effect."""
        with self.system.lock:
            if self.ended:
                return
            self.ended = reason
            self.table = NO_HANDLERS
            self.actor_stopped.set()
            if reason != "stopped":
                self.actor.killed()
            self.note(kinds.STOPPED, reason)
            self.abandon()
            del self.node.hosts[self.ref.name]
            if self.program.parent is not None:
                self.program.parent.children.pop(self.ref.name, None)
            for watcher in self.watchers:
                self.announce_end(watcher)
            for child in self.children.values():
                child.put((child, _ActorStop(), self.ref, self.tick()))
        self.after_end()

    def after_end(self) -> None:
        """Do what else this engine needs once the actor has ended."""

    def announce_end(self, watcher: Ref) -> None:
        """Send a watcher the notice, as a message from here."""
        notice = (watcher.host, Ended(self.ref, self.ended), self.ref, self.tick())
        self.system.carry(self.node, notice)

    def note(self, kind: str, detail: str | None = None) -> None:
        """Record an event of the engine about this actor."""
        self.system.note(kind, self.node, actor=self.ref.name, lamport=self.tick(), detail=detail)

    def tick(self) -> int:
        """Advance the actor's Lamport clock."""
        self.lamport += 1
        return self.lamport
