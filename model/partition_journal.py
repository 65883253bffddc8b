"""What a partition keeps beside its log, as entries of a journal.

A journal begins with entries that describe the whole state (`entries_of`), and goes on with those
of its changes. Applied in order (`JournaledState.apply`) they give the state again. The changes of
a cursor are stored as calls of its methods, because a cursor does the same with the same calls.

| entry | meaning |
|---|---|
| topic, id | the partition is one of the topic with this id |
| start, offset | the log begins at this offset |
| recovery_point, offset | the log before this offset is durable |
| cursor, name, fields | a group's cursor |
| change, name, method, arguments | a change of a cursor |
| commit, group, offset, epoch | a group's committed offset, as its coordinator said |
| claim, group, member, generation | the owner of the partition in a group that commits |
| terms, name, fields | the settings of a group that acknowledges |
| acquired, name, member, request, ranges | the last answer to a member; without ranges: none |
| forget, name | a group is gone |
| lease, group, time, time to live | a group that commits offsets |
| reserve, group, offset, time, time to live | records kept for a group without a consumer |
| unreserve, group | no longer |
| reset, entries | everything about groups is as in these entries: a follower of another leader |
| name, number, producer, instance | the producer with this number in the log |
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs

from .log.cursor import Cursor, CursorSnapshot
from .log.log import LogSnapshot
from .log.offset_ranges import OffsetRange
from .log.producer_state import ProducerStateEntry
from .messages.partition_state import PartitionState, SharePartitionState
from .messages.share import SubscriptionConfig

Entry: TypeAlias = tuple[Any, ...]


def cursor_entry(name: str, cursor: CursorSnapshot) -> Entry:
    """Describe a cursor."""
    return ("cursor", name, attrs.asdict(cursor, recurse=False))


def terms_entry(name: str, terms: SubscriptionConfig) -> Entry:
    """Describe the settings of a group that acknowledges."""
    return ("terms", name, attrs.asdict(terms, recurse=False))


def entries_of(state: PartitionState) -> Iterator[Entry]:
    """Describe a state, without the log and the producers, which are in the log."""
    yield ("start", state.log.start_offset)
    for name, cursor in state.cursors:
        yield cursor_entry(name, cursor)
    for share in state.share_partitions:
        yield terms_entry(share.name, share.terms)
        for member, request, spans in share.last_acquired:
            yield ("acquired", share.name, member, request, spans)
    for lease in state.leases:
        yield ("lease", *lease)
    for reservation in state.reservations:
        yield ("reserve", *reservation)


class JournaledState:
    """The state of a partition, as far as its journal tells it."""

    def __init__(self) -> None:
        self.topic_id: int | None = None
        self.start_offset = 0
        self.recovery_point = 0
        self.names: dict[int, tuple[str, str]] = {}
        self._cursors: dict[str, Cursor] = {}
        self._terms: dict[str, SubscriptionConfig] = {}
        self._acquired: dict[str, dict[str, tuple[int, tuple[OffsetRange, ...]]]] = {}
        self._leases: dict[str, tuple[int, int]] = {}
        self._reservations: dict[str, tuple[int, int, int]] = {}

    def apply(self, entry: Entry) -> None:
        """Apply an entry after those before it."""
        kind, *fields = entry
        getattr(self, f"_apply_{kind}")(*fields)

    def next_offset(self) -> int:
        """The first offset that no group has heard of."""
        return max((cursor.next for cursor in self._cursors.values()), default=0)

    def state(self, log: LogSnapshot, producers: tuple[ProducerStateEntry, ...]) -> PartitionState:
        """Return the state, with a log and its producers."""
        return PartitionState(
            log,
            tuple((name, cursor.snapshot()) for name, cursor in self._cursors.items()),
            tuple(
                SharePartitionState(
                    name,
                    terms,
                    tuple((member, *last) for member, last in self._acquired[name].items()),
                )
                for name, terms in self._terms.items()
            ),
            tuple((group, *lease) for group, lease in self._leases.items()),
            producers,
            tuple((group, *reserved) for group, reserved in self._reservations.items()),
            0,
        )

    def _apply_topic(self, topic_id: int) -> None:
        self.topic_id = topic_id

    def _apply_start(self, offset: int) -> None:
        self.start_offset = offset

    def _apply_recovery_point(self, offset: int) -> None:
        self.recovery_point = offset

    def _apply_name(self, number: int, producer: str, instance: str) -> None:
        self.names[number] = producer, instance

    def _apply_cursor(self, name: str, fields: dict[str, Any]) -> None:
        self._cursors[name] = Cursor.from_snapshot(CursorSnapshot(**fields))

    def _apply_change(self, name: str, method: str, arguments: tuple[Any, ...]) -> None:
        getattr(self._cursors[name], method)(*arguments)

    def _apply_commit(self, group: str, offset: int, epoch: int) -> None:
        cursor = self._cursors.setdefault(group, Cursor())
        cursor.commit(offset)
        cursor.coordinator_epoch = epoch

    def _apply_claim(self, group: str, member: str, generation: int) -> None:
        self._cursors.setdefault(group, Cursor()).claim(member, generation)

    def _apply_terms(self, name: str, fields: dict[str, Any]) -> None:
        self._terms[name] = SubscriptionConfig(**fields)
        self._acquired.setdefault(name, {})

    def _apply_acquired(
        self, name: str, member: str, request: int, spans: tuple[OffsetRange, ...] = ()
    ) -> None:
        if spans:
            self._acquired[name][member] = request, spans
        else:
            self._acquired[name].pop(member, None)

    def _apply_forget(self, name: str) -> None:
        for known in (self._cursors, self._terms, self._acquired, self._leases):
            known.pop(name, None)

    def _apply_lease(self, group: str, heard_us: int, ttl_us: int) -> None:
        self._leases[group] = heard_us, ttl_us

    def _apply_reserve(self, group: str, offset: int, since_us: int, ttl_us: int) -> None:
        self._reservations[group] = offset, since_us, ttl_us

    def _apply_reset(self, entries: tuple[Entry, ...]) -> None:
        for known in (
            self._cursors, self._terms, self._acquired, self._leases, self._reservations
        ):  # fmt: skip
            known.clear()
        for entry in entries:
            if entry[0] != "start":  # where the log begins is each replica's own
                self.apply(entry)

    def _apply_unreserve(self, group: str) -> None:
        self._reservations.pop(group, None)
