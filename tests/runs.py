"""Random runs with trouble of all kinds, and what the counters say of them."""

from functools import cache

import delivery
import pyarrow as pa
import storm

import wavetank as wt
from wavetank.model.counters import Counters
from wavetank.model.summary import Summary

RUNS = (
    ("storm", 0), ("storm", 2), ("exclusive", 0), ("shared", 0), ("key_shared", 1),
    ("broadcast", 1), ("broadcast", 3), ("several", 0), ("several", 1), ("short-lived", 0),
    ("short-lived", 1),
)  # fmt: skip


@cache
def run(kind: str, seed: int) -> tuple[pa.Table, list[wt.Event], int]:
    """The events of a run, and when it ended."""
    if kind == "storm":
        cluster = storm.Storm(seed, rough=True, steps=8).run()
    elif kind == "several":
        cluster = several_groups(seed)
    elif kind == "short-lived":
        cluster = short_lived(seed)
    else:
        cluster = delivery.Delivering(seed, kind).run()
    now_us = cluster.system.now_us
    with cluster:
        pass
    return cluster.events.table(), list(cluster.events), now_us


def broadcasts(kind: str) -> list[str]:
    """The groups of such a run in which each subscriber gets everything."""
    return {"broadcast": ["readers"], "short-lived": ["fans"]}.get(kind, [])


def counted(kind: str, seed: int) -> Summary:
    """What the counters make of a run."""
    table, _, now_us = run(kind, seed)
    counters = Counters(broadcasts(kind))
    for batch in table.combine_chunks().to_batches():
        counters.add(batch)
    return counters.summary(now_us)


def several_groups(seed: int) -> wt.Cluster:
    """Groups that begin at different times and places, consumers and a broker that crash."""
    cluster = wt.Cluster.simulated(seed, brokers=2, network=wt.uniform("100us", "3ms"))
    cluster.create_topic("orders", partitions=3)
    cluster.create_topic("bills", retention="3s", keep_owed=False)
    options = {**storm.QUICK, "enable_auto_commit": bool(seed % 2)}
    service = wt.ExponentialService("2ms", "2ms")
    for topic, rate in (("orders", 100), ("bills", 60)):
        cluster.producer(f"to-{topic}", load=wt.Load(topic, wt.Poisson(rate)))
    cluster.group("early", ["orders", "bills"], **options).consumer("early-0", service=service)
    slow = cluster.group("slow", ["bills"], **options)
    slow.consumer("slow-0", service=wt.ExponentialService("30ms"))
    cluster.run(for_="4s")
    late = cluster.group("late", ["orders"], start="latest", **options)
    consumers = [late.consumer(f"late-{n}", service=service) for n in range(2)]
    crew = cluster.group(
        "crew", ["orders"], delivery="shared", start="unconsumed", **delivery.QUICK
    )
    crew.consumer("crew-0", service=wt.ExponentialService("12ms"))
    cluster.run(for_="3s")
    cluster.system.crash("late-0")
    cluster.run(for_="2s")
    cluster.system.crash("broker-1")
    cluster.run(for_="4s")
    cluster.system.restart("broker-1")
    cluster.system.restart("late-0")
    cluster.run(for_="9s")
    consumers[1].close()
    cluster.run(for_="5500ms")
    return cluster


def short_lived(seed: int) -> wt.Cluster:
    """Nothing lasts: subscribers go and come back too late, a topic is deleted and made again."""
    cluster = wt.Cluster.simulated(seed, brokers=2, network=wt.uniform("100us", "3ms"))
    cluster.create_topic("orders", partitions=2, retention="2s", keep_owed=False)
    cluster.create_topic("bills")
    load = [wt.Load(topic, wt.Poisson(50)) for topic in ("orders", "bills")]
    producers = [cluster.producer(f"to-{each.topic}", load=each) for each in load]
    brief = {**delivery.QUICK, "subscriber_ttl_ms": 3_000}
    service = wt.ExponentialService("15ms")
    start = "latest" if seed % 2 else "earliest"
    fans = cluster.group("fans", ["orders", "bills"], delivery="broadcast", start=start, **brief)
    crew = cluster.group("crew", ["orders"], delivery="shared", **brief)
    ordered = cluster.group(
        "ordered", ["orders", "bills"], start=start, **storm.QUICK, subscriber_ttl_ms=3_000
    )
    lives = [
        group.consumer(f"{name}-{number}", service=service)
        for group, name in ((fans, "fan"), (crew, "hand"), (ordered, "reader"))
        for number in range(2)
    ]
    cluster.run(for_="4500ms")
    for consumer in lives[::2] + lives[3:4]:
        cluster.system.crash(consumer.name)
    cluster.run(for_="7200ms")
    for consumer in lives[::2]:
        cluster.system.restart(consumer.name)
    cluster.run(for_="3100ms")
    producers[1].close()
    cluster.delete_topic("bills")
    cluster.run(for_="3s")
    cluster.create_topic("bills")
    cluster.producer("again", load=load[1])
    cluster.run(for_="6s")
    return cluster
