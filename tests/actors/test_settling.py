"""Waiting until a cluster has settled, is idle, or a consumer is ready; on both engines."""

import asyncio
from typing import Any

import pytest
from pykka import Timeout

import wavetank as wt
from wavetank.model.errors import BadValueError, HandlerError

DEADLINE = 20
QUICK = {"heartbeat_interval_ms": 20, "auto_commit_interval_ms": 20}


# settle


@pytest.mark.parametrize(
    "options",
    [{}, {"enable_auto_commit": False}, {"acks": True}, {"delivery": "shared"},
     {"delivery": "key_shared"}, {"delivery": "broadcast"}],
    ids=str,
)  # fmt: skip
def test_settle_waits_until_everything_is_processed_and_acknowledged(
    cluster: wt.Cluster, options: dict[str, Any]
) -> None:
    cluster.create_topic("jobs", partitions=3)
    group = cluster.group("workers", ["jobs"], **QUICK, **options)
    seen: list[int] = []
    for name in ("ann", "bob"):
        group.consumer(name, lambda records: seen.extend(r.value for r in records))
    shop = cluster.producer("shop", linger_ms=5)
    for number in range(30):
        shop.send("jobs", number, key=number)
    cluster.settle(DEADLINE)
    copies = 2 if options.get("delivery") == "broadcast" else 1
    assert sorted(seen) == sorted(list(range(30)) * copies)
    assert sum(group.lag().values()) == 0
    assert group.describe().state == "Stable"


def test_settle_follows_records_that_handlers_send_on(cluster: wt.Cluster) -> None:
    cluster.create_topic("first")
    cluster.create_topic("second")
    relay = cluster.producer("relay", linger_ms=20)
    seen: list[int] = []

    async def pass_on(records: wt.Records) -> None:
        for record in records:
            await asyncio.sleep(0.001)
            relay.send("second", record.value)

    cluster.group("relays", ["first"], **QUICK).consumer("passer", pass_on)
    last = cluster.group("readers", ["second"], **QUICK)
    last.consumer("reader", lambda records: seen.extend(r.value for r in records))
    shop = cluster.producer("shop")
    for number in range(20):
        shop.send("first", number)
    cluster.settle(DEADLINE)
    assert seen == list(range(20))
    assert sum(last.lag().values()) == 0


def test_settle_waits_for_external_payloads(cluster: wt.Cluster) -> None:
    cluster.create_topic("jobs", payloads="external")
    shop = cluster.producer("shop")
    for number in range(5):
        shop.send("jobs", number)
    cluster.settle(DEADLINE)
    assert cluster.inspect(wt.TopicPartition("jobs", 0)).end_offset == 5


def test_settle_says_what_is_left_to_do(calm: wt.Cluster) -> None:
    calm.create_topic("jobs")
    group = calm.group("workers", ["jobs"])
    group.consumer("worker", service=wt.load.ConstantService("10s"), max_poll_records=1)
    shop = calm.producer("shop")
    for number in range(5):
        shop.send("jobs", number)
    with pytest.raises(
        Timeout, match=r"not settled within 20 s: group 'workers' has \d records to consume, \d of"
    ):
        calm.settle("20s")
    calm.settle()


def test_settle_refuses_to_wait_for_records_that_somebody_has_to_poll(cluster: wt.Cluster) -> None:
    cluster.create_topic("jobs")
    group = cluster.group("workers", ["jobs"])
    worker = group.consumer("worker")
    cluster.settle(DEADLINE)
    cluster.producer("shop").send("jobs", 1).get(timeout=DEADLINE)
    with pytest.raises(BadValueError, match=r"group 'workers' has 1 records to consume.*poll and"):
        cluster.settle(DEADLINE)
    assert [record.value for record in worker.poll(timeout=DEADLINE)] == [1]
    worker.commit()
    cluster.settle(DEADLINE)


def test_settle_waits_for_a_rebalance(calm: wt.Cluster) -> None:
    calm.create_topic("jobs", partitions=4)
    group = calm.group("workers", ["jobs"], assignor="cooperative-sticky")
    group.consumer("ann", print)
    calm.settle()
    group.consumer("bob", print)
    calm.settle()
    assert [len(share) for share in group.describe().by_consumer().values()] == [2, 2]


def test_settle_raises_an_error_of_a_handler(calm: wt.Cluster) -> None:
    def handler(records: wt.Records) -> None:
        raise AssertionError("no")

    calm.create_topic("jobs")
    calm.group("workers", ["jobs"]).consumer("worker", handler, on_handler_error="raise")
    calm.producer("shop").send("jobs", 1)
    with pytest.raises(HandlerError):
        calm.settle()


