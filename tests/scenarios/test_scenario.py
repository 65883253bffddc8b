"""Scenarios: values that their parts reject, and conflicts between the parts."""

from typing import Any

import attrs
import pytest
from hypothesis import given

import wavetank as wt
from helpers.clusters import DISK_SETTINGS
from helpers.scenarios import DURATION_S, scenarios, small

WORK = wt.load.ConstantService("1ms")


def group(**changes: Any) -> wt.GroupPlan:
    return wt.GroupPlan(**{"name": "billing", "topics": ["orders"], "service": WORK} | changes)


def producer(**changes: Any) -> wt.ProducerPlan:
    parts = {"name": "shop", "topic": "orders", "arrivals": wt.load.Poisson(1)}
    return wt.ProducerPlan(**parts | changes)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: wt.network.ConstantLatency("x"), "delay = 'x': expected seconds"),
        (
            lambda: wt.network.UniformLatency("2ms", "1ms"),
            "low = '2ms': expected at most high = '1ms'",
        ),
        (
            lambda: wt.network.LognormalLatency(1, sigma="x"),
            "sigma = 'x': expected a number, zero or more",
        ),
        (
            lambda: wt.network.LognormalLatency(1, sigma=-1),
            "sigma = -1: expected a number, zero or more",
        ),
        (lambda: wt.ClusterPlan(True), "brokers = True: expected a whole number of 1 or more"),
        (lambda: wt.ClusterPlan("3"), "brokers = '3': expected a whole number of 1 or more"),
        (lambda: wt.ClusterPlan(10**6), "brokers = 1000000: expected at most 10000"),
        (lambda: wt.ClusterPlan(latency=5), "latency = 5: expected a model such as UniformLatency"),
        (
            lambda: wt.ClusterPlan(latency=wt.network.ConstantLatency),
            "latency = .*: expected a model",
        ),
        (lambda: wt.ClusterPlan(disk="1ms"), "disk = '1ms': expected a DiskModel"),
        (lambda: wt.ClusterPlan(settings=5), "settings = 5: expected a table of settings"),
        (
            lambda: wt.ClusterPlan(settings={"broker_session_timeout_ms": {}}),
            "broker_session_timeout_ms = {}: expected a string, a number, true or false",
        ),
        (lambda: wt.ClusterPlan(settings={3: 4}), "3 = 4: expected a string"),
        (lambda: small(warm_up="1500ms"), "warm_up = '1500ms': expected whole seconds"),
        (lambda: small(warm_up=-1), "warm_up = -1: expected zero or more"),
        (lambda: wt.TopicPlan(""), "name = '': expected a non-empty string"),
        (lambda: wt.TopicPlan(5), "name = 5: expected a non-empty string"),
        (lambda: wt.TopicPlan("a", 1.0), "partitions = 1.0: expected a whole number of 1 or more"),
        (lambda: wt.TopicPlan("a", 10**9), "partitions = 1000000000: expected at most 100000"),
        (
            lambda: wt.TopicPlan("a", replication_factor=0),
            "replication_factor = 0: expected a whole number of 1 or more",
        ),
        (
            lambda: wt.TopicPlan("a", min_insync_replicas=True),
            "min_insync_replicas = True: expected a whole number",
        ),
        (lambda: wt.ClusterPlan(racks="ab"), "racks = 'ab': expected a list of names"),
        (lambda: wt.TopicPlan("a", cleanup=3), "cleanup = 3: expected one of delete, compact, ack"),
        (lambda: wt.TopicPlan("a", retention=[]), r"retention = \[\]: expected seconds"),
        (lambda: wt.TopicPlan("a", retention_bytes=True), "retention_bytes = True: expected a who"),
        (
            lambda: wt.TopicPlan("a", retain_unconsumed=1),
            "retain_unconsumed = 1: expected true or false",
        ),
        (
            lambda: wt.TopicPlan("a", cleanup="compact", retention_bytes=5),
            "retention_bytes = 5: expected ",
        ),
        (lambda: producer(topic=None), "topic = None: expected a non-empty string"),
        (lambda: producer(arrivals=100), "arrivals = 100: expected a model such as Poisson"),
        (lambda: producer(keys=5), "keys = 5: expected a model such as UniformKeys"),
        (lambda: producer(sizes=5), "sizes = 5: expected a model such as FixedSize"),
        (lambda: producer(partitioner=len), "partitioner = .*: expected one of key, manual"),
        (lambda: producer(partition=1), "partition = 1: expected a partition if, and only if"),
        (
            lambda: producer(partitioner="manual"),
            "partition = None: expected a partition if, and only if",
        ),
        (lambda: producer(resolution=0), "resolution = 0: expected more than zero"),
        (lambda: group(topics="orders"), "topics = 'orders': expected a list of names"),
        (lambda: group(topics=[]), r"topics = \[\]: expected a list of names, at least one"),
        (lambda: group(topics=["a", 5]), r"topics = \['a', 5\]: expected a list of names"),
        (lambda: group(consumers=-1), "consumers = -1: expected a whole number of 0 or more"),
        (lambda: group(acks=None), "acks = None: expected true or false"),
        (lambda: group(static="no"), "static = 'no': expected true or false"),
        (lambda: group(service="2ms"), "service = '2ms': expected a model such as ConstantServ"),
        (lambda: group(handler="work"), "handler = 'work': expected module:function"),
        (lambda: group(handler=":work"), "handler = ':work': expected module:function"),
        (lambda: group(service=None), "group 'billing': expected a service"),
        (
            lambda: group(delivery="shared", assignor="sticky"),
            "assignor = 'sticky': expected none, as delivery is 'shared'",
        ),
        (lambda: wt.Objective(), "objective: expected at least one limit"),
        (lambda: wt.Objective(max_lag_records=1.5), "max_lag_records = 1.5: expected a whole"),
        (lambda: wt.Objective(no_lost_records=1), "no_lost_records = 1: expected true or false"),
        (lambda: small(name=""), "name = '': expected a non-empty string"),
        (lambda: small(duration="x"), "duration = 'x': expected seconds"),
        (lambda: small(topics=[]), r"topics = \[\]: expected at least one"),
        (lambda: small(topics="orders"), "topics = 'orders': expected a list of TopicPlan"),
        (lambda: small(topics=["orders"]), r"topics\[0\] = 'orders': expected a TopicPlan"),
        (lambda: small(cluster=3), "cluster = 3: expected a ClusterPlan"),
        (lambda: small(seed=True), "seed = True: expected a whole number"),
        (lambda: small(seed=2**63), "seed = 9223372036854775808: expected at most 92233720368547"),
        (lambda: small(description=None), "description = None: expected a string"),
    ],
)
def test_an_invalid_value_is_rejected(make: Any, text: str) -> None:
    with pytest.raises(wt.errors.BadValueError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: wt.TopicPlan("a", cleanup="compat"), "unknown cleanup 'compat': .* 'compact'"),
        (lambda: producer(partitioner="keys"), "unknown partitioner 'keys': .* 'key'"),
        (
            lambda: producer(settings={"linger": 5}),
            "unknown producer setting 'linger': .*linger_ms",
        ),
        (lambda: group(delivery="share"), "unknown delivery 'share': did you mean 'shared'"),
        (lambda: group(assignor="rnage"), "unknown assignor 'rnage': did you mean 'range'"),
        (lambda: group(start="last"), "unknown start 'last': did you mean 'latest'"),
        (lambda: small(engine="life"), "unknown engine 'life': did you mean 'live'"),
    ],
)
def test_an_unknown_name_is_rejected_with_a_suggestion(make: Any, text: str) -> None:
    with pytest.raises(wt.errors.UnknownNameError, match=text):
        make()


