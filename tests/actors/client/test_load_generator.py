"""The load model of a load generator, without an engine."""

from collections import Counter
from itertools import pairwise
from typing import Any

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from helpers.fake_effects import FakeTimer
from helpers.producer_parts import METADATA, ORDERS, OTHER, ProducerParts
from wavetank.actors.client.load_generator import EmitRecords, LoadModel
from wavetank.model.messages.cluster import GetMetadata
from wavetank.model.settings import ProducerSettings
from wavetank.strategies.partitioning import partitioner


def model(
    producer: ProducerParts, rule: str = "manual", arrivals: Any = None, **fields: Any
) -> LoadModel:
    """A load of 1,000 records of 10 bytes a second, or with other arrivals."""
    arrivals = wt.load.Constant(1_000) if arrivals is None else arrivals
    load = wt.load.Load("orders", arrivals, sizes=wt.load.FixedSize(10), **fields)
    effects: Any = producer.effects
    return LoadModel(
        effects, producer.settings, partitioner(rule), load, producer.cache, producer.sender,
        producer.accumulator,
    )  # fmt: skip


def emit_at(load: LoadModel, producer: ProducerParts, now_us: int) -> int:
    """Emit at a time; returns the number of records sent."""
    before = len(producer.appends())
    producer.effects.now = now_us
    load.emit()
    return sum(append.batch.count for append in producer.appends()[before:])


def test_the_records_since_the_last_time_are_one_batch() -> None:
    producer = ProducerParts()
    load = model(producer, partition=1)
    assert [emit_at(load, producer, ms * 1_000) for ms in (20, 20, 50)] == [20, 0, 30]
    assert list(producer.sender.queues) == [OTHER]
    assert len(producer.appends()) == 2


def test_a_batch_is_cut_to_the_batch_size() -> None:
    producer = ProducerParts(ProducerSettings(batch_size=45))
    assert emit_at(model(producer, partition=0), producer, 10_000) == 10
    assert list(producer.sender.queues) == [ORDERS]
    producer.store(producer.appends()[0])
    assert [append.batch.count for append in producer.appends()] == [4, 4, 2]


def test_records_are_spread_over_all_partitions_of_the_topic() -> None:
    producer = ProducerParts()
    assert emit_at(model(producer, "random"), producer, 100_000) == 100
    assert sorted(producer.sender.queues) == [ORDERS, OTHER]


def test_a_scaled_load_makes_more_or_fewer_records() -> None:
    producer = ProducerParts()
    load = model(producer, partition=0)
    load.scale(0.5)
    assert emit_at(load, producer, 20_000) == 10


def test_records_of_the_time_in_which_it_does_not_run_are_not_made_later() -> None:
    producer = ProducerParts()
    load = model(producer, partition=0)
    load.running = False
    assert emit_at(load, producer, 20_000) == 0
    load.running = True
    assert emit_at(load, producer, 30_000) == 10


def test_a_load_asks_for_its_topic_while_it_is_unknown() -> None:
    producer = ProducerParts(metadata=attrs.evolve(METADATA, topics={}))
    load = model(producer, partition=0)
    assert load.needs_metadata()
    assert emit_at(load, producer, 20_000) == 0
    assert producer.effects.messages(GetMetadata)
    producer.cache.update(METADATA)
    assert not load.needs_metadata()
    assert emit_at(load, producer, 30_000) == 10


def quick_producer() -> ProducerParts:
    """A producer that sends everything at once."""
    return ProducerParts(ProducerSettings(max_in_flight=10_000))


def emissions(producer: ProducerParts) -> list[FakeTimer]:
    return [timer for timer in producer.effects.timers if timer.message == EmitRecords()]


def follow(load: LoadModel, producer: ProducerParts, until_us: int) -> list[tuple[int, int]]:
    """Emit whenever the timer is due; returns the times in ms and the number of records of each."""
    found = []
    while (now_us := emissions(producer)[-1].due_us) <= until_us:
        count = emit_at(load, producer, now_us)
        if count:
            found.append((now_us // 1_000, count))
    return found


TIMES = [0.0031, 0.0032, 0.0305, 0.0999, 0.2, 0.9]


def test_records_are_made_at_the_end_of_the_interval_in_which_they_arrive() -> None:
    producer = quick_producer()
    load = model(producer, arrivals=wt.load.trace(TIMES), partition=0, resolution="5ms")
    load.start()
    expected = [(5, 2), (35, 1), (100, 1), (205, 1), (905, 1)]
    assert follow(load, producer, 1_000_000) == expected


def test_intervals_without_arrivals_have_no_timer() -> None:
    producer = quick_producer()
    load = model(producer, arrivals=wt.load.trace(TIMES), partition=0, resolution="1ms")
    load.start()
    follow(load, producer, 1_000_000)
    assert len(emissions(producer)) < 20


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 3)), max_size=20),
    st.sampled_from([1, 3, 7, 10, 50, 100]),
)
def test_arrivals_that_are_drawn_ahead_are_those_of_each_interval(
    rows: list[tuple[int, int]], step_ms: int
) -> None:
    producer = quick_producer()
    arrivals = wt.load.trace(np.array([(ms / 1_000, n) for ms, n in rows]).reshape(-1, 2))
    load = model(producer, arrivals=arrivals, partition=0, resolution=f"{step_ms}ms")
    load.start()
    made = follow(load, producer, 1_000_000)
    expected: Counter[int] = Counter()
    for ms, n in rows:
        expected[(ms // step_ms + 1) * step_ms] += n
    if 100 % step_ms == 0:
        assert dict(made) == expected
    assert sum(n for _, n in made) == expected.total()
    assert all(earlier < later for (earlier, _), (later, _) in pairwise(made))


def test_a_new_rate_applies_from_the_next_interval_on() -> None:
    producer = quick_producer()
    load = model(producer, arrivals=wt.load.Constant(100), partition=0, resolution="5ms")
    load.start()
    assert follow(load, producer, 42_000) == [(ms, 1) for ms in (5, 15, 25, 35)]
    producer.effects.now = 42_000
    load.scale(2)
    assert emissions(producer)[-2].cancelled
    made = follow(load, producer, 105_000)
    assert made[0] == (45, 1)
    assert made[1:] == [(ms, 1) for ms in range(50, 110, 5)]


def test_a_rate_of_zero_stops_arrivals_that_were_drawn_ahead() -> None:
    producer = quick_producer()
    load = model(producer, arrivals=wt.load.Poisson(300), partition=0, resolution="1ms")
    load.start()
    assert sum(n for _, n in follow(load, producer, 50_000)) > 5
    load.scale(0)
    assert sum(n for _, n in follow(load, producer, 200_000)) <= 1


def test_records_that_arrive_while_the_node_is_paused_are_made_when_it_resumes() -> None:
    producer = quick_producer()
    load = model(producer, arrivals=wt.load.Constant(100), partition=0, resolution="5ms")
    load.start()
    follow(load, producer, 50_000)
    assert emit_at(load, producer, 1_000_000) == 95


def test_a_clock_that_is_set_back_does_not_stop_the_load() -> None:
    producer = quick_producer()
    producer.effects.now = 900_000_000
    load = model(producer, arrivals=wt.load.Constant(100), partition=0, resolution="5ms")
    load.start()
    emit_at(load, producer, 100_000)
    assert sum(n for _, n in follow(load, producer, 300_000)) == 20
