"""What the log cleaner removes, keeps and records, without an engine."""

from typing import Any

import pytest

from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.broker.change_log import ChangeLog
from wavetank.actors.broker.log_cleaner import GroupLease, LogCleaner
from wavetank.actors.broker.share_partition import SharePartition
from wavetank.model.log.batch import Batch
from wavetank.model.log.cursor import Cursor
from wavetank.model.log.log import MemoryLog
from wavetank.model.messages.share import SubscriptionConfig
from wavetank.model.payloads import DropPayloads, Payload
from wavetank.model.topics import Topic, TopicPartition

ORDERS = TopicPartition("orders", 0)
SECOND_US = 1_000_000


class Cleaned:
    """A log with its cursors, and the cleaner of both."""

    def __init__(self, **options: Any) -> None:
        self.effects = FakeEffects()
        self.log = MemoryLog()
        self.cursors: dict[str, Cursor] = {}
        self.share_partitions: dict[str, SharePartition] = {}
        self.cleaner = LogCleaner(
            self.effects, ORDERS, Topic("orders", 1, **options), 4, self.log, self.cursors,
            self.share_partitions, (),
        )  # type: ignore[arg-type]  # fmt: skip

    def append(self, *keys: Any, values: Any = None) -> None:
        """Append a record for each key, each in a batch of its own."""
        for key in keys:
            batch = Batch("p", 0, 1, keys=key, values=values, timestamps_us=0, sizes=10)
            self.log.append(batch, self.effects.now, 4)

    def committing_group(self, name: str, committed: int | None, ttl_us: int = 10**12) -> None:
        self.cursors[name] = Cursor()
        self.cleaner.leases[name] = GroupLease(self.effects.now, ttl_us)
        if committed is not None:
            self.cursors[name].commit(committed)

    def share_group(self, name: str, window: int, delivery: Any = "shared") -> Cursor:
        """A group with so many available records in its window."""
        cursor = self.cursors[name] = Cursor()
        cursor.begin(0)
        cursor.extend(window)
        terms = SubscriptionConfig(name.split("/")[0], delivery, "earliest", 1, 0, 1, 1, None, 1, 1)
        self.share_partitions[name] = SharePartition(
            self.effects,
            ORDERS,
            name,
            terms,
            self.log,
            cursor,
            lambda: FakeRef("none"),
            ChangeLog(self.effects, None),
        )  # type: ignore[arg-type]
        return cursor

    def offsets(self) -> list[int]:
        batches = self.log.pieces(0, self.log.end_offset)
        return [o for b in batches for o in range(b.base_offset, b.base_offset + b.count)]

    def events(self, kind: str, *columns: str) -> list[Any]:
        found = [fields for name, fields in self.effects.events if name == kind]
        return [tuple(fields.get(column) for column in columns) for fields in found]


# Policies


def test_records_past_their_retention_are_removed_and_recorded() -> None:
    part = Cleaned(retention="10s")
    part.append("a", "b")
    part.effects.now = 9 * SECOND_US
    part.append("c")
    part.effects.now = 10 * SECOND_US
    part.cleaner.clean_up()
    assert part.offsets() == [0, 1, 2], "exactly ten seconds is not too old"
    part.effects.now += 1
    part.cleaner.clean_up()
    assert part.offsets() == [2]
    removed = part.events("removed", "base_offset", "count", "bytes", "epoch", "reason")
    assert removed == [(0, 2, 20, 4, "delete")]


def test_the_oldest_records_over_the_size_limit_are_removed() -> None:
    part = Cleaned(retention_bytes=25)
    part.append("a", "b", "c", "d")
    part.cleaner.clean_up()
    assert part.offsets() == [2, 3]


def test_compaction_keeps_the_last_record_of_each_key() -> None:
    part = Cleaned(cleanup="compact")
    part.append("a", "b", "a", None, "a")
    part.cleaner.clean_up()
    assert part.offsets() == [1, 3, 4]
    assert part.events("removed", "base_offset", "count") == [(0, 2)]


