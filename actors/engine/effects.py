"""Everything an actor can do to the world, as one object that its parts share.

An actor and the parts it holds send, set timers, spawn and record only through here. That makes a
simulated run repeatable, and it lets a part be tested without an engine: a test passes an object
with the same methods. When the actor ends, its effects end with it: whatever a handler that is cut
short still tries raises `KilledError`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ...model.events.rows import pack
from ...model.events.schema import NULL_INT

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    import numpy as np

    from ...model.errors import WavetankError
    from ...model.log.batch import Batch
    from ...model.topics import TopicPartition
    from .actor import Actor
    from .disk import ActorDisk
    from .host import Host
    from .ref import Ref
    from .timers import Timer

Supervision: TypeAlias = Literal["restart", "stop"]


class KilledError(BaseException):
    """Unwinds a handler whose actor was killed while it ran; no user code should catch it."""


class _Grave:
    """Stands in for the host of an actor that has ended: every access raises."""

    def __getattribute__(self, name: str) -> Any:
        raise KilledError

    def __setattr__(self, name: str, value: object) -> None:
        raise KilledError


_GRAVE: Final[Any] = _Grave()


class Effects:
    """What one actor may do, from its start to its end."""

    __slots__ = ("host",)

    def __init__(self, host: Host) -> None:
        self.host = host

    def end(self) -> None:
        """Allow nothing any more."""
        self.host = _GRAVE

    @property
    def ref(self) -> Ref:
        """The actor's own address."""
        return self.host.ref

    @property
    def sender(self) -> Ref:
        """The sender of the message being handled."""
        return self.host.sender

    @property
    def now(self) -> int:
        """The time on this node's clock, in µs (a skewed clock is wrong)."""
        host = self.host
        node = host.node
        if node.drift_ppm:
            return node.clock_us(host.system.now_us)
        return host.system.now_us + node.offset_us  # without a call: this is asked very often

    @property
    def monotonic(self) -> int:
        """The time on a clock of this node that only drifts: for durations, never a date."""
        host = self.host
        return host.node.steady_us(host.system.now_us)

    @property
    def true_now(self) -> int:
        """The true time in µs: for what is recorded about a run, never for a decision in it."""
        return self.host.system.now_us

    @property
    def time_is_virtual(self) -> bool:
        """Whether this is a simulation."""
        return self.host.system.engine == "simulated"

    @property
    def life(self) -> int:
        """1 in an actor's first life, 2 after its node's first restart, and so on."""
        return self.host.life

    @property
    def random(self) -> random.Random:
        """This actor's own stream of Python's random numbers."""
        return self.host.python_random

    @property
    def numpy_random(self) -> np.random.Generator:
        """This actor's own stream of NumPy's random numbers."""
        return self.host.numpy_random

    def send(self, to: Ref, message: object) -> None:
        """Send a message; whether it arrives is up to the network and the receiver."""
        host = self.host
        lamport = host.lamport = host.lamport + 1
        target = to.host
        item = (target, message, host.ref, lamport)
        if target.node is host.node:
            target.put(item)
        else:
            host.system.network.transmit(host.node, item)

    def reply(self, message: object) -> None:
        """Send a message to the sender of the one being handled."""
        self.send(self.host.sender, message)

    def after(self, delay_us: int, message: object, *, background: bool = False) -> Timer:
        """Send `message` to oneself after a delay; the timer can be cancelled.

        `run_until_idle` does not wait for a timer in the background.
        """
        host = self.host
        return host.system.set_timer(host, delay_us, message, periodic=False, background=background)

    def every(self, period_us: int, message: object, *, exactly: bool = True) -> Timer:
        """Send `message` to oneself once every period, until cancelled.

        Unless it has to be `exactly` so, the system's stagger and jitter apply: the first period
        is cut short, and each has a small deviation, both at random.
        """
        host = self.host
        return host.system.set_timer(host, period_us, message, periodic=True, exactly=exactly)

    def spawn(
        self,
        actor_class: type[Actor],
        name: str,
        *args: Any,
        on_failure: Supervision = "stop",
        **kwargs: Any,
    ) -> Ref:
        """Start a child on the same node; it is stopped when this actor ends or restarts."""
        return self.host.spawn(actor_class, name, args, kwargs, on_failure)

    def surface(self, error: WavetankError) -> None:
        """Have the outside's waiting call raise an error, or its next one."""
        self.host.system.surface(error)

    def surface_at_end(self, error: WavetankError) -> None:
        """Have the end of the system raise an error, unless a waiting call raises one before."""
        self.host.system.surface_at_end(error)

    def hold_messages(self) -> None:
        """Receive only one's own timers and the answers of the disk, until `release_messages`."""
        self.host.hold_messages()

    def release_messages(self) -> None:
        """Receive all messages again: first those that have come meanwhile."""
        self.host.release_messages()

    @property
    def origin_us(self) -> int:
        """The time zero of the system as Unix time in µs; 0 in a simulation."""
        return self.host.system.origin_us

    @property
    def disk(self) -> ActorDisk:
        """The disk of this node. A new object each time: keep it."""
        host = self.host
        return host.system.disks.of(host.node).access(host)

    def find(self, name: str) -> Ref | None:
        """The address of the actor of this name; `None` if there has never been one."""
        return self.host.system.refs.get(name)

    def watch(self, ref: Ref) -> None:
        """Receive `Ended` when that actor ends; at once if it has ended already."""
        host = self.host
        host.system.watch(host, ref)

    # The columns are not keyword-only, for speed: Python looks each default of those up in a dict.
    def record(
        self,
        kind: str,
        topic: str | None = None,
        partition: int = NULL_INT,
        group: str | None = None,
        member: str | None = None,
        consumer: str | None = None,
        producer: str | None = None,
        peer: str | None = None,
        message: str | None = None,
        key: str | None = None,
        mode: str | None = None,
        reason: str | None = None,
        base_offset: int = NULL_INT,
        count: int = NULL_INT,
        bytes: int = NULL_INT,
        epoch: int = NULL_INT,
        retries: int = NULL_INT,
        total: int = NULL_INT,
        peak: int = NULL_INT,
        append_time_us: int = NULL_INT,
        detail: str | None = None,
    ) -> None:
        """Record an event: past tense, a range of records rather than each of them.

        Every fact has a column (see `Event`); `detail` is for people only.
        """
        host = self.host
        lamport = host.lamport = host.lamport + 1
        system, node = host.system, host.node
        now_us = system.now_us
        clock_us = node.clock_us(now_us) if node.drift_ppm else now_us + node.offset_us
        log = system.log
        subject = (
            kind, node.name, host.ref.name, topic, partition, group, member, consumer, producer,
            peer, message, key, mode, reason,
        )  # fmt: skip
        try:
            packed = pack(
                log.subjects[subject], NULL_INT if detail is None else log.detail(detail), now_us,
                base_offset, count, bytes, epoch, retries, total, peak, lamport, append_time_us,
                clock_us,
            )  # fmt: skip
        except (KeyError, TypeError, struct.error):  # a new subject, or an invalid cell
            row = (
                now_us, *subject, base_offset, count, bytes, epoch, retries, total, peak, lamport,
                append_time_us, clock_us, detail,
            )  # fmt: skip
            log.append(row)
            return
        buffer = log.buffer
        buffer.extend(packed)
        if len(buffer) >= log.limit:
            log.reached_limit()

    def recorder(
        self,
        kind: str,
        partition: TopicPartition,
        *,
        producer: str | None = None,
        group: str | None = None,
        member: str | None = None,
        consumer: str | None = None,
        mode: str | None = None,
        reason: str | None = None,
    ) -> Recorder:
        """Return a handle that records one kind of event about batches of a partition.

        Whoever records often about the same subject keeps the handle: that is the fast way.
        """
        host = self.host
        where, (topic, number) = (kind, host.node.name, host.ref.name), partition
        names = (topic, number, group, member, consumer, producer, None, None, None, mode, reason)
        return Recorder(self, host.system.log.subject((*where, *names)))

    def record_columns(self, kind: str, rows: int, **columns: Any) -> None:
        """Record many events of one kind at once, a column at a time.

        A column is one value for all events, or a sequence with one value for each; their time,
        place and Lamport time are those of this moment.
        """
        host = self.host
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


