"""Runs the awaitables that async handlers return, on either engine.

Live, a worker has an asyncio loop in its own thread and runs each awaitable to its end. In a
simulation the worker goes on receiving messages while a coroutine sleeps in virtual time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from ...model.errors import WavetankError
from ..engine.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..engine.effects import Effects

Done: TypeAlias = "Callable[[BaseException | None], None]"
"""Called with the error of an awaitable, or with `None` if it ended without one."""


async def _wait_for(awaitable: Awaitable[Any]) -> None:
    await awaitable


class LiveCoroutines:
    """Runs awaitables in the calling thread."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._running = False
        self._ended = False

    def run(self, awaitable: Awaitable[Any], done: Done) -> None:
        """Run an awaitable to its end; the loop stays, for clients that are bound to it."""
        failure: BaseException | None = None
        self._running = True
        try:
            self._runner.run(_wait_for(awaitable))
        except (KeyboardInterrupt, SystemExit):
            self._ended = True
            raise
        except BaseException as error:
            failure = error
        finally:
            self._running = False
            if self._ended:
                self._runner.close()
        done(failure)

    def end(self) -> None:
        """Close the loop, as soon as nothing runs on it; from any thread."""
        self._ended = True
        if not self._running:
            self._runner.close()


class VirtualCoroutines:
    """Runs awaitables in virtual time."""

    def __init__(self, effects: Effects) -> None:
        # mypy takes the loop for abstract; at run time it refuses the missing methods by name.
        self.loop = VirtualLoop(effects)  # type: ignore[abstract]
        self._task: asyncio.Task[None] | None = None
        self._done: Done | None = None

    def run(self, awaitable: Awaitable[Any], done: Done) -> None:
        """Start an awaitable; `done` is called at its end, now or later in virtual time."""
        self._done = done
        self._task = self.loop.create_task(_wait_for(awaitable))
        self.loop.run_ready()
        self.proceed()

    def proceed(self) -> None:
        """Report the end of the awaitable, if it has ended."""
        task, done = self._task, self._done
        if task is None or done is None:
            return  # a task that an earlier handler has left behind
        failure: BaseException | None = None
        if not task.done():
            if not self.loop.waits_for_ever():
                return
            failure = WavetankError(
                "the handler awaits something that never happens in a simulation: expected "
                "asyncio.sleep, a future of this cluster, or something that the handler does itself"
            )
            task.cancel(str(failure))
            self.loop.run_ready()
        elif task.cancelled():
            failure = asyncio.CancelledError()
        else:
            failure = task.exception()
        self._task = self._done = None
        done(failure)

    def end(self) -> None:
        """Drop everything that has not ended."""
        self.loop.close()
