"""When a fetch is answered, and with what, without an engine."""

from typing import Any

import pytest

from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.broker.delayed_fetches import DelayedFetches, WaitOver
from wavetank.model.log.batch import Batch
from wavetank.model.log.cursor import Cursor
from wavetank.model.log.log import MemoryLog
from wavetank.model.messages.client import Fenced, Fetch, Fetched, NotLeader, OutOfRange

READER = FakeRef("reader")


class Fetching:
    """A log, a group that owns it, and the fetches."""

    def __init__(self) -> None:
        self.effects = FakeEffects()
        self.log = MemoryLog()
        self.cursors = {"g": Cursor()}
        self.cursors["g"].claim("m", 1)
        self.fetches = DelayedFetches(self.effects, self.log, self.cursors)  # type: ignore[arg-type]

    def fetch(self, request: int, offset: int = 0, **changes: Any) -> None:
        fields = {"max_bytes": 10**6, "min_bytes": 1, "max_wait_us": 500} | changes
        group = {"group": "g", "member": "m", "generation": 1} | changes
        fetch = Fetch(request, offset, **(fields | group))
        self.fetches.answer_or_delay(fetch, READER, self.effects.now)  # type: ignore[arg-type]

    def append(self, count: int) -> None:
        self.log.append(Batch("p", 0, count, timestamps_us=0, sizes=10), self.effects.now, 0)
        self.fetches.try_complete()

    def answers(self) -> list[Any]:
        """What the reader got; of records their numbers."""
        assert all(to is READER for to, _ in self.effects.sent)
        return [
            (message.request, sum(batch.count for batch in message.batches))
            if isinstance(message, Fetched)
            else message
            for _, message in self.effects.sent
        ]

    def pass_time(self, until_us: int) -> None:
        self.effects.now = until_us
        for timer in self.effects.timers:
            if timer.due_us == until_us and not timer.cancelled:
                assert timer.message == WaitOver()
                self.fetches.expire()


@pytest.fixture
def part() -> Fetching:
    """Fetches of an empty log."""
    return Fetching()


def test_a_fetch_at_the_end_waits_for_the_next_record(part: Fetching) -> None:
    part.append(3)
    part.fetch(1, offset=3)
    assert part.answers() == []
    part.append(2)
    assert part.answers() == [(1, 2)]
    part.append(1)
    assert part.answers() == [(1, 2)], "it is answered once"


def test_a_fetch_waits_for_its_minimum_of_bytes(part: Fetching) -> None:
    part.append(1)
    part.fetch(1, min_bytes=25)
    part.append(1)
    assert part.answers() == []
    part.append(1)
    assert part.answers() == [(1, 3)]


@pytest.mark.parametrize("changes", [{"max_wait_us": 0}, {"min_bytes": 0}])
def test_a_fetch_that_need_not_wait_is_answered_with_nothing(
    part: Fetching, changes: dict[str, int]
) -> None:
    part.fetch(1, **changes)
    assert part.answers() == [(1, 0)]


def test_a_fetch_is_answered_with_what_there_is_when_its_wait_is_over(part: Fetching) -> None:
    part.append(1)
    part.fetch(1, min_bytes=25, max_wait_us=900)
    part.fetch(2, min_bytes=25, max_wait_us=300)
    part.pass_time(300)
    assert part.answers() == [(2, 1)]
    part.pass_time(900)
    assert part.answers() == [(2, 1), (1, 1)]


def test_one_timer_serves_all_fetches(part: Fetching) -> None:
    part.fetch(1, max_wait_us=500)
    part.fetch(2, max_wait_us=600)
    part.fetch(3, max_wait_us=400)
    assert [(timer.due_us, timer.cancelled) for timer in part.effects.timers] == [
        (500, True),
        (400, False),
    ]


@pytest.mark.parametrize(
    ("who", "generation"),
    [({"member": "other"}, 1), ({"generation": 0}, 1)],
)
def test_only_the_owner_of_the_newest_generation_may_fetch(
    part: Fetching, who: dict[str, Any], generation: int
) -> None:
    part.append(1)
    part.fetch(1, **who)
    assert part.answers() == [Fenced(1, generation)]


def test_a_partition_that_nobody_has_claimed_has_to_be_claimed_first(part: Fetching) -> None:
    part.append(1)
    part.fetch(1, group="unknown")
    assert part.answers() == [NotLeader(1)]


def test_an_owner_that_keeps_the_partition_may_fetch_in_later_generations(part: Fetching) -> None:
    part.append(1)
    part.fetch(1, generation=7)
    assert part.answers() == [(1, 1)]


def test_a_waiting_fetch_is_fenced_when_another_member_claims_the_partition(
    part: Fetching,
) -> None:
    part.fetch(1)
    part.cursors["g"].claim("other", 2)
    part.fetches.try_complete()
    assert part.answers() == [Fenced(1, 2)]


def test_a_fetch_without_a_group_needs_no_claim(part: Fetching) -> None:
    part.append(2)
    part.fetch(1, group=None, member="")
    assert part.answers() == [(1, 2)]


@pytest.mark.parametrize("offset", [0, 6])
def test_an_offset_that_the_log_does_not_have_is_out_of_range(part: Fetching, offset: int) -> None:
    part.append(5)
    part.log.truncate_before(1)
    part.fetch(1, offset)
    assert part.answers() == [OutOfRange(1, 1, 5)]


def test_records_above_the_high_watermark_are_not_delivered(part: Fetching) -> None:
    part.append(5)
    part.log.high_watermark = 2
    part.fetch(1)
    part.fetch(2, min_bytes=25)
    part.fetch(3, offset=2)
    part.fetch(4, offset=4)
    assert part.effects.sent[0][1].end_offset == 2
    assert part.answers() == [(1, 2)]
    part.log.high_watermark = 5
    part.fetches.try_complete()
    assert part.answers() == [(1, 2), (2, 5), (3, 3), (4, 1)]


@pytest.mark.parametrize("offset", [2, 4, 5])
def test_a_fetch_above_the_high_watermark_is_answered_with_nothing_in_the_end(
    part: Fetching, offset: int
) -> None:
    part.append(5)
    part.log.high_watermark = 2
    part.fetch(1, offset)
    part.pass_time(500)
    assert part.answers() == [(1, 0)]


def test_a_fetch_beyond_the_end_is_told_the_high_watermark(part: Fetching) -> None:
    part.append(5)
    part.log.high_watermark = 2
    part.fetch(1, 6)
    assert part.answers() == [OutOfRange(1, 0, 2)]


def test_waiting_fetches_are_sent_to_the_next_leader(part: Fetching) -> None:
    part.fetch(1)
    part.fetch(2)
    part.fetches.resign()
    assert part.answers() == [NotLeader(1), NotLeader(2)]
    part.append(1)
    assert len(part.answers()) == 2
