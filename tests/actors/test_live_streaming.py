"""The live engine under load: every record is delivered once."""

from collections import Counter
from typing import Any

import wavetank as wt

RECORDS = 100_000


def test_100_000_records_are_delivered_once_while_a_consumer_joins_and_another_leaves() -> None:
    with wt.Cluster.live(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=4)
        group = cluster.group(
            "g", ["orders"], assignor="cooperative-sticky", enable_auto_commit=False,
            heartbeat_interval_ms=50,
        )  # fmt: skip
        got: dict[str, list[Any]] = {name: [] for name in "abcde"}

        def reader(name: str) -> Any:
            return lambda records: got[name].extend(
                (r.producer, r.partition, r.sequence) for r in records
            )

        for name in "abcd":
            group.consumer(name, handler=reader(name))
        group.assignment()
        each = RECORDS // 4
        batch = [f"value-{number}" for number in range(each)]
        producers = [cluster.producer(f"p{n}", "manual", batch_size=50_000) for n in range(4)]
        half = each // 2
        for producer, partition in zip(producers, range(4), strict=True):
            for value in batch[:half]:
                last = producer.send("orders", value, partition=partition)
        last.get(timeout=60)
        group.consumer("e", handler=reader("e"))
        group.consumers["a"].close()
        futures = []
        for producer, partition in zip(producers, range(4), strict=True):
            for value in batch[half:]:
                last = producer.send("orders", value, partition=partition)
            futures.append(last)
        for future in futures:
            future.get(timeout=60)
        cluster.run_until(lambda: sum(map(len, got.values())) >= RECORDS, timeout=60)
        cluster.run_until(lambda: sum(group.lag().values()) == 0, timeout=60)
        assert not cluster.events.of("failed", "unhandled", "fenced")
        assert [event.member for event in cluster.events.of("member_left")] == ["a"]
    counts = Counter(record for records in got.values() for record in records)
    assert len(counts) == RECORDS
    assert set(counts.values()) == {1}
