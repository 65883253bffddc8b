"""Requests to partition leaders that wait for an answer, one at a time for each partition.

An answer counts only if its partition is still assigned and has not asked anew since: whatever was
lost, late or overtaken is ignored by its number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from .membership import P

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...model.settings import ConsumerSettings
    from ..engine.effects import Effects
    from .membership import GroupMembership
    from .metadata import MetadataCache


class PendingRequests(Generic[P]):
    """The requests of one consumer."""

    def __init__(
        self,
        effects: Effects,
        cluster: MetadataCache,
        request_ids: Iterator[int],
        settings: ConsumerSettings,
        membership: GroupMembership[P],
    ) -> None:
        self._effects = effects
        self._cluster = cluster
        self._request_ids = request_ids
        self._timeout_us = settings.request_timeout_ms * 1_000
        self._assigned = membership.assigned
        self._pending: dict[int, P] = {}

    def number(self, assigned: P) -> int:
        """Number the next request about a partition."""
        request = next(self._request_ids)
        assigned.request, assigned.asked_us = request, self._effects.now
        self._pending[request] = assigned
        return request

    def answered(self, request: int) -> P | None:
        """The partition that still waits for this answer, if any does."""
        assigned = self._pending.pop(request, None)
        if assigned is None or assigned.request != request:
            return None
        assigned.request = 0
        return assigned if self._assigned.get(assigned.partition) is assigned else None

    def retry_late(
        self, advance: Callable[[P], None], may_retry: Callable[[P], bool] | None = None
    ) -> None:
        """Forget requests that should have been answered, and let every partition go on."""
        late_us = self._effects.now - self._timeout_us
        for assigned in list(self._assigned.values()):
            late = assigned.request and assigned.asked_us < late_us
            if late and (may_retry is None or may_retry(assigned)):
                assigned.request = 0
                assigned.leader = None
                self._cluster.refresh()
            advance(assigned)
        if len(self._pending) > len(self._assigned):
            self._forget_overtaken()

    def _forget_overtaken(self) -> None:
        """Drop requests that nothing waits for any more: their answers may be lost for good."""
        self._pending = {
            request: assigned
            for request, assigned in self._pending.items()
            if assigned.request == request and self._assigned.get(assigned.partition) is assigned
        }
