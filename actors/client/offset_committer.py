"""The part of a consumer that commits offsets, at intervals, on request and before a rebalance.

Offsets go to the group's coordinator, all partitions in one request. It stores them only for a
member of the current generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from ...model.messages.client import CommitDone
from ...model.messages.group import CommittedOffset, OffsetCommit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ...model.messages.group import OffsetCommitAnswer
    from ...model.settings import ConsumerSettings
    from ...model.topics import TopicPartition
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from .fetcher import FetchPosition
    from .membership import GroupMembership
    from .metadata import MetadataCache

Outcome: TypeAlias = Literal["committed", "refused", "lost"]


@attrs.define(eq=False)
class SentCommit:
    """A commit on its way."""

    offsets: list[tuple[FetchPosition, int]]
    """The partitions and their offsets."""
    coordinator: Ref
    generation: int
    sent_us: int
    asker: Ref | None = None
    """A user who waits for the answer."""


class OffsetCommitter:
    """Commits what the user of one consumer has finished with."""

    def __init__(
        self,
        effects: Effects,
        cluster: MetadataCache,
        request_ids: Iterator[int],
        settings: ConsumerSettings,
        membership: GroupMembership[FetchPosition],
        *,
        commits_by_itself: bool,
        on_answer: Callable[[], None],
    ) -> None:
        """Commit for a consumer; `on_answer` is called before a user's request is answered.

        One that runs by itself commits before it gives partitions up even if auto-commit is off.
        """
        self._effects = effects
        self._cluster = cluster
        self._request_ids = request_ids
        self._settings = settings
        self._membership = membership
        self._commits_by_itself = commits_by_itself or settings.enable_auto_commit
        self._on_answer = on_answer
        self._interval_us = settings.auto_commit_interval_ms * 1_000
        self._commits: dict[int, SentCommit] = {}
        self._committed_us = effects.now

    def commit_if_due(self) -> None:
        """Commit all partitions if auto-commit is on and its interval is over."""
        if self._settings.enable_auto_commit:
            now_us = self._effects.now
            if now_us - self._committed_us >= self._interval_us:
                self._committed_us = now_us
                self.commit(self._membership.assigned)

    def commit(self, partitions: Iterable[TopicPartition], asker: Ref | None = None) -> bool:
        """Commit the processed offsets of these partitions; return whether there are any to send.

        An asker is told what came of it. Without a known coordinator nothing is sent.
        """
        assigned = self._membership.assigned
        owned = [each for tp in partitions if (each := assigned.get(tp)) is not None]
        changed = [each for each in owned if each.claimed and each.done != each.committed]
        return self._send(changed, asker)

    def commit_for(self, asker: Ref, lost: tuple[TopicPartition, ...] = ()) -> None:
        """Commit all partitions, and tell the asker what came of it.

        If some of its records are `lost` to other members, that is a refusal, as in Kafka.
        """
        if lost:
            self.commit(self._membership.assigned)
            self._answer(asker, (), lost)
        elif not self.commit(self._membership.assigned, asker):
            self._answer(asker, (), ())

    def begin(self, assigned: FetchPosition) -> None:
        """Store where the group starts, so that nothing before counts as lag."""
        assigned.begun = assigned.position
        self._send([assigned])

    def commit_all(self, partitions: Iterable[TopicPartition]) -> bool:
        """Commit the processed offsets of these partitions; return whether all are stored."""
        wanted = dict.fromkeys(partitions)
        if self._commits_by_itself and self.commit(wanted):
            return False
        return not any(
            each.partition in wanted for sent in self._commits.values() for each, _ in sent.offsets
        )

    def on_answer(self, answer: OffsetCommitAnswer) -> None:
        """Go on with whatever waited for a commit."""
        sent = self._commits.get(answer.request)
        if sent is None:
            return
        if answer.status == "ok":
            self._settle(answer.request, "committed")
        elif answer.status == "rebalancing" or self._membership.has_moved_on(sent.generation):
            self._settle(answer.request, "lost")
        else:
            self._settle(answer.request, "refused")
            self._membership.commit_refused()

    def lose_coordinator(self, ref: Ref) -> None:
        """Give up on commits that this coordinator has not answered."""
        for request in [r for r, sent in self._commits.items() if sent.coordinator is ref]:
            self._settle(request, "lost")

    def lose_late(self) -> None:
        """Give up on commits that should have been answered."""
        late_us = self._effects.now - self._settings.request_timeout_ms * 1_000
        for request in [r for r, sent in self._commits.items() if sent.sent_us < late_us]:
            self._settle(request, "lost")

    def _send(self, changed: Sequence[FetchPosition], asker: Ref | None = None) -> bool:
        if not changed:
            return False
        membership = self._membership
        coordinator = self._cluster.coordinator(membership.group)
        if coordinator is None:
            self._cluster.refresh()
            if asker is not None:
                self._answer(asker, (), tuple(each.partition for each in changed))
            return True
        request = next(self._request_ids)
        self._commits[request] = SentCommit(
            [(each, each.done) for each in changed], coordinator, membership.generation,
            self._effects.now, asker,
        )  # fmt: skip
        offsets = []
        for each in changed:
            each.committed = each.done
            offsets.append(CommittedOffset(each.partition, each.done, each.begun))
        self._effects.send(
            coordinator,
            OffsetCommit(request, membership.member, membership.generation, tuple(offsets)),
        )
        return True

    def _settle(self, request: int, outcome: Outcome) -> None:
        """Note how a commit ended, and go on with whatever waited for it."""
        sent = self._commits.pop(request, None)
        if sent is None:
            return
        for assigned, _ in sent.offsets:
            if outcome == "committed":
                assigned.begun = None
            elif outcome == "lost":
                assigned.committed = -1  # so that the next commit repeats it
        if sent.asker is not None:
            committed = tuple((each.partition, offset) for each, offset in sent.offsets)
            refused = tuple(partition for partition, _ in committed)
            stored = outcome == "committed"
            self._answer(sent.asker, committed if stored else (), () if stored else refused)
        self._membership.proceed()

    def _answer(
        self,
        asker: Ref,
        committed: tuple[tuple[TopicPartition, int], ...],
        refused: tuple[TopicPartition, ...],
    ) -> None:
        self._on_answer()
        self._effects.send(asker, CommitDone(committed, refused))
        self._membership.proceed()
