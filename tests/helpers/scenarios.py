"""Scenarios for tests: a small fixed one, and Hypothesis strategies for random valid ones."""

from typing import Any

import attrs
from hypothesis import strategies as st

import wavetank as wt
from wavetank.strategies.arrivals import Trace

DURATION_S = 600

lengths = st.one_of(
    st.integers(0, 100),
    st.floats(0, 100),
    st.sampled_from(["250ms", "45s", "1m 30s", "0.5h"]),
)
moments = st.one_of(st.integers(0, DURATION_S), st.sampled_from(["0s", "90s", "10m"]))
rates = st.one_of(st.just(0), st.integers(1, 10_000), st.floats(0.01, 1e6))
shares = st.floats(0, 1)
sigmas = st.floats(0, 3)
factors = st.floats(0.01, 100)
names = st.from_regex(r"[a-z][a-z0-9_.]{0,8}", fullmatch=True)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value or `None`."""
    return st.none() | values


traces = st.lists(st.tuples(st.floats(0, DURATION_S), st.integers(0, 50)), max_size=5).map(
    wt.load.trace
)
arrivals: st.SearchStrategy[Any] = st.one_of(
    st.builds(wt.load.Constant, rates),
    st.builds(wt.load.Poisson, rates),
    st.builds(wt.load.Bursts, rates, rates, st.integers(10, 60), st.integers(0, 10)),
    rates.flatmap(
        lambda low: st.builds(wt.load.Daily, st.just(low), st.just(low * 2 + 1), lengths)
    ),
    st.builds(Trace.scaled, traces, st.floats(0, 10)),
)
keys: st.SearchStrategy[Any] = st.one_of(
    st.builds(wt.load.NoKeys),
    st.builds(wt.load.OneKey, st.integers(0, 99)),
    st.builds(wt.load.UniformKeys, st.integers(1, 10_000)),
    st.builds(wt.load.ZipfKeys, st.integers(1, 10_000), sigmas),
)
sizes: st.SearchStrategy[Any] = st.one_of(
    st.builds(wt.load.FixedSize, st.integers(1, 10_000)),
    st.builds(wt.load.LognormalSizes, st.integers(1, 10_000), sigmas),
)
services: st.SearchStrategy[Any] = st.one_of(
    st.builds(wt.load.ConstantService, lengths, lengths),
    st.builds(wt.load.ExponentialService, lengths, lengths),
    st.builds(wt.load.LognormalService, lengths, lengths, sigmas),
)
latencies: st.SearchStrategy[Any] = st.one_of(
    st.builds(wt.network.ConstantLatency, lengths),
    st.builds(wt.network.UniformLatency, st.just("1ms"), st.sampled_from([1, "2ms", 0.5])),
    st.builds(wt.network.LognormalLatency, lengths, sigmas),
)
disks = st.builds(
    wt.DiskModel,
    lengths,
    lengths,
    maybe(st.integers(1, 10**9)),
    maybe(st.integers(1, 10**12)),
    lengths,
)
cluster_settings = st.fixed_dictionaries(
    {}, optional={"broker_session_timeout_ms": st.integers(5_000, 20_000)}
)
producer_settings = st.fixed_dictionaries(
    {},
    optional={
        "acks": st.sampled_from(["all", 1]),
        "linger.ms": st.integers(0, 100) | st.just("7"),
        "bootstrap.servers": st.just("localhost:9092"),
    },
)
consumer_settings = st.fixed_dictionaries(
    {},
    optional={
        "max_poll_records": st.integers(1, 1_000),
        "enable.auto.commit": st.booleans(),
        "partition_assignment_strategy": st.just(["range", "sticky"]),
    },
)


def small(**changes: Any) -> wt.Scenario:
    """A small scenario without faults: two brokers, two producers, two groups."""
    parts: dict[str, Any] = {
        "name": "small",
        "duration": DURATION_S,
        "cluster": wt.ClusterPlan(brokers=2),
        "topics": [wt.TopicPlan("orders", partitions=4)],
        "producers": [wt.ProducerPlan("shop", "orders", wt.load.Poisson(100), count=2)],
        "groups": [
            wt.GroupPlan(
                "billing", ["orders"], consumers=3, service=wt.load.ConstantService("1ms")
            ),
            wt.GroupPlan(
                "audit", ["orders"], delivery="shared", service=wt.load.ConstantService("1ms")
            ),
        ],
    }
    return wt.Scenario(**parts | changes)


@st.composite
def cluster_plans(draw: st.DrawFn) -> wt.ClusterPlan:
    """Brokers, in memory or on disks."""
    storage = draw(st.sampled_from(["memory", "disk"]))
    disk = draw(maybe(disks)) if storage == "disk" else None
    brokers = draw(st.integers(1, 3))
    settings, racks = draw(cluster_settings), draw(maybe(st.just(["left", "right"])))
    return wt.ClusterPlan(brokers, draw(latencies), storage, disk, settings, racks=racks)


@st.composite
def topic_plans(draw: st.DrawFn, name: str) -> wt.TopicPlan:
    """A topic of this name."""
    cleanup = draw(st.sampled_from(["delete", "compact", "acknowledged"]))
    return wt.TopicPlan(
        name,
        draw(st.integers(1, 12)),
        cleanup,
        draw(maybe(lengths)),
        draw(maybe(st.integers(0, 10_000))) if cleanup == "delete" else None,
        draw(st.booleans()) if cleanup != "acknowledged" else True,
        min_insync_replicas=draw(maybe(st.integers(1, 2))),
    )


@st.composite
def producer_plans(draw: st.DrawFn, name: str, topics: list[wt.TopicPlan]) -> wt.ProducerPlan:
    """Producers of this name that send to one of the topics."""
    topic = draw(st.sampled_from(topics))
    partitioner = draw(st.sampled_from(["key", "random", "sticky", "manual"]))
    return wt.ProducerPlan(
        name,
        topic.name,
        draw(arrivals),
        draw(st.integers(1, 3)),
        draw(keys),
        draw(sizes),
        partitioner,
        draw(st.integers(0, topic.partitions - 1)) if partitioner == "manual" else None,
        draw(st.sampled_from(["100ms", 1, 0.25])),
        draw(producer_settings),
    )


@st.composite
def group_plans(draw: st.DrawFn, name: str, topics: list[wt.TopicPlan]) -> wt.GroupPlan:
    """A group of this name that reads some of the topics."""
    delivery = draw(st.sampled_from(["exclusive", "key_shared", "shared", "broadcast"]))
    assignors = ["range", "roundrobin", "sticky", "cooperative-sticky"]
    return wt.GroupPlan(
        name,
        [topic.name for topic in draw(st.lists(st.sampled_from(topics), min_size=1, max_size=2))],
        draw(st.integers(0, 4)),
        delivery,
        draw(st.booleans()),
        draw(st.sampled_from(assignors)) if delivery == "exclusive" else "range",
        draw(st.sampled_from(["earliest", "latest", "unconsumed"])),
        draw(st.booleans()),
        draw(services),
        draw(maybe(st.just("shop.work:bill"))),
        draw(consumer_settings),
    )


def node_actions(scenario: wt.Scenario) -> st.SearchStrategy[Any]:
    """Actions on the initial nodes and links of a scenario."""
    nodes = st.sampled_from(scenario.nodes())
    clients = scenario.producer_nodes() + scenario.consumer_nodes()
    temporary = {"stagger": lengths, "for_": maybe(lengths)}
    link = {
        "between": st.lists(nodes, min_size=2, max_size=2, unique=True).map(tuple),
        "one_way": st.booleans(),
    }
    fault = link | {"for_": maybe(lengths)}
    found = [
        st.builds(wt.actions.Crash, moments, nodes, **temporary),
        st.builds(wt.actions.Restart, moments, nodes, stagger=lengths),
        st.builds(wt.actions.Pause, moments, st.just("broker-*"), **temporary),
        st.builds(wt.actions.Resume, moments, nodes, stagger=lengths),
        st.builds(wt.actions.Skew, moments, nodes, offset=lengths | st.just("-2s")),
    ]
    if scenario.disk_nodes():
        disk_nodes = st.sampled_from(scenario.disk_nodes())
        found += [
            st.builds(wt.actions.PowerLoss, moments, disk_nodes, **temporary),
            st.builds(wt.actions.SlowDisk, moments, disk_nodes, factor=factors, **temporary),
            st.builds(wt.actions.FillDisk, moments, disk_nodes, **temporary),
            st.builds(wt.actions.FailWrites, moments, disk_nodes, **temporary),
            st.builds(wt.actions.FailSyncs, moments, disk_nodes, **temporary),
            st.builds(wt.actions.FlipBit, moments, disk_nodes, file=names),
            st.builds(wt.actions.HealDisk, moments, disk_nodes, stagger=lengths),
        ]
    if len(scenario.nodes()) > 1:
        found += [
            st.builds(wt.actions.Cut, moments, hold=st.booleans(), **fault),
            st.builds(wt.actions.Heal, moments, **link),
            st.builds(wt.actions.Delay, moments, by=lengths, **fault),
            st.builds(wt.actions.Disturb, moments, drop=shares, reorder=shares, **fault),
        ]
    if clients:
        found += [
            st.builds(wt.actions.Stop, moments, st.sampled_from(clients), **temporary),
            st.builds(wt.actions.Start, moments, st.sampled_from(clients), stagger=lengths),
        ]
    if scenario.consumer_nodes():
        consumers = st.sampled_from(scenario.consumer_nodes())
        found.append(st.builds(wt.actions.Slow, moments, consumers, factor=factors, **temporary))
    # Only rates that stay in the allowed range when divided by a hundred are scaled.
    steady = [
        plan.name
        for plan in scenario.producers
        if isinstance(plan.arrivals, wt.load.Constant) and plan.count == 1
    ]
    if steady:
        producers = st.sampled_from(steady)
        found.append(st.builds(wt.actions.Rate, moments, producers, factor=factors, **temporary))
    return st.one_of(found)


def other_actions(scenario: wt.Scenario) -> st.SearchStrategy[Any]:
    """Actions on the topics and groups of a scenario."""
    topics = st.sampled_from([plan.name for plan in scenario.topics])
    found = [
        st.builds(wt.actions.AddBroker, moments, count=st.integers(1, 2)),
        st.builds(wt.actions.ElectPreferred, moments),
        st.builds(
            wt.actions.Reassign,
            moments,
            topic=topics,
            partition=st.just(0),
            brokers=st.just(["broker-0"]),
            throttle=maybe(st.integers(1, 10_000)),
        ),
        st.builds(wt.actions.Replay, moments, topic=topics, since=lengths),
        st.builds(wt.actions.Replay, moments, topic=topics, offset=st.integers(0, 100)),
    ]
    exclusive = [plan.name for plan in scenario.groups if plan.delivery == "exclusive"]
    if exclusive:
        assignors = st.sampled_from(["range", "sticky"])
        group = st.sampled_from(exclusive)
        found += [
            st.builds(wt.actions.AddConsumers, moments, group=group, count=st.integers(1, 3)),
            st.builds(wt.actions.SwitchAssignor, moments, group=group, assignor=assignors),
        ]
    return st.one_of(found)


@st.composite
def objectives(draw: st.DrawFn, groups: list[str]) -> wt.Objective:
    """An objective for all groups or for one."""
    return wt.Objective(
        draw(st.sampled_from(["*", *groups])),
        draw(maybe(st.integers(0, 1_000))),
        draw(maybe(lengths)),
        draw(maybe(lengths)),
        True,
        draw(maybe(lengths)),
        draw(lengths),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> wt.Scenario:
    """A valid scenario."""
    some = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    topics = [draw(topic_plans(name)) for name in some]
    producers = draw(st.integers(0, 2))
    groups = draw(st.integers(0, 2))
    scenario = wt.Scenario(
        name=draw(names),
        duration=DURATION_S,
        topics=topics,
        seed=draw(st.integers(-(2**63), 2**63 - 1)),
        description=draw(st.text(max_size=20)),
        cluster=draw(cluster_plans()),
        producers=[draw(producer_plans(f"producer{i}", topics)) for i in range(producers)],
        groups=[draw(group_plans(f"group{i}", topics)) for i in range(groups)],
        objectives=draw(st.lists(objectives([f"group{i}" for i in range(groups)]), max_size=2)),
        observe=draw(maybe(st.sampled_from(["250ms", 10, 0.5]))),
    )
    actions = st.one_of(node_actions(scenario), other_actions(scenario))
    if draw(st.booleans()):
        more = wt.actions.AddPartitions(
            1, topic=topics[0].name, partitions=topics[0].partitions + 1
        )
        return attrs.evolve(scenario, timeline=[more, *draw(st.lists(actions, max_size=4))])
    return attrs.evolve(scenario, timeline=draw(st.lists(actions, max_size=4)))
