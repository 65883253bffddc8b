"""A live cluster, on threads: handlers process records while a producer sends them."""

import wavetank as wt

seen = []


def handle(records: wt.Records) -> None:
    """Collect the values; each consumer calls this on its own thread, once per poll."""
    seen.extend(record.value for record in records)


with wt.Cluster.live(brokers=2) as cluster:
    cluster.create_topic("readings", partitions=4, type=int)
    meters = cluster.group("meters", topics=["readings"], enable_auto_commit=False)
    for name in ("north", "south"):
        meters.consumer(name, handler=handle)
    probe = cluster.producer("probe", partitioner="manual")
    receipts = [
        probe.send_many("readings", range(first, 1_000, 4), partition=first) for first in range(4)
    ]
    for receipt in receipts:
        receipt.get()
    cluster.run_until(lambda: sum(meters.lag().values()) == 0, timeout=30)
    print(f"{len(seen)} readings handled, sum {sum(seen)}, lag {sum(meters.lag().values())}")