def test_close_raises_an_error_of_a_handler(calm: wt.Cluster) -> None:
    async def handler(records: wt.Records) -> None:
        await asyncio.sleep(5)
        raise AssertionError("no")

    calm.create_topic("jobs")
    group = calm.group("workers", ["jobs"])
    worker = group.consumer("worker", handler, on_handler_error="raise")
    calm.producer("shop").send("jobs", 1)
    calm.run(for_=1)
    with pytest.raises(HandlerError):
        worker.close()


# run_until_idle


def test_a_cluster_with_groups_becomes_idle(cluster: wt.Cluster) -> None:
    cluster.create_topic("jobs", partitions=3)
    seen: list[int] = []
    for name, options in {"plain": {}, "sharing": {"delivery": "shared"}}.items():
        group = cluster.group(name, ["jobs"], **options)
        for each in ("a", "b"):
            group.consumer(f"{name}-{each}", lambda records: seen.extend(r.value for r in records))
        group.assignment()
    shop = cluster.producer("shop")
    for number in range(10):
        shop.send("jobs", number, key=number)
    cluster.system.run_until_idle(timeout=DEADLINE)
    assert sorted(seen) == sorted(2 * list(range(10)))


def test_idle_waits_for_service_times_and_retries(calm: wt.Cluster) -> None:
    calm.create_topic("jobs")
    tries: list[float] = []

    def handler(records: wt.Records) -> None:
        tries.append(calm.now)
        if len(tries) < 3:
            raise RuntimeError("not yet")

    service = wt.load.ConstantService("10s")
    calm.group("workers", ["jobs"], retry_backoff_ms=5_000).consumer("w", handler, service=service)
    calm.producer("shop").send("jobs", 1)
    calm.system.run_until_idle()
    assert len(tries) == 3
    assert calm.now >= 40


def test_idle_waits_for_records_below_the_minimum_of_a_fetch(calm: wt.Cluster) -> None:
    calm.create_topic("jobs")
    seen: list[int] = []
    group = calm.group("workers", ["jobs"], fetch_min_bytes=100_000, fetch_max_wait_ms=5_000)
    group.consumer("worker", lambda records: seen.extend(r.value for r in records))
    calm.run(for_=7)
    calm.producer("shop").send("jobs", 1)
    calm.system.run_until_idle()
    assert seen == [1]


def test_a_cluster_that_is_never_idle_says_why(calm: wt.Cluster) -> None:
    calm.create_topic("jobs")
    group = calm.group("workers", ["jobs"])
    group.consumer("worker", service=wt.load.ConstantService("1h"))
    calm.producer("shop").send("jobs", 1)
    with pytest.raises(Timeout, match=r"not idle at .* s of virtual time: to come are .*WorkDone"):
        calm.system.run_until_idle(timeout=60)


# wait_ready


@pytest.mark.parametrize(
    "options",
    [{}, {"assignor": "cooperative-sticky"}, {"acks": True}, {"delivery": "shared"},
     {"delivery": "broadcast"}],
    ids=str,
)  # fmt: skip
def test_a_ready_consumer_gets_everything_that_is_sent_from_then_on(
    cluster: wt.Cluster, options: dict[str, Any]
) -> None:
    cluster.create_topic("news", partitions=3)
    shop = cluster.producer("shop", "manual", linger_ms=0)
    for number in range(3):
        shop.send("news", "old", partition=number).get(timeout=DEADLINE)
    group = cluster.group("readers", ["news"], start="latest", **options)
    seen: list[str] = []
    reader = group.consumer("reader", lambda records: seen.extend(r.value for r in records))
    reader.wait_ready(DEADLINE)
    for number in range(3):
        shop.send("news", f"new {number}", partition=number)
    cluster.run_until(lambda: len(seen) >= 3, DEADLINE)
    assert sorted(seen) == ["new 0", "new 1", "new 2"]


def test_a_newcomer_is_ready_only_when_it_has_its_share(calm: wt.Cluster) -> None:
    calm.create_topic("news", partitions=4)
    group = calm.group("readers", ["news"], assignor="cooperative-sticky")
    group.consumer("ann", print).wait_ready()
    bob = group.consumer("bob", print)
    bob.wait_ready()
    assert len(bob.positions()) == 2


def test_a_consumer_without_partitions_is_ready(calm: wt.Cluster) -> None:
    calm.create_topic("news", partitions=1)
    group = calm.group("readers", ["news"])
    readers = [group.consumer(name) for name in ("ann", "bob")]
    for reader in readers:
        reader.wait_ready()
    assert sorted(len(reader.positions()) for reader in readers) == [0, 1]


def test_a_consumer_that_has_left_cannot_become_ready(calm: wt.Cluster) -> None:
    calm.create_topic("news")
    reader = calm.group("readers", ["news"]).consumer("reader")
    reader.wait_ready()
    reader.leave()
    with pytest.raises(BadValueError, match="consumer 'reader' is not running in a group"):
        reader.wait_ready()
