"""The accumulator of a producer, without an engine."""

from typing import Any

import attrs
import pytest

import wavetank as wt
from helpers.fake_effects import FakeRef
from helpers.producer_parts import METADATA, ORDERS, ProducerParts
from wavetank.actors.client.accumulator import LingerOver
from wavetank.model.messages.client import Append, RecordMetadata, Send, SendFailed, SendMany
from wavetank.model.messages.cluster import GetMetadata
from wavetank.model.settings import ProducerSettings
from wavetank.model.topics import Topic


def parts(rule: Any = "key", **settings: Any) -> ProducerParts:
    return ProducerParts(ProducerSettings(**settings), rule)


def send(producer: ProducerParts, *sends: Send | SendMany) -> list[FakeRef]:
    """Append sends; returns the caller of each."""
    callers = [FakeRef(f"caller-{number}") for number in range(len(sends))]
    for each, caller in zip(sends, callers, strict=True):
        producer.accumulator.append(each, caller)  # type: ignore[arg-type]
    return callers


def to(partition: int, value: Any = "x", **fields: Any) -> Send:
    return Send("orders", value, partition=partition, **fields)


def answers(producer: ProducerParts, caller: FakeRef) -> list[Any]:
    return [message for receiver, message in producer.effects.sent if receiver is caller]


def batches(producer: ProducerParts) -> list[list[Any]]:
    """The values of each batch that was sent."""
    return [[r.value for r in a.batch.records("orders", 0)] for a in producer.appends()]


# When a batch is closed


def test_records_wait_for_the_linger_and_leave_as_one_batch() -> None:
    producer = parts(linger_ms=5)
    send(producer, to(0, "a"), to(0, "b"))
    assert batches(producer) == []
    [timer] = producer.timers(LingerOver)
    assert timer.due_us == 5_000
    producer.accumulator.end_linger(timer.message)
    assert batches(producer) == [["a", "b"]]


def test_a_full_batch_does_not_wait_and_its_timer_is_cancelled() -> None:
    producer = parts(linger_ms=5, batch_size=3)
    send(producer, to(0, "a"), to(0, "bb"), to(0, "c"))
    assert batches(producer) == [["a", "bb"]]
    first, second = (
        timer for timer in producer.effects.timers if type(timer.message) is LingerOver
    )
    assert (first.cancelled, second.cancelled) == (True, False)
    producer.accumulator.end_linger(first.message)
    assert batches(producer) == [["a", "bb"]], "the timer of an earlier batch closes no later one"


def test_without_a_linger_records_gather_while_there_is_no_room() -> None:
    producer = parts(linger_ms=0, max_in_flight=1)
    send(producer, to(0, "a"), to(0, "b"), to(0, "c"))
    assert batches(producer) == [["a"]]
    producer.store(producer.appends()[0])
    assert batches(producer) == [["a"], ["b", "c"]]


def test_many_values_close_the_open_batch_and_are_cut_to_the_batch_size() -> None:
    producer = parts(linger_ms=5, batch_size=2)
    send(producer, to(0, "a"), SendMany("orders", ("b", "c", "d"), None, 0))
    assert batches(producer) == [["a"], ["b", "c"], ["d"]]


def test_a_record_keeps_its_key_headers_and_timestamp() -> None:
    producer = parts(linger_ms=0)
    producer.effects.now = 9
    send(producer, to(0, "a", key="k", headers=(("h", 1),), timestamp_us=5), to(0, "b"))
    records = [r for append in producer.appends() for r in append.batch.records("orders", 0)]
    assert [(r.key, r.headers, r.timestamp_us) for r in records] == [
        ("k", (("h", 1),), 5),
        (None, (), 9),
    ]


def test_an_open_batch_of_a_deleted_topic_is_closed_all_the_same() -> None:
    producer = parts("sticky", linger_ms=5)
    send(producer, Send("orders", "a"))
    producer.cache.update(attrs.evolve(METADATA, version=2, topics={}, leaders={}))
    [timer] = producer.timers(LingerOver)
    producer.accumulator.end_linger(timer.message)
    assert producer.accumulator.open == {}
    assert producer.sender.has_batches()


# Answers


def test_each_caller_gets_the_receipt_of_its_record() -> None:
    producer = parts(linger_ms=5)
    callers = send(producer, to(0, "a"), to(0, "b"))
    producer.accumulator.close_all()
    producer.store(producer.appends()[0], base_offset=40)
    got = [answers(producer, caller) for caller in callers]
    assert got == [[RecordMetadata("orders", 0, 40, 77)], [RecordMetadata("orders", 0, 41, 77)]]