def test_settings_are_copied_with_tuples_instead_of_lists() -> None:
    settings: dict[str, Any] = {"partition_assignment_strategy": ["range"]}
    plan = group(settings=settings)
    settings.clear()
    assert plan.settings == {"partition_assignment_strategy": ("range",)}


def test_nodes_are_brokers_then_producers_then_consumers() -> None:
    scenario = small(producers=[producer(), producer(name="web", count=2)])
    assert scenario.nodes() == [
        *("broker-0", "broker-1", "shop", "web-0", "web-1"),
        *("billing-0", "billing-1", "billing-2", "audit-0"),
    ]
    assert scenario.producer_nodes() == ["shop", "web-0", "web-1"]
    assert scenario.consumer_nodes() == ["billing-0", "billing-1", "billing-2", "audit-0"]


def test_added_nodes_exist_only_after_their_time() -> None:
    scenario = small(
        groups=[group()],
        producers=[],
        timeline=[
            wt.actions.AddBroker(10, count=2),
            wt.actions.AddConsumers(20, group="billing"),
            wt.actions.AddConsumers(30, group="billing", count=2),
        ],
    )
    counts = {s: len(scenario.nodes(s * 1_000_000)) for s in (0, 10, 11, 21, 31)}
    assert counts == {0: 3, 10: 3, 11: 5, 21: 6, 31: 8}
    assert len(scenario.nodes()) == 8


def test_a_name_that_looks_like_a_pattern_still_matches_itself() -> None:
    scenario = small(producers=[producer(name="shop[0]"), producer(name="shop0")])
    assert scenario.matching("shop[0]") == ["shop[0]", "shop0"]


def problems(**changes: Any) -> list[tuple[str, str]]:
    return [(where, str(error)) for where, error in small(**changes).problems()]


