"""What producers and consumers have in common: they know the cluster by metadata, and keep it.

A client asks the controller, and asks again, after a pause, as long as something it needs is not
in the answer. It watches whoever it talks to: the end of a leader reaches it as a broken
connection would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ..model.protocol import GetMetadata, Metadata
from ..strategies.retry import backoff_us
from .actor import Actor, Ended, receives

if TYPE_CHECKING:
    from ..model.topics import TopicPartition
    from .ref import Ref
    from .timers import Timer

NOTHING_KNOWN = Metadata(-1, {}, {}, {}, ())


@attrs.frozen
class AskAgain:
    """The controller has not answered, or something was missing in its answer."""


@attrs.frozen
class LookAround:
    """Time to see whether topics have grown."""


class Client(Actor):
    """An actor that finds partition leaders and coordinators through the controller."""

    def __init__(self, controller: Ref, settings: Any) -> None:
        self.controller = controller
        self.settings = settings
        self.metadata = NOTHING_KNOWN
        self.asking: Timer | None = None
        self.attempts = 0
        self.requests = 0
        self.watched: dict[Ref, None] = {}
        self.dead: dict[Ref, None] = {}
        """Who has ended, though the controller may not know: to ask them would be in vain."""
        self.leaders: dict[TopicPartition, Ref] = {}
        """The leaders in use: looked up for every batch, so they are kept at hand."""

    def next_request(self) -> int:
        self.requests += 1
        return self.requests

    def leader(self, partition: TopicPartition) -> Ref | None:
        """The leader of a partition as far as is known."""
        ref = self.leaders.get(partition)
        if ref is None:
            leader = self.metadata.leaders.get(partition)
            if leader is not None and leader.ref is not None and leader.ref not in self.dead:
                ref = self.leaders[partition] = leader.ref
                self.follow(ref)
        return ref

    def follow(self, ref: Ref) -> None:
        if ref not in self.watched:
            self.watched[ref] = None
            self.watch(ref)

    def look_around(self) -> None:
        """Get to know the cluster, and look again from time to time."""
        # An address outlives a restart: late answers to an earlier life must not look like answers.
        self.requests = self.life << 32
        self.every(self.settings.metadata_max_age_ms * 1_000, LookAround())
        self.refresh()

    @receives(LookAround)
    def on_look_around(self, look: LookAround) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Ask for the metadata now, unless that is under way."""
        if self.asking is None:
            self.ask()

    def ask(self) -> None:
        self.attempts += 1
        wait_us = backoff_us(self.attempts, self.random, self.settings)
        self.asking = self.after(wait_us, AskAgain())
        self.send(self.controller, GetMetadata())

    @receives(AskAgain)
    def on_ask_again(self, again: AskAgain) -> None:
        self.ask()

    @receives(Metadata)
    def on_metadata(self, metadata: Metadata) -> None:
        if metadata.version >= self.metadata.version:
            self.metadata = metadata
            self.leaders.clear()
            self.metadata_changed()
        if self.asking is not None and not self.misses_something():
            self.asking.cancel()
            self.asking = None
            self.attempts = 0

    @receives(Ended)
    def on_ended(self, ended: Ended) -> None:
        self.watched.pop(ended.ref, None)
        self.dead[ended.ref] = None
        self.leaders = {tp: ref for tp, ref in self.leaders.items() if ref is not ended.ref}
        self.connection_lost(ended.ref)
        self.refresh()

    def metadata_changed(self) -> None:
        """Go on with what waited for this."""
        raise NotImplementedError

    def misses_something(self) -> bool:
        """Whether there is reason to ask again."""
        raise NotImplementedError

    def connection_lost(self, ref: Ref) -> None:
        """Give up on what this actor was asked and has not answered."""
        raise NotImplementedError