def test_one_caller_of_many_values_gets_the_receipt_of_the_last() -> None:
    producer = parts(batch_size=2)
    [caller] = send(producer, SendMany("orders", ("a", "b", "c", "d"), None, 0))
    first, second = producer.appends()
    producer.store(first, base_offset=10)
    assert answers(producer, caller) == []
    producer.store(second, base_offset=12)
    assert answers(producer, caller) == [RecordMetadata("orders", 0, 13, 77)]


def test_all_callers_of_a_batch_that_is_given_up_get_the_error() -> None:
    producer = parts(linger_ms=5, retries=0)
    callers = send(producer, to(0, "a"), to(0, "b"))
    producer.accumulator.close_all()
    producer.sender.fail(producer.appends()[0].request, "not the leader")
    for caller in callers:
        [failed] = answers(producer, caller)
        assert isinstance(failed.error, TimeoutError)


def test_a_fenced_producer_refuses_records() -> None:
    producer = parts(linger_ms=0)
    send(producer, to(0, "a"))
    producer.sender.fence(producer.appends()[0].request)
    [caller] = send(producer, to(0, "b"))
    [failed] = answers(producer, caller)
    assert isinstance(failed.error, wt.errors.ProducerFencedError)


# Partitions


def test_an_error_of_a_users_partitioner_is_the_answer_to_its_record_only() -> None:
    def choose(key: Any, value: Any, partitions: int) -> int:
        return {"a": 1, "far": 9}[value]

    producer = parts(choose, linger_ms=0)
    bad, far, good = send(producer, *(Send("orders", value) for value in ("?", "far", "a")))
    [failed] = answers(producer, bad)
    assert isinstance(failed.error, KeyError)
    [failed] = answers(producer, far)
    assert "returned 9 for key None: expected a number from 0 to 1" in str(failed.error)
    producer.store(producer.appends()[0])
    assert answers(producer, good) == [RecordMetadata("orders", 1, 0, 77)]


def test_records_without_a_key_change_their_partition_with_each_batch() -> None:
    producer = parts(linger_ms=0)
    send(producer, *[Send("orders", "x")] * 6)
    assert list(producer.sender.queues) in ([ORDERS, ("orders", 1)], [("orders", 1), ORDERS])
    assert producer.sequences() == [0, 0, 1, 1, 2, 2]


# Metadata


def test_a_record_for_an_unknown_topic_waits_for_the_metadata() -> None:
    producer = parts(linger_ms=0)
    send(producer, Send("refunds", "x"))
    assert producer.effects.messages(GetMetadata)
    assert len(producer.accumulator.awaiting_metadata) == 1
    topics = {**METADATA.topics, "refunds": Topic("refunds", 1)}
    leaders = {**METADATA.leaders, ("refunds", 0): METADATA.leaders[ORDERS]}
    producer.cache.update(attrs.evolve(METADATA, version=2, topics=topics, leaders=leaders))
    producer.accumulator.retry_unrouted()
    assert len(producer.accumulator.awaiting_metadata) == 0
    assert len(producer.effects.messages(Append)) == 1


@pytest.mark.parametrize("grows", [True, False])
def test_a_record_for_an_unknown_partition_waits_until_newer_metadata_decides(grows: bool) -> None:
    producer = parts(linger_ms=0)
    [caller] = send(producer, to(2))
    assert answers(producer, caller) == []
    topics = {"orders": Topic("orders", 3 if grows else 2)}
    producer.cache.update(attrs.evolve(METADATA, version=2, topics=topics))
    producer.accumulator.retry_unrouted()
    if grows:
        assert producer.sender.has_batches()
    else:
        [failed] = answers(producer, caller)
        assert "partition = 2: expected a number from 0 to 1" in str(failed.error)


def test_a_record_for_a_topic_that_does_not_appear_fails() -> None:
    producer = parts()
    [caller] = send(producer, Send("refunds", "x"))
    producer.accumulator.expire_unrouted()
    [failed] = answers(producer, caller)
    assert isinstance(failed, SendFailed)
    assert str(failed.error) == "there is no topic 'refunds'"


def test_records_do_not_fail_before_the_controller_has_answered() -> None:
    producer = ProducerParts(metadata=None)
    [caller] = send(producer, Send("orders", "x"))
    producer.accumulator.expire_unrouted()
    assert answers(producer, caller) == []
    assert len(producer.accumulator.awaiting_metadata) == 1
