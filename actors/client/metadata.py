"""The cluster as a client knows it: who leads which partition, who coordinates which group.

A client asks the active controller, and asks again, after a backoff, as long as something it needs
is missing in the answer. It watches every actor it talks to: the end of a leader reaches it as a
broken connection would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.client_profile import PROFILES
from ...model.messages.cluster import GetMetadata, Metadata
from ...strategies.retry import backoff_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...model.topics import TopicPartition
    from ..controller_finder import ControllerFinder
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from ..engine.timers import Timer

NOTHING_KNOWN: Final = Metadata(-1, {}, {}, {}, ())


@attrs.frozen
class RetryMetadata:
    """The controller has not answered, or something was missing in its answer."""


@attrs.frozen
class RefreshMetadata:
    """The metadata has reached its maximum age."""


class MetadataCache:
    """Keeps the metadata of one client, and knows which addresses are dead."""

    def __init__(
        self,
        effects: Effects,
        controllers: ControllerFinder,
        settings: Any,
        *,
        on_request: Callable[[], None] | None = None,
    ) -> None:
        """Know nothing yet; `on_request` is called before each request to a controller."""
        self._effects = effects
        self._controllers = controllers
        self._settings = settings
        self._on_request = on_request
        self._query_us = PROFILES[settings.client].leader_query_us
        self.current = NOTHING_KNOWN
        self.leaders: dict[TopicPartition, Ref] = {}
        """The leaders in use: needed for every batch, so they are kept at hand."""
        self._retry: Timer | None = None
        """Runs while an answer is waited for."""
        self._attempts = 0
        self._watched: dict[Ref, None] = {}
        self._dead: dict[Ref, int] = {}
        """Addresses that have ended, each with the version of the metadata at that time. The
        controller may not know it yet; a later version that names the address again is believed,
        as there may be another actor now."""

    def start(self) -> None:
        """Ask for the metadata now, and again whenever it has reached its maximum age."""
        self._effects.every(
            self._settings.metadata_max_age_ms * 1_000, RefreshMetadata(), exactly=False
        )
        self.refresh()

    def refresh(self) -> None:
        """Ask for the metadata, unless a request is under way."""
        if self._retry is None:
            self.request()

    def request(self) -> None:
        """Ask for the metadata, and set the timer for the next attempt."""
        controller = self._controllers.to_ask()
        if self._on_request is not None:
            self._on_request()
        self._attempts += 1
        wait_us = self._query_us
        if wait_us is None:
            wait_us = backoff_us(self._attempts, self._effects.random, self._settings)
        self._retry = self._effects.after(wait_us, RetryMetadata())
        self._effects.send(controller, GetMetadata())

    def refused(self, controller: Ref, active: Ref | None) -> None:
        """Ask the active controller instead of one that is not, once that is known."""
        if self._controllers.refused(controller, active) and self._retry is not None:
            controller = self._controllers.to_ask()
            if self._on_request is not None:
                self._on_request()
            self._effects.send(controller, GetMetadata())

    def update(self, metadata: Metadata) -> bool:
        """Keep newer metadata, or the same again; return whether it was kept."""
        self._controllers.answered()
        if metadata.version < self.current.version:
            return False
        self.current = metadata
        self.leaders.clear()
        return True

    @property
    def asking(self) -> bool:
        """Whether it goes on asking until `complete` is called."""
        return self._retry is not None

    def complete(self) -> None:
        """Stop asking: everything that was needed is known."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._attempts = 0

    def leader(self, partition: TopicPartition) -> Ref | None:
        """The leader of a partition; `None` if unknown or dead."""
        ref = self.leaders.get(partition)
        if ref is None:
            leader = self.current.leaders.get(partition)
            if leader is not None and leader.ref is not None and self._is_usable(leader.ref):
                ref = self.leaders[partition] = leader.ref
                self._watch(ref)
        return ref

    def coordinator(self, group: str) -> Ref | None:
        """The coordinator of a group; `None` if unknown or dead."""
        ref: Ref | None = self.current.coordinators.get(group)
        if ref is None or not self._is_usable(ref):
            return None
        self._watch(ref)
        return ref

    def mark_dead(self, ref: Ref) -> None:
        """Use an address no more."""
        self._watched.pop(ref, None)
        self._dead[ref] = self.current.version
        self.leaders = {tp: leader for tp, leader in self.leaders.items() if leader is not ref}

    def _is_usable(self, ref: Ref) -> bool:
        return self._dead.get(ref, -1) < self.current.version

    def _watch(self, ref: Ref) -> None:
        if ref not in self._watched:
            self._watched[ref] = None
            self._effects.watch(ref)
