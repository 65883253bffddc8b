"""The sender of a producer, without an engine."""

from typing import Any

import attrs
import pytest

import wavetank as wt
from helpers.fake_effects import FakeRef
from helpers.producer_parts import (
    CONTROLLER,
    LEADER,
    METADATA,
    ORDERS,
    OTHER,
    ProducerParts,
    batch,
)
from wavetank.actors.client.sender import BackoffOver, CheckTimeouts
from wavetank.model.log.record import NOT_IDEMPOTENT
from wavetank.model.messages.client import ALL, Append
from wavetank.model.messages.cluster import GetMetadata, InitProducer, Leader, ProducerEpoch
from wavetank.model.settings import ProducerSettings


def parts(**settings: Any) -> ProducerParts:
    return ProducerParts(ProducerSettings(**settings))


# Sending


def test_a_batch_is_sent_to_the_leader_with_its_sequence_number_and_the_epoch() -> None:
    producer = parts()
    producer.enqueue(1, 2)
    producer.enqueue(3)
    producer.enqueue(4, partition=OTHER)
    assert {to for to, message in producer.effects.sent if type(message) is Append} == {LEADER}
    assert [(a.batch.sequence, a.batch.count, a.epoch, a.acks) for a in producer.appends()] == [
        (0, 2, 0, ALL),
        (2, 1, 0, ALL),
        (0, 1, 0, ALL),
    ]


def test_the_outcome_of_a_stored_batch_reaches_its_callback_once() -> None:
    producer = parts()
    outcome = producer.enqueue(1, 2)
    [append] = producer.appends()
    producer.store(append, base_offset=40)
    producer.store(append, base_offset=40)
    assert outcome == [(40, 77, None)]


def test_no_more_than_max_in_flight_batches_of_a_partition_are_sent() -> None:
    producer = parts(max_in_flight=2)
    for value in range(4):
        producer.enqueue(value)
    producer.enqueue("other", partition=OTHER)
    assert producer.sequences() == [0, 1, 0]
    producer.store(producer.appends()[0])
    assert producer.sequences() == [0, 1, 0, 2]


def test_without_acks_the_callback_is_called_at_once_and_nothing_is_in_flight() -> None:
    producer = parts(acks=0, enable_idempotence=False)
    assert producer.enqueue(1) == [(-1, -1, None)]
    [append] = producer.appends()
    assert (append.acks, append.epoch) == (False, NOT_IDEMPOTENT)
    assert not producer.sender.has_batches()


def test_the_floor_rises_over_completed_batches_only() -> None:
    producer = parts()
    for value in range(3):
        producer.enqueue(value)
    first, second, _ = producer.appends()
    producer.store(second)
    producer.enqueue(3)
    producer.store(first)
    producer.enqueue(4)
    assert [append.floor for append in producer.appends()] == [0, 0, 0, 0, 2]


def test_a_batch_without_a_known_leader_waits_for_the_metadata() -> None:
    producer = ProducerParts(metadata=None)
    producer.enqueue(1)
    assert producer.appends() == []
    assert producer.effects.messages(GetMetadata)
    assert producer.sender.needs_metadata()
    producer.cache.update(METADATA)
    producer.sender.send_waiting()
    assert producer.sequences() == [0]
    assert not producer.sender.needs_metadata()


def test_room_is_announced_once_when_a_batch_can_be_sent_at_once() -> None:
    producer = parts(max_in_flight=1)
    told: list[Any] = []
    assert producer.sender.has_room(ORDERS, told.append)
    producer.enqueue(0)
    producer.enqueue(1)
    assert not producer.sender.has_room(ORDERS, told.append)
    producer.store(producer.appends()[0])
    assert told == [], "the second batch has taken the room"
    producer.store(producer.appends()[1])
    assert told == [ORDERS]
    producer.enqueue(2)
    producer.store(producer.appends()[2])
    assert told == [ORDERS]


# Retries


