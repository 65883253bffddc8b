"""Random runs with many kinds of faults, and the summaries that the counters make of them."""

from functools import cache
from typing import NamedTuple

import attrs
import pyarrow as pa

import helpers.share_storms as share_storms
import helpers.storms as storms
import wavetank as wt
from helpers.short_runs import SHORT_RUN_SETTINGS, quick
from wavetank.model.summary.counters import Counters
from wavetank.model.summary.summary import Summary
from wavetank.scenarios.runner import Runner

RUNS = (
    ("storm", 0), ("storm", 2), ("exclusive", 0), ("shared", 0), ("key_shared", 1),
    ("broadcast", 1), ("broadcast", 3), ("several", 0), ("several", 1), ("short-lived", 0),
    ("short-lived", 1),
)  # fmt: skip
NAME_COLUMNS = ("node", "actor", "topic", "group", "member", "consumer", "producer", "peer")


class RandomRun(NamedTuple):
    """The events of a run."""

    table: pa.Table
    events: list[wt.Event]
    end_us: int
    """When the run ended."""


@cache
def run(kind: str, seed: int) -> RandomRun:
    """Run a storm, a kind of delivery, or one of the scenarios below."""
    if kind == "storm":
        cluster = storms.Storm(seed, rough=True, steps=8).run()
    elif kind == "several":
        cluster = several_groups(seed)
    elif kind == "short-lived":
        cluster = short_lived(seed)
    elif kind == "behind":
        cluster = falling_behind(seed)
    else:
        cluster = share_storms.Delivering(seed, kind).run()
    end_us = cluster.system.now_us
    with cluster:
        pass
    return RandomRun(cluster.events.table(), list(cluster.events), end_us)


def broadcasts(kind: str) -> list[str]:
    """The broadcast groups of a kind of run."""
    return {"broadcast": ["readers"], "short-lived": ["fans"]}.get(kind, [])


def counted(kind: str, seed: int) -> Summary:
    """The summary that the counters make of a run."""
    table, _, end_us = run(kind, seed)
    counters = Counters(broadcasts(kind))
    for batch in table.combine_chunks().to_batches():
        counters.add(batch)
    return counters.summary(end_us)


@cache
def merged(*runs: tuple[str, int]) -> list[wt.Event]:
    """The events of several runs as one log, ordered by time, with the run before each name."""
    found = []
    for kind, seed in runs:
        prefix = f"{kind}{seed}."
        for each in run(kind, seed).events:
            names = {
                name: prefix + value
                for name in NAME_COLUMNS
                if (value := getattr(each, name)) is not None
            }
            found.append(attrs.evolve(each, **names))
    in_order = sorted(found, key=lambda each: each.time_us)
    return [attrs.evolve(each, sequence=number) for number, each in enumerate(in_order)]


def falling_behind(seed: int) -> wt.Cluster:
    """A group that cannot keep up, with a crash; later the load falls."""
    billing = wt.GroupPlan(
        "billing",
        ["orders"],
        consumers=3,
        service=wt.load.ExponentialService("18ms"),
        settings=SHORT_RUN_SETTINGS,
    )
    timeline = [wt.actions.Crash(4, "billing-0", for_=4), wt.actions.Rate(14, "shop-*", factor=0.1)]
    plan = wt.ClusterPlan(2, storage="memory")
    scenario = quick(duration=25, cluster=plan, groups=[billing], timeline=timeline, seed=seed)
    return Runner(scenario).run()


def several_groups(seed: int) -> wt.Cluster:
    """Groups that start at different times and offsets; consumers and a broker crash."""
    cluster = wt.Cluster.simulated(
        seed, brokers=2, storage="memory", network=wt.network.uniform("100us", "3ms")
    )
    cluster.create_topic("orders", partitions=3)
    cluster.create_topic("bills", retention="3s", retain_unconsumed=False)
    options = {**storms.STORM_SETTINGS, "enable_auto_commit": bool(seed % 2)}
    service = wt.load.ExponentialService("2ms", "2ms")
    for topic, rate in (("orders", 100), ("bills", 60)):
        cluster.producer(f"to-{topic}", load=wt.load.Load(topic, wt.load.Poisson(rate)))
    cluster.group("early", ["orders", "bills"], **options).consumer("early-0", service=service)
    slow = cluster.group("slow", ["bills"], **options)
    slow.consumer("slow-0", service=wt.load.ExponentialService("30ms"))
    cluster.run(for_="4s")
    late = cluster.group("late", ["orders"], start="latest", **options)
    consumers = [late.consumer(f"late-{n}", service=service) for n in range(2)]
    crew = cluster.group(
        "crew",
        ["orders"],
        delivery="shared",
        start="unconsumed",
        **share_storms.SHARE_STORM_SETTINGS,
    )
    crew.consumer("crew-0", service=wt.load.ExponentialService("12ms"))
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
    """Subscribers come back after their time to live; a topic is deleted and created again."""
    cluster = wt.Cluster.simulated(
        seed, brokers=2, storage="memory", network=wt.network.uniform("100us", "3ms")
    )
    cluster.create_topic("orders", partitions=2, retention="2s", retain_unconsumed=False)
    cluster.create_topic("bills")
    load = [wt.load.Load(topic, wt.load.Poisson(50)) for topic in ("orders", "bills")]
    producers = [cluster.producer(f"to-{each.topic}", load=each) for each in load]
    brief = {**share_storms.SHARE_STORM_SETTINGS, "subscriber_ttl_ms": 3_000}
    service = wt.load.ExponentialService("15ms")
    start = "latest" if seed % 2 else "earliest"
    fans = cluster.group("fans", ["orders", "bills"], delivery="broadcast", start=start, **brief)
    crew = cluster.group("crew", ["orders"], delivery="shared", **brief)
    ordered = cluster.group(
        "ordered",
        ["orders", "bills"],
        start=start,
        **storms.STORM_SETTINGS,
        subscriber_ttl_ms=3_000,
    )
    consumers = [
        group.consumer(f"{name}-{number}", service=service)
        for group, name in ((fans, "fan"), (crew, "hand"), (ordered, "reader"))
        for number in range(2)
    ]
    cluster.run(for_="4500ms")
    for consumer in consumers[::2] + consumers[3:4]:
        cluster.system.crash(consumer.name)
    cluster.run(for_="7200ms")
    for consumer in consumers[::2]:
        cluster.system.restart(consumer.name)
    cluster.run(for_="3100ms")
    producers[1].close()
    cluster.delete_topic("bills")
    cluster.run(for_="3s")
    cluster.create_topic("bills")
    cluster.producer("again", load=load[1])
    cluster.run(for_="6s")
    return cluster
