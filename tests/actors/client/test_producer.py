"""Producers of users, on both engines: partitioners and load generators."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wavetank as wt


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster on each engine in turn, with a topic of four partitions."""
    with getattr(wt.Cluster, request.param)(seed=7) as cluster:
        cluster.create_topic("orders", partitions=4)
        cluster.create_topic("videos", partitions=4, payloads="external")
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def counting(calls: Counter[Any]) -> Callable[[Any, Any, int], int]:
    """A partitioner that counts its calls by value."""

    def choose(key: Any, value: Any, partitions: int) -> int:
        calls[value] += 1
        return int(value) % partitions

    return choose


@pytest.mark.parametrize("topic", ["orders", "videos"])
def test_a_users_partitioner_is_called_once_for_each_record(
    cluster: wt.Cluster, topic: str
) -> None:
    calls: Counter[Any] = Counter()
    shop = cluster.producer("shop", counting(calls))
    futures = [shop.send(topic, number) for number in range(20)]
    receipts = [future.get(timeout=20) for future in futures]
    assert [receipt.partition for receipt in receipts] == [number % 4 for number in range(20)]
    assert calls == dict.fromkeys(range(20), 1)


@pytest.mark.parametrize("topic", ["orders", "videos"])
def test_a_users_partitioner_is_not_called_when_the_partition_is_given(
    cluster: wt.Cluster, topic: str
) -> None:
    calls: Counter[Any] = Counter()
    shop = cluster.producer("shop", counting(calls))
    assert shop.send(topic, 1, partition=3).get(timeout=20).partition == 3
    assert shop.send_many(topic, [1, 2], partition=2).get(timeout=20).partition == 2
    assert not calls


@pytest.mark.parametrize("topic", ["orders", "videos"])
@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("bad", ValueError, "invalid literal"),
        (9, wt.errors.BadValueError, "returned 9 for key None: expected a number from 0 to 3"),
    ],
)
def test_an_error_of_a_users_partitioner_comes_through_the_future(
    cluster: wt.Cluster, topic: str, value: Any, error: type[Exception], text: str
) -> None:
    shop = cluster.producer("shop", lambda key, value, partitions: int(value))
    failed = shop.send(topic, value)
    with pytest.raises(error, match=text):
        failed.get(timeout=20)
    assert shop.send(topic, 2).get(timeout=20).partition == 2, "the producer goes on"
    assert sum(event.count or 0 for event in cluster.events.of("payload_stored")) == (
        1 if topic == "videos" else 0
    )


def test_what_is_wrong_without_asking_a_users_partitioner_is_raised_by_send(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("texts", type=str)
    calls: Counter[Any] = Counter()
    shop = cluster.producer("shop", counting(calls))
    with pytest.raises(wt.errors.UnknownNameError, match="'order': did you mean 'orders'"):
        shop.send("order", 1)
    with pytest.raises(wt.errors.BadValueError, match="takes values of type str, not int"):
        shop.send("texts", 1)
    with pytest.raises(
        wt.errors.BadValueError, match="partition = -1: expected a number from 0 to 3"
    ):
        shop.send("orders", 1, partition=-1)
    with pytest.raises(wt.errors.BadValueError, match="expected bytes, a text or a whole number"):
        cluster.producer("till").send("orders", 1, key=[])
    assert not calls


def test_the_controller_is_asked_for_unknown_topics_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with wt.Cluster.simulated(seed=7) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer("shop")
        requests: list[int] = []
        metadata = cluster.metadata
        monkeypatch.setattr(cluster, "metadata", lambda: requests.append(1) or metadata())
        for future in [shop.send("orders", number) for number in range(10)]:
            future.get()
        assert requests == []
        with pytest.raises(wt.errors.UnknownNameError):
            shop.send("refunds", 0)
        assert requests == [1]


def test_all_producers_know_at_once_that_a_topic_was_deleted_and_created_again(
    cluster: wt.Cluster,
) -> None:
    shops = [cluster.producer(name) for name in ("shop", "till")]
    for shop in shops:
        shop.send("orders", 1).get(timeout=20)
    shops[0].remove_topic("orders")
    for shop in shops:
        with pytest.raises(wt.errors.UnknownNameError):
            shop.send("orders", 2)
    cluster.create_topic("orders", type=str)
    for shop in shops:
        with pytest.raises(wt.errors.BadValueError, match="takes values of type str"):
            shop.send("orders", 3)


def test_users_can_send_records_through_a_producer_with_a_load(cluster: wt.Cluster) -> None:
    load = wt.load.Load("orders", wt.load.Constant(1_000), partition=0)
    robot = cluster.producer("robot", "manual", load=load, linger_ms=0)
    receipt = robot.send("orders", "mine", partition=1).get(timeout=20)
    assert (receipt.partition, receipt.offset) == (1, 0)
    receipt = robot.send_many("orders", ["a", "b"], partition=1).get(timeout=20)
    assert receipt.offset == 2
    cluster.run_until(lambda: len(cluster.events.of("appended")) > 5, timeout=20)
    assert [r.value for r in cluster.topic("orders").contents[1]] == ["mine", "a", "b"]
