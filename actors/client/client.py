"""An actor that uses the cluster: the base of producers, consumers and replayers.

They share how they learn about the cluster (see metadata.py) and how they number requests. What
they do with it is their own.
"""

from __future__ import annotations

import abc
from itertools import count
from typing import TYPE_CHECKING, Any

from ...model.messages.cluster import Metadata, NotController
from ..controller_finder import ControllerFinder
from ..engine.actor import Actor, Ended, receives
from .metadata import MetadataCache, RefreshMetadata, RetryMetadata

if TYPE_CHECKING:
    from ..engine.ref import Ref


class Client(Actor, abc.ABC):
    """Finds partition leaders and coordinators through the controllers."""

    cluster: MetadataCache
    request_ids: count[int]
    """Numbers the requests of all parts, so that an answer is matched by its number alone."""

    def __init__(self, controllers: tuple[Ref, ...], settings: Any) -> None:
        self.controllers = ControllerFinder(controllers)
        self.settings = settings

    def started(self) -> None:
        # An address outlives a restart: an answer to an earlier life must match no request.
        self.request_ids = count((self.life << 32) + 1)
        self.cluster = MetadataCache(
            self.effects, self.controllers, self.settings, on_request=self.metadata_requested
        )

    @receives(RefreshMetadata)
    def on_look_around(self, look: RefreshMetadata) -> None:
        self.cluster.refresh()

    @receives(RetryMetadata)
    def on_ask_again(self, again: RetryMetadata) -> None:
        self.cluster.request()

    @receives(Metadata)
    def on_metadata(self, metadata: Metadata) -> None:
        if self.cluster.update(metadata):
            self.metadata_changed()
        if self.cluster.asking and not self.misses_something():
            self.cluster.complete()

    @receives(NotController)
    def on_not_controller(self, refused: NotController) -> None:
        self.cluster.refused(self.sender, refused.active)

    @receives(Ended)
    def on_ended(self, ended: Ended) -> None:
        self.cluster.mark_dead(ended.ref)
        self.connection_lost(ended.ref)
        self.cluster.refresh()

    def metadata_requested(self) -> None:
        """Ask the active controller for anything else that is needed."""

    @abc.abstractmethod
    def metadata_changed(self) -> None:
        """Continue with what waited for the metadata."""

    @abc.abstractmethod
    def misses_something(self) -> bool:
        """Whether the metadata lacks something this client needs."""

    @abc.abstractmethod
    def connection_lost(self, ref: Ref) -> None:
        """Give up on requests that this actor has not answered."""
