"""Partitioners."""

import warnings
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.strategies.partitioning import (
    PARTITIONERS,
    Key,
    Partitioner,
    murmur2,
    next_sticky,
    partition_all,
    partition_of,
    partitioner,
)

with warnings.catch_warnings():  # kafka-python reads its schemas in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner import DefaultPartitioner
    from kafka.partitioner import murmur2 as kafka_python_murmur2

keys = st.one_of(st.binary(), st.text(), st.integers())
counts = st.integers(1, 200)


def choose(
    by: Partitioner,
    key: Any = None,
    value: object = None,
    partitions: int = 6,
    requested: int | None = None,
    sticky: int = 0,
    seed: int = 1,
) -> int:
    return by.choose(
        key, value, partitions, requested=requested, sticky=sticky, random=Random(seed)
    )


def choose_many(
    by: Partitioner,
    keys: Any = None,
    values: Any = None,
    count: int = 1,
    partitions: int = 6,
    requested: int | None = None,
    sticky: int = 0,
    seed: int = 1,
) -> list[int]:
    random = np.random.default_rng(seed)
    chosen = by.choose_many(
        keys, values, count, partitions, requested=requested, sticky=sticky, random=random
    )
    assert chosen.dtype == np.int64
    return chosen.tolist()


def by_length(key: Any, value: Any, partitions: int) -> int:
    return len(key) % partitions


@given(st.binary())
def test_the_hash_equals_that_of_kafka_python(data: bytes) -> None:
    assert murmur2(data) == kafka_python_murmur2(data)


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_equals_that_in_kafkas_own_tests(text: bytes, signed: int) -> None:
    assert murmur2(text) == signed % 2**32


@given(keys, counts)
def test_a_key_goes_to_the_partition_that_a_kafka_producer_chooses(
    key: int | str | bytes, count: int
) -> None:
    sent = key if isinstance(key, bytes) else str(key).encode()
    cluster = SimpleNamespace(
        topics=lambda: {"orders"},
        partitions_for_topic=lambda topic: set(range(count)),
        available_partitions_for_topic=lambda topic: set(range(count)),
    )
    kafka = DefaultPartitioner().partition("orders", key, sent, None, None, cluster)
    assert choose(PARTITIONERS["key"], key, partitions=count) == kafka


@given(st.lists(keys), counts)
def test_many_keys_go_to_the_same_partitions_as_one_by_one(
    many: list[int | str | bytes], count: int
) -> None:
    assert partition_all(many, count).tolist() == [partition_of(key, count) for key in many]


@given(st.lists(st.one_of(st.integers(0, 10**6 + 9), st.integers(-(2**63), 2**63 - 1))), counts)
def test_an_array_of_numbers_goes_to_the_partitions_of_their_texts(
    many: list[int], count: int
) -> None:
    expected = [partition_of(str(number), count) for number in many]
    assert partition_all(np.array(many, np.int64), count).tolist() == expected


def test_numbers_of_every_length_are_hashed_as_their_text() -> None:
    edges = sorted({10**n + step for n in range(8) for step in (-1, 0, 1)})
    expected = [partition_of(str(number), 7) for number in edges]
    assert partition_all(np.array(edges), 7).tolist() == expected
    assert [int(partition_all(np.array([number]), 7)[0]) for number in edges] == expected
    assert partition_all(range(0, 3_000, 7), 7).tolist() == [
        partition_of(str(number), 7) for number in range(0, 3_000, 7)
    ]
    assert partition_all(range(0), 7).tolist() == []


@pytest.mark.parametrize("key", [1.5, True, ["a"], object(), bytearray(b"a")])
def test_a_key_of_another_type_is_refused_with_its_type(key: Any) -> None:
    expected = rf"key = .* of type {type(key).__name__}: expected bytes, a text or a whole number"
    with pytest.raises(wt.errors.BadValueError, match=expected):
        choose(PARTITIONERS["key"], key)
    with pytest.raises(wt.errors.BadValueError, match=expected):
        choose_many(PARTITIONERS["key"], ["a", key], count=2)


@given(st.lists(st.none() | keys), counts, st.data())
def test_records_without_a_key_go_to_the_sticky_partition(
    many: list[Key], count: int, data: st.DataObject
) -> None:
    sticky = data.draw(st.integers(0, count - 1))
    expected = [sticky if key is None else partition_of(key, count) for key in many]
    by_key = PARTITIONERS["key"]
    assert [choose(by_key, key, partitions=count, sticky=sticky) for key in many] == expected
    assert choose_many(by_key, many, None, len(many), count, sticky=sticky) == expected
    assert choose_many(by_key, None, None, 3, count, sticky=sticky) == [sticky] * 3


def test_the_sticky_partitioner_ignores_keys() -> None:
    sticky = PARTITIONERS["sticky"]
    assert [choose(sticky, key, sticky=4) for key in ("a", "b", None)] == [4, 4, 4]
    assert choose_many(sticky, ["a", "b", None], count=3, sticky=4) == [4, 4, 4]