def test_a_key_that_cannot_be_compared_stops_compaction_and_is_recorded() -> None:
    part = Cleaned(cleanup="compact")
    part.append("a", {"un": "hashable"}, "a")
    part.cleaner.clean_up()
    assert part.offsets() == [0, 1, 2]
    assert len(part.events("cleanup_failed")) == 1


def test_without_a_retention_acknowledged_records_are_removed_at_once() -> None:
    part = Cleaned(cleanup="acknowledged")
    part.append("a", "b", "c")
    part.committing_group("g", 2)
    part.cleaner.clean_up()
    assert part.offsets() == [2]


@pytest.mark.parametrize(
    "policy",
    [{"retention": "1s"}, {"retention_bytes": 1}, {"cleanup": "acknowledged"}],
)
def test_no_policy_removes_records_above_the_high_watermark(policy: dict[str, Any]) -> None:
    part = Cleaned(**policy)
    part.append("a", "b", "a", "b")
    part.log.high_watermark = 2
    part.effects.now = 10 * SECOND_US
    part.cleaner.clean_up()
    assert part.offsets() == [2, 3]


def test_a_record_above_the_high_watermark_replaces_none_in_a_compaction() -> None:
    part = Cleaned(cleanup="compact")
    part.append("a", "a", "b", "a", "b")
    part.log.high_watermark = 3
    part.cleaner.clean_up()
    assert part.offsets() == [1, 2, 3, 4]


def test_payloads_are_dropped_with_their_records() -> None:
    store, payload = FakeRef("store"), Payload("id", 3, 0, "bytes")
    part = Cleaned(cleanup="acknowledged", payloads="external")
    part.effects.found["payloads"] = store
    part.append("a", values=(payload,))
    part.cleaner.clean_up()
    assert part.effects.sent == [(store, DropPayloads((payload,)))]


# Groups


@pytest.mark.parametrize(("committed", "kept"), [(None, [0, 1, 2]), (2, [2]), (3, [])])
def test_records_that_a_group_has_not_consumed_are_kept(
    committed: int | None, kept: list[int]
) -> None:
    part = Cleaned(retention="1s")
    part.append("a", "b", "c")
    part.committing_group("g", committed)
    part.share_group("h", window=3).archive(0, 3)
    part.effects.now = 10 * SECOND_US
    part.cleaner.clean_up()
    assert part.offsets() == kept
    assert not part.events("lost")


def test_a_group_loses_the_records_that_are_removed_before_it_consumed_them() -> None:
    part = Cleaned(retention="1s", retain_unconsumed=False)
    part.append("a", "b", "c", "d")
    part.committing_group("commits", 1)
    cursor = part.share_group("shares", window=3)
    cursor.archive(1, 2)
    part.share_group("all/b", window=4, delivery="broadcast").archive(0, 3)
    part.effects.now = 10 * SECOND_US
    part.cleaner.clean_up()
    lost = part.events("lost", "group", "member", "base_offset", "count")
    assert lost == [
        ("commits", None, 1, 1), ("commits", None, 2, 1), ("commits", None, 3, 1),
        ("shares", None, 0, 1), ("shares", None, 2, 1), ("shares", None, 3, 1),
        ("all", "b", 3, 1),
    ]  # fmt: skip
    assert (cursor.committed, cursor.undone()) == (4, 0)


def test_a_group_that_is_silent_for_its_time_to_live_is_forgotten() -> None:
    part = Cleaned(retention="1s")
    part.append("a")
    part.committing_group("silent", None, ttl_us=5 * SECOND_US)
    part.committing_group("alive", 1, ttl_us=5 * SECOND_US)
    part.effects.now = 5 * SECOND_US
    part.cleaner.clean_up()
    assert list(part.cursors) == ["silent", "alive"]
    part.cleaner.leases["alive"].heard_us = part.effects.now
    part.effects.now += 1
    part.cleaner.clean_up()
    assert list(part.cursors) == ["alive"]
    assert part.events("subscription_removed", "group") == [("silent",)]
    assert part.offsets() == [], "it retains nothing"
