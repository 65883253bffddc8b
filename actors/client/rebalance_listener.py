"""Tells the user of a consumer which partitions it gets, gives up and has lost.

As with Kafka's ConsumerRebalanceListener, the user is told between two polls: by the worker if the
consumer works by itself, and inside of `poll` (or whatever else the user asks for) if it is called.
Before partitions are given up in an orderly way, the consumer waits until the user has been told:
commits still work then. Partitions that were taken away are reported afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from ...model.callables import require_plain
from ...model.errors import BadValueError
from ...model.messages.client import RebalanceNotice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model.topics import TopicPartition
    from ..engine.effects import Effects
    from ..engine.ref import Ref

Callback: TypeAlias = "Callable[[tuple[TopicPartition, ...]], Any]"


def _is_callback(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise BadValueError(f"{field.name} = {value!r}: expected a function of partitions")
    require_plain(value, field.name)


@attrs.frozen
class RebalanceCallbacks:
    """A user's functions; each is called with a tuple of partitions."""

    on_assigned: Callback | None = attrs.field(default=None, validator=_is_callback)
    """Called after each rebalance, with the partitions that are new; there may be none."""
    on_revoked: Callback | None = attrs.field(default=None, validator=_is_callback)
    """Called before partitions are given up."""
    on_lost: Callback | None = attrs.field(default=None, validator=_is_callback)
    """Called after partitions were taken away; as in Kafka, `on_revoked` is called without it."""

    def __bool__(self) -> bool:
        """Whether there is any function."""
        return any((self.on_assigned, self.on_revoked, self.on_lost))

    def wanted(self, kind: str) -> Callback | None:
        """The function for a kind of notice."""
        if kind == "lost":
            return self.on_lost or self.on_revoked
        return self.on_assigned if kind == "assigned" else self.on_revoked

    def call(self, notice: RebalanceNotice) -> None:
        """Call the function for a notice."""
        function = self.wanted(notice.kind)
        if function is not None:
            function(notice.partitions)


class RebalanceListener:
    """Keeps track of what the user of one consumer has been told."""

    def __init__(
        self,
        effects: Effects,
        callbacks: RebalanceCallbacks,
        worker: Callable[[], Ref | None],
        pass_on: Callable[[], None],
    ) -> None:
        """Tell the worker, or call `pass_on` when a request of the user can be answered with it."""
        self._effects = effects
        self._callbacks = callbacks
        self._worker = worker
        self._pass_on = pass_on
        self._notices: deque[RebalanceNotice] = deque()
        self._revoked: dict[TopicPartition, None] = {}
        """Partitions that are about to be given up, of which the user was told."""
        self._hearing = 0
        """The number of notices about these that the user has not finished with."""

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the user about partitions that are new."""
        self._tell("assigned", tuple(partitions))

    def revoking(self, partitions: Iterable[TopicPartition]) -> bool:
        """Tell the user about partitions that it has to give up; return whether it has finished."""
        if self._callbacks.on_revoked is None:
            return True
        new = tuple(tp for tp in partitions if tp not in self._revoked)
        if new:
            self._revoked.update(dict.fromkeys(new))
            self._hearing += 1
            self._tell("revoked", new)
        return not self._hearing

    def dropped(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Tell the user about partitions that are gone, unless it was told before."""
        gone = tuple(partitions)
        untold = tuple(tp for tp in gone if tp not in self._revoked)
        for partition in gone:
            self._revoked.pop(partition, None)
        if not self._revoked:
            self._hearing = 0
        if untold:
            self._tell("lost" if lost else "revoked", untold)

    def user_returned(self) -> None:
        """Note that a caller is back, and has finished with the notices that it took."""
        if self._worker() is None:
            self._hearing = sum(self._is_open(notice) for notice in self._notices)

    def finished(self, notice: RebalanceNotice) -> None:
        """Note that the worker has finished with a notice."""
        if self._is_open(notice):
            self._hearing -= 1

    def _is_open(self, notice: RebalanceNotice) -> bool:
        """Whether the consumer waits for the user to finish with a notice."""
        return notice.kind == "revoked" and any(tp in self._revoked for tp in notice.partitions)

    def next_notice(self) -> RebalanceNotice | None:
        """Take the next notice for a caller, if there is one."""
        return self._notices.popleft() if self._notices else None

    def _tell(self, kind: Any, partitions: tuple[TopicPartition, ...]) -> None:
        if self._callbacks.wanted(kind) is None:
            return
        notice, worker = RebalanceNotice(kind, partitions), self._worker()
        if worker is not None:
            self._effects.send(worker, notice)
        else:
            self._notices.append(notice)
            self._pass_on()