@given(counts, st.integers(), st.data())
def test_the_next_sticky_partition_differs_if_there_is_another(
    count: int, seed: int, data: st.DataObject
) -> None:
    previous = data.draw(st.integers(0, count - 1))
    drawn = next_sticky(count, previous, Random(seed))
    assert 0 <= drawn < count
    assert drawn != previous or count == 1
    assert 0 <= next_sticky(count, None, Random(seed)) < count


def test_the_next_sticky_partition_can_be_any_other_one() -> None:
    random = Random(1)
    drawn = Counter(next_sticky(5, 2, random) for _ in range(4_000))
    assert sorted(drawn) == [0, 1, 3, 4]
    assert all(count == pytest.approx(1_000, rel=0.1) for count in drawn.values())


def test_the_random_partitioner_is_uniform_whatever_the_key() -> None:
    one, random = PARTITIONERS["random"], Random(1)
    singly = Counter(
        one.choose("a", None, 4, requested=None, sticky=0, random=random) for _ in range(4_000)
    )
    at_once = Counter(choose_many(one, np.zeros(4_000, np.int64), None, 4_000, 4))
    for drawn in (singly, at_once):
        assert sorted(drawn) == [0, 1, 2, 3]
        assert all(count == pytest.approx(1_000, rel=0.1) for count in drawn.values())


def test_the_random_partitioner_refuses_a_requested_partition() -> None:
    expected = "partition = 3: expected none, as the partitioner is random"
    with pytest.raises(wt.errors.BadValueError, match=expected):
        choose(PARTITIONERS["random"], requested=3)
    with pytest.raises(wt.errors.BadValueError, match=expected):
        choose_many(PARTITIONERS["random"], requested=3)


def test_the_manual_partitioner_needs_a_requested_partition() -> None:
    manual = PARTITIONERS["manual"]
    assert choose(manual, "a", requested=3) == 3
    assert choose_many(manual, ["a", "b"], count=2, requested=3) == [3, 3]
    expected = "partition = None: expected a number from 0 to 5, as the partitioner is manual"
    with pytest.raises(wt.errors.BadValueError, match=expected):
        choose(manual, "a")
    with pytest.raises(wt.errors.BadValueError, match=expected):
        choose_many(manual, ["a"])


@pytest.mark.parametrize("by", ["key", "sticky", "manual", by_length])
def test_a_requested_partition_takes_precedence_and_must_exist(by: Any) -> None:
    assert choose(partitioner(by), "a", requested=5) == 5
    assert choose_many(partitioner(by), ["a", "bb"], count=2, requested=5) == [5, 5]
    for wrong in (6, -1, True, "1"):
        with pytest.raises(
            wt.errors.BadValueError, match=r"partition = .*: expected a number from 0"
        ):
            choose(partitioner(by), "a", requested=wrong)  # type: ignore[arg-type]


def test_a_users_function_gets_key_value_and_number_of_partitions() -> None:
    seen: list[tuple[Any, Any, int]] = []

    def watch(key: Any, value: Any, partitions: int) -> int:
        seen.append((key, value, partitions))
        return 1

    mine = partitioner(watch)
    assert choose(mine, "k", "v") == 1
    assert choose_many(mine, np.array([7, 8]), ["v", "w"], 2) == [1, 1]
    assert choose_many(mine, None, None, 1) == [1]
    assert seen == [("k", "v", 6), (7, "v", 6), (8, "w", 6), (None, None, 6)]
    assert type(seen[1][0]) is int


@pytest.mark.parametrize("answer", [6, -1, None, "1", 1.0, True])
def test_an_error_names_the_function_that_returned_no_partition(answer: Any) -> None:
    def broken(key: Any, value: Any, partitions: int) -> Any:
        return answer

    expected = rf"partitioner broken returned {answer!r} for key 'a': expected a number from 0 to 5"
    with pytest.raises(wt.errors.BadValueError, match=expected):
        choose(partitioner(broken), "a")
    with pytest.raises(wt.errors.BadValueError, match=expected):
        choose_many(partitioner(broken), ["a"])


def test_partitioners_are_found_by_name() -> None:
    assert sorted(PARTITIONERS) == ["key", "manual", "random", "sticky"]
    assert all(partitioner(name) is PARTITIONERS[name] for name in PARTITIONERS)
    with pytest.raises(wt.errors.UnknownNameError, match=r"'stiky': did you mean 'sticky'"):
        partitioner("stiky")
    with pytest.raises(
        wt.errors.BadValueError, match="partitioner = 7: expected a name or a function"
    ):
        partitioner(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(PARTITIONERS))
def test_a_partitioner_keeps_no_state(name: str) -> None:
    requested = 2 if name == "manual" else None
    draws = [
        choose_many(PARTITIONERS[name], [None] * 50, None, 50, requested=requested, seed=3)
        for _ in range(2)
    ]
    assert draws[0] == draws[1]


def test_random_counts_of_records_without_keys_are_one_draw() -> None:
    drawn = np.random.default_rng(3)
    counts = partitioner("random").counts(100_000, 4, drawn)
    assert counts is not None
    assert counts.sum() == 100_000
    assert all(24_000 < count < 26_000 for count in counts)
    assert partitioner("key").counts(10, 4, drawn) is None