class Recorder:
    """Records events of one kind about one subject, such as "appended to orders-3 by shop"."""

    __slots__ = ("_effects", "_subject")

    def __init__(self, effects: Effects, subject: int) -> None:
        self._effects = effects
        self._subject = subject

    def batch(self, batch: Batch, epoch: int = NULL_INT, retries: int = NULL_INT) -> None:
        """Record an event about all records of a batch.

        Every batch of a run passes here two or three times, so the row is packed in one step and
        without further calls.
        """
        host = self._effects.host
        lamport = host.lamport = host.lamport + 1
        system, node = host.system, host.node
        log, now_us = system.log, system.now_us
        clock_us = node.clock_us(now_us) if node.drift_ppm else now_us + node.offset_us
        buffer = log.buffer
        buffer.extend(pack(
            self._subject, NULL_INT, now_us, batch.base_offset, batch.count, batch.bytes, epoch,
            retries, NULL_INT, NULL_INT, lamport, batch.append_time_us, clock_us,
        ))  # fmt: skip
        if len(buffer) >= log.limit:
            log.reached_limit()

    def batches(
        self, batches: Iterable[Batch], epoch: int = NULL_INT, detail: str | None = None
    ) -> None:
        """Record an event for each of some batches."""
        host = self._effects.host
        lamport, node, log = host.lamport, host.node, host.system.log
        now_us = host.system.now_us
        clock_us = node.clock_us(now_us) if node.drift_ppm else now_us + node.offset_us
        text = NULL_INT if detail is None else log.detail(detail)
        rows = []
        for batch in batches:
            lamport += 1
            rows.append(pack(
                self._subject, text, now_us, batch.base_offset, batch.count, batch.bytes, epoch,
                NULL_INT, NULL_INT, NULL_INT, lamport, batch.append_time_us, clock_us,
            ))  # fmt: skip
        host.lamport = lamport
        log.extend(b"".join(rows))
