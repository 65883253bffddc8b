"""Effects without an engine: they remember what a part of an actor did."""

from random import Random
from typing import Any

import attrs
import numpy as np

from wavetank.model.events.schema import NULL_INT


@attrs.define(eq=False)
class FakeRef:
    """An address with a name."""

    name: str


@attrs.define(eq=False)
class FakeTimer:
    """A timer that never goes off by itself."""

    due_us: int
    message: object
    background: bool = False
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@attrs.define(eq=False)
class FakeRecorder:
    """A recorder that writes to the list of its effects."""

    effects: "FakeEffects"
    kind: str
    fields: dict[str, Any]

    def batch(self, batch: Any, epoch: int = NULL_INT, retries: int = NULL_INT) -> None:
        self._append(batch, epoch=epoch, retries=retries)

    def batches(self, batches: Any, epoch: int = NULL_INT, detail: str | None = None) -> None:
        for batch in batches:
            self._append(batch, epoch=epoch, detail=detail)

    def _append(self, batch: Any, **facts: Any) -> None:
        span = {"base_offset": batch.base_offset, "count": batch.count}
        self.effects.events.append((self.kind, {**self.fields, **span, **facts}))


@attrs.define(eq=False)
class FakeEffects:
    """What an actor can do, written down instead of done."""

    ref: FakeRef = attrs.Factory(lambda: FakeRef("me"))
    sender: FakeRef = attrs.Factory(lambda: FakeRef("asker"))
    now: int = 0
    life: int = 1
    random: Random = attrs.Factory(lambda: Random(7))
    numpy_random: Any = attrs.Factory(lambda: np.random.default_rng(7))
    sent: list[tuple[FakeRef, Any]] = attrs.Factory(list)
    timers: list[FakeTimer] = attrs.Factory(list)
    events: list[tuple[str, dict[str, Any]]] = attrs.Factory(list)
    spawned: list[str] = attrs.Factory(list)
    watched: list[FakeRef] = attrs.Factory(list)
    found: dict[str, FakeRef] = attrs.Factory(dict)

    @property
    def true_now(self) -> int:
        return self.now

    def send(self, to: Any, message: object) -> None:
        self.sent.append((to, message))

    def reply(self, message: object) -> None:
        self.send(self.sender, message)

    def after(self, delay_us: int, message: object, *, background: bool = False) -> FakeTimer:
        self.timers.append(FakeTimer(self.now + delay_us, message, background))
        return self.timers[-1]

    def every(self, period_us: int, message: object, *, exactly: bool = True) -> FakeTimer:
        return self.after(period_us, message)

    def spawn(self, actor_class: type, name: str, *args: Any, **kwargs: Any) -> FakeRef:
        self.spawned.append(name)
        return FakeRef(name)

    def find(self, name: str) -> FakeRef | None:
        return self.found.get(name)

    def watch(self, ref: Any) -> None:
        self.watched.append(ref)

    def record(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))

    def recorder(self, kind: str, partition: Any, **fields: Any) -> FakeRecorder:
        return FakeRecorder(self, kind, {"partition": partition, **fields})

    def messages(self, kind: type) -> list[Any]:
        """The messages of a type that were sent, in order."""
        return [message for _, message in self.sent if type(message) is kind]

    def kinds(self) -> list[str]:
        """The kinds of the events that were recorded, in order."""
        return [kind for kind, _ in self.events]