def test_a_failed_batch_is_sent_again_after_its_backoff() -> None:
    producer = parts(retry_backoff_ms=100)
    outcome = producer.enqueue(1)
    producer.sender.fail(producer.appends()[0].request, "not the leader")
    assert producer.sequences() == [0]
    [timer] = producer.timers(BackoffOver)
    assert 80_000 <= timer.due_us <= 120_000
    producer.sender.retry(timer.message)
    assert producer.sequences() == [0, 0]
    first, second = producer.appends()
    assert first.request != second.request
    producer.store(second)
    assert outcome == [(0, 77, None)]
    [(kind, fields)] = producer.effects.events
    assert (kind, fields["producer"], fields["reason"]) == (
        "send_retried", "shop", "not the leader",
    )  # fmt: skip


def test_an_answer_to_an_earlier_attempt_is_ignored() -> None:
    producer = parts()
    outcome = producer.enqueue(1)
    [first] = producer.appends()
    producer.sender.fail(first.request, "not the leader")
    producer.store(first)
    producer.sender.fail(first.request, "not the leader")
    assert outcome == []
    assert len(producer.timers(BackoffOver)) == 1


def test_batches_do_not_overtake_one_that_backs_off() -> None:
    producer = parts(enable_idempotence=False)
    producer.enqueue(0)
    producer.sender.fail(producer.appends()[0].request, "not the leader")
    producer.enqueue(1)
    assert producer.sequences() == [0]
    producer.sender.retry(producer.timers(BackoffOver)[0].message)
    assert producer.sequences() == [0, 0, 1]


def test_failed_batches_are_sent_again_in_their_order() -> None:
    producer = parts(enable_idempotence=False)
    for value in range(3):
        producer.enqueue(value)
    for append in producer.appends():
        producer.sender.fail(append.request, "not the leader")
    for timer in producer.timers(BackoffOver):
        producer.sender.retry(timer.message)
    assert producer.sequences() == [0, 1, 2, 0, 1, 2]


def test_a_retried_batch_of_an_idempotent_producer_waits_for_those_before_it() -> None:
    producer = parts()
    producer.enqueue(0)
    producer.enqueue(1)
    first, second = producer.appends()
    producer.sender.fail(second.request, "one before it has not arrived")
    [timer] = producer.timers(BackoffOver)
    producer.sender.retry(timer.message)
    assert producer.sequences() == [0, 1]
    producer.store(first)
    assert producer.sequences() == [0, 1, 1]


def test_a_batch_without_retries_left_is_given_up_and_the_next_is_sent() -> None:
    producer = parts(retries=1, max_in_flight=1)
    failed, stored = producer.enqueue(0), producer.enqueue(1)
    producer.sender.fail(producer.appends()[0].request, "not the leader")
    producer.sender.retry(producer.timers(BackoffOver)[0].message)
    producer.sender.fail(producer.appends()[1].request, "not the leader")
    [(offset, _, error)] = failed
    assert offset == -1
    assert str(error) == "1 records for orders-0 given up after 2 attempts: not the leader"
    assert [(append.batch.sequence, append.floor) for append in producer.appends()] == [
        (0, 0),
        (0, 0),
        (1, 1),
    ]
    producer.store(producer.appends()[2])
    assert stored == [(0, 77, None)]
    assert producer.effects.kinds() == ["send_retried", "given_up"]


def test_only_requests_to_a_leader_that_has_ended_fail() -> None:
    second_leader = FakeRef("second")
    leaders = {**METADATA.leaders, OTHER: Leader(second_leader, "broker-1", 0)}
    producer = ProducerParts(metadata=attrs.evolve(METADATA, leaders=leaders))
    producer.enqueue(0)
    producer.enqueue(1, partition=OTHER)
    producer.sender.disconnect(second_leader)  # type: ignore[arg-type]
    [timer] = producer.timers(BackoffOver)
    assert timer.message == BackoffOver(OTHER, 0)