def test_the_small_scenario_has_no_problems() -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("changes", "where", "text"),
    [
        ({"topics": [wt.TopicPlan("orders")] * 2}, "topics[1].name", "'orders': expected a unique"),
        ({"producers": [producer()] * 2}, "producers[1].name", "name = 'shop': expected a unique"),
        ({"groups": [group(consumers=0)] * 2}, "groups[1].name", "'billing': expected a unique"),
        (
            {"producers": [producer(name="broker-1")]},
            "producers[0].name",
            "expected a unique name, as a node 'broker-1' exists already",
        ),
        ({"producers": [producer(name="controller")]}, "producers[0].name", "a node 'controller'"),
        (
            {"producers": [producer(name="audit", count=2)]},
            "groups[1].name",
            "as a node 'audit-0' exists already",
        ),
        (
            {
                "producers": [producer(name="audit-1")],
                "timeline": [wt.actions.AddConsumers(5, group="audit")],
            },
            "groups[1].name",
            "as a node 'audit-1' exists already",
        ),
        ({"producers": [producer(topic="ordres")]}, "producers[0].topic", "did you mean 'orders'"),
        (
            {"producers": [producer(partitioner="manual", partition=4)]},
            "producers[0].partition",
            "partition = 4: expected less than 4",
        ),
        (
            {"groups": [group(topics=["orders", "x"])]},
            "groups[0].topics[1]",
            "unknown topic 'x': there is 'orders'",
        ),
        (
            {"topics": [wt.TopicPlan("orders", 4, replication_factor=3)]},
            "topics[0].replication_factor",
            "replication_factor = 3: expected at most 2, the number of brokers",
        ),
        (
            {"cluster": wt.ClusterPlan(storage="memory", disk=wt.DiskModel())},
            "cluster.disk",
            "expected storage = 'disk': nothing is on a disk",
        ),
        *(
            (
                {"cluster": wt.ClusterPlan(storage="memory", settings={name: value})},
                f"cluster.settings.{name}",
                "expected storage = 'disk': nothing is on a disk",
            )
            for name, value in DISK_SETTINGS.items()
        ),
        (
            {"cluster": wt.ClusterPlan(settings={"log.roll.ms": 604_800_000}), "engine": "live"},
            "cluster.settings.log.roll.ms",
            "expected storage = 'disk': nothing is on a disk",
        ),
        (
            {"cluster": wt.ClusterPlan(settings={"storage": "disk"})},
            "cluster.settings.storage",
            "expected storage in [cluster], not in settings",
        ),
        (
            {"cluster": wt.ClusterPlan(storage="disk", disk=wt.DiskModel()), "engine": "live"},
            "cluster.disk",
            "expected engine = 'simulated': a live run has the disks of this machine",
        ),
        ({"warm_up": "10m"}, "warm_up", "'10m': expected less than the duration"),
        (
            {"warm_up": 30, "objectives": [wt.Objective(max_lag=1, after="20s")]},
            "objectives[0].after",
            "after = '20s': expected at least the warm_up, 30, or none",
        ),
        (
            {"objectives": [wt.Objective("biling", max_lag=1)]},
            "objectives[0].group",
            "did you mean 'billing'?",
        ),
        (
            {"groups": [], "objectives": [wt.Objective("billing", max_lag=1)]},
            "objectives[0].group",
            "there is no group yet",
        ),
    ],
)
def test_a_conflict_between_parts_is_reported(
    changes: dict[str, Any], where: str, text: str
) -> None:
    ((path, error),) = problems(**changes)
    assert path == where
    assert text in error


@pytest.mark.parametrize(
    ("given", "engine", "storage"),
    [
        (None, "simulated", "disk"),
        (None, "live", "memory"),
        ("memory", "simulated", "memory"),
        ("disk", "live", "disk"),
    ],
)
def test_simulated_brokers_have_disks_by_default_and_live_ones_have_none(
    given: Any, engine: Any, storage: str
) -> None:
    scenario = small(cluster=wt.ClusterPlan(storage=given), engine=engine)
    assert scenario.storage == storage
    assert scenario.disk_nodes() == (["controller", "broker-0"] if storage == "disk" else [])


def test_a_manual_producer_may_use_a_partition_that_is_added_later() -> None:
    manual = producer(partitioner="manual", partition=4)
    more = wt.actions.AddPartitions(5, topic="orders", partitions=5)
    assert problems(producers=[manual], timeline=[more]) == []


def test_an_objective_for_all_groups_needs_no_group() -> None:
    assert problems(groups=[], objectives=[wt.Objective(max_lag=1)]) == []


@given(scenarios())
def test_random_scenarios_are_valid_until_their_topics_are_removed(scenario: wt.Scenario) -> None:
    assert list(scenario.problems()) == []
    lost = attrs.evolve(scenario, topics=[wt.TopicPlan("UNUSED")], duration=DURATION_S)
    users = len(scenario.producers) + sum(len(plan.topics) for plan in scenario.groups)
    users += sum(hasattr(action, "topic") for action in scenario.timeline)
    assert len([where for where, _ in lost.problems() if "topic" in where]) == users
