"""An asyncio event loop on the virtual clock, so that async handlers run in a simulation.

Callbacks run in the order in which they were scheduled. A sleep is a timer of the actor: it takes
virtual time, ends with its node's crash and is held while its node is paused. Anything that needs
the real world (sockets, processes, threads, signals) is refused by name.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from ...model.errors import WavetankError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from .effects import Effects
    from .timers import Timer

logger = logging.getLogger("wavetank")

CROWDED: Final = 1_000_000
"""With this many callbacks at one instant, a handler will never let virtual time move on."""


@attrs.frozen(eq=False)
class CallbackDue:
    """A callback that was scheduled for later is due."""

    handle: Any
    """The callback, a `VirtualTimerHandle` of the actor that the message goes to."""


@attrs.frozen
class CallbacksReady:
    """Callbacks were scheduled while none ran."""


class VirtualTimerHandle(asyncio.TimerHandle):
    """A callback that is scheduled for later, with the timer that runs it."""

    timer: Timer | None = None
    """`None` once it has gone off, or was cancelled."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs the coroutines of one actor in virtual time."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """The tasks that have not ended."""
        self._timers = 0
        self._replies = 0
        """The number of answers of actors that coroutines wait for."""
        self._closed = False
        self._running = False

    # Used by an actor

    def run_ready(self) -> None:
        """Run callbacks until none is left at this instant."""
        ready, outer = self._ready, asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._running = True
        try:
            for _ in range(CROWDED):
                if not ready:
                    return
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
            raise WavetankError(
                f"the handler made {CROWDED:,} steps at one instant: expected it to sleep or end"
            )
        finally:
            self._running = False
            asyncio._set_running_loop(outer)

    def on_due(self, due: CallbackDue) -> None:
        """Run a callback whose time has come, and what follows from it."""
        due.handle.timer = None
        self._timers -= 1
        self._ready.append(due.handle)
        self.run_ready()

    def wait_for_reply(self, waiter: asyncio.Future[None]) -> Generator[Any, None, None]:
        """Wait for the answer of an actor, which comes from outside of this loop."""
        self._replies += 1
        try:
            yield from waiter
        finally:
            self._replies -= 1

    def waits_for_ever(self) -> bool:
        """Whether no callback is left to run, now or later."""
        return not (self._ready or self._timers or self._replies)

    def close(self) -> None:
        """Run nothing any more; coroutines that have not ended are closed, the oldest first."""
        self._closed = True
        self._ready.clear()
        for task in list(self._tasks):
            coroutine = task.get_coro()
            if inspect.iscoroutine(coroutine) and not coroutine.cr_running:
                try:
                    coroutine.close()
                except Exception as error:
                    logger.error("a handler failed while it was closed", exc_info=error)

    # Used by asyncio

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._effects.now / 1e6

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback at this instant, after those before it."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            if not self._running and not self._ready:
                self._effects.after(0, CallbacksReady())
            self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after a delay in seconds of virtual time."""
        delay_us = max(0, round(delay * 1e6))
        when = (self._effects.now + delay_us) / 1e6
        handle = VirtualTimerHandle(when, callback, args, self, context)
        handle.timer = self._effects.after(delay_us, CallbackDue(handle))
        self._timers += 1
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, VirtualTimerHandle)
        if handle.timer is not None:
            handle.timer.cancel()
            handle.timer = None
            self._timers -= 1

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        """Start a coroutine."""
        task = asyncio.Task(coro, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def get_debug(self) -> bool:
        """Asyncio's debug mode measures real time: it is off."""
        return False

    def is_running(self) -> bool:
        """Whether a callback runs now."""
        return self._running

    def is_closed(self) -> bool:
        """Whether the actor has ended."""
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what asyncio complains about; a task that ends with its actor is no error."""
        if not self._closed:
            logger.error("%s", context["message"], exc_info=context.get("exception"))

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: an abandoned async generator ends with its actor."""


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise WavetankError(
            f"a simulated handler cannot use {name}: it needs the real world; expected only "
            "asyncio.sleep, timeouts, tasks, locks, queues and the like"
        )

    return refuse


for _name in (
    "add_reader", "add_signal_handler", "add_writer", "call_soon_threadsafe",
    "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe",
    "create_connection", "create_datagram_endpoint", "create_server", "create_unix_connection",
    "create_unix_server", "getaddrinfo", "getnameinfo", "run_forever", "run_in_executor",
    "run_until_complete", "sendfile", "sock_accept", "sock_connect", "sock_recv",
    "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile",
    "sock_sendto", "start_tls", "subprocess_exec", "subprocess_shell",
):  # fmt: skip
    setattr(VirtualLoop, _name, _refuse(_name))