# Timeouts


def test_a_request_without_an_answer_fails_after_the_request_timeout() -> None:
    producer = parts(request_timeout_ms=1_000)
    producer.enqueue(0)
    [timer] = producer.timers(CheckTimeouts)
    assert timer.due_us == 500_000
    producer.effects.now = 999_999
    producer.sender.sweep()
    assert producer.effects.kinds() == []
    producer.effects.now = 1_000_000
    producer.sender.sweep()
    assert producer.effects.kinds() == ["send_retried"]
    assert producer.effects.messages(GetMetadata), "the leader may have changed"


def test_a_waiting_batch_is_given_up_after_the_delivery_timeout() -> None:
    producer = ProducerParts(
        ProducerSettings(request_timeout_ms=1_000, delivery_timeout_ms=2_000), metadata=None
    )
    outcome = producer.enqueue(0)
    producer.effects.now = 1_999_999
    producer.sender.sweep()
    assert outcome == []
    producer.effects.now = 2_000_000
    producer.sender.sweep()
    assert isinstance(outcome[0][2], TimeoutError)
    assert not producer.sender.has_batches()


def test_the_sweep_timer_is_set_once() -> None:
    producer = parts()
    for value in range(3):
        producer.enqueue(value)
    assert len(producer.timers(CheckTimeouts)) == 1


# The epoch


def test_nothing_is_sent_before_the_epoch_of_this_life_is_known() -> None:
    producer = ProducerParts(epoch=None)
    producer.enqueue(0)
    assert producer.sender.needs_metadata()
    producer.sender.request_epoch()
    assert producer.effects.sent[-1] == (CONTROLLER, InitProducer(1, "shop"))
    producer.sender.set_epoch(ProducerEpoch(0, "shop", 3))
    assert producer.appends() == [], "an answer to another life"
    producer.sender.set_epoch(ProducerEpoch(1, "shop", 4))
    producer.sender.set_epoch(ProducerEpoch(1, "shop", 5))
    assert [append.epoch for append in producer.appends()] == [4]
    requests = len(producer.effects.messages(InitProducer))
    producer.sender.request_epoch()
    assert len(producer.effects.messages(InitProducer)) == requests


def test_a_producer_that_is_not_idempotent_asks_for_no_epoch() -> None:
    producer = ProducerParts(ProducerSettings(enable_idempotence=False), epoch=None)
    producer.sender.request_epoch()
    producer.enqueue(0)
    assert producer.effects.messages(InitProducer) == []
    assert [append.epoch for append in producer.appends()] == [NOT_IDEMPOTENT]


def test_a_fenced_sender_gives_up_what_it_has_and_what_it_gets() -> None:
    producer = parts(max_in_flight=1)
    outcomes = [producer.enqueue(value) for value in range(3)]
    assert producer.sender.fence(producer.appends()[0].request)
    producer.sender.send_waiting()
    outcomes.append(producer.enqueue(3))
    assert [type(error) for [(_, _, error)] in outcomes] == [wt.errors.ProducerFencedError] * 4
    assert producer.sequences() == [0]
    assert producer.effects.kinds() == ["given_up"] * 4


def test_a_fenced_request_of_an_earlier_life_fences_nothing() -> None:
    producer = parts()
    producer.enqueue(0)
    assert not producer.sender.fence(99)
    producer.enqueue(1)
    assert producer.sequences() == [0, 1]


@pytest.mark.parametrize("producer_id", [None, "till"])
def test_records_carry_the_producer_id_which_is_the_producers_name_by_default(
    producer_id: str | None,
) -> None:
    producer = ProducerParts(ProducerSettings(producer_id=producer_id))
    assert producer.sender.producer_id == (producer_id or "shop")
    producer.sender.enqueue(ORDERS, batch(1), 0)
    producer.sender.fail(producer.appends()[0].request, "not the leader")
    assert producer.effects.events[0][1]["producer"] == (producer_id or "shop")
