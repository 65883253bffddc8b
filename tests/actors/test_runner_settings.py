"""Every setting of a scenario has an effect: a base, a change, and a figure that differs."""

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import pytest
from running import QUICK, at, look, only

import wavetank as wt
from wavetank.actors.runner import Run, run

SHOP = wt.ProducerPlan("shop", "orders", wt.Poisson(200), keys=wt.UniformKeys(100))
BILLING = wt.GroupPlan(
    "billing", ["orders"], consumers=2, service=wt.ConstantService("2ms"), settings=QUICK
)
BASE = wt.Scenario(
    "base", 8, [wt.TopicPlan("orders", 4)],
    cluster=wt.ClusterPlan(2), producers=[SHOP], groups=[BILLING],
)  # fmt: skip


def with_(part: str, **changes: Any) -> wt.Scenario:
    """The base with one of its parts changed."""
    old = getattr(BASE, part)
    if isinstance(old, tuple):
        return attrs.evolve(BASE, **{part: [attrs.evolve(old[0], **changes)]})
    return attrs.evolve(BASE, **{part: attrs.evolve(old, **changes)})


def cluster(**changes: Any) -> wt.Scenario:
    return with_("cluster", **changes)


def topic(**changes: Any) -> wt.Scenario:
    return with_("topics", **changes)


def producer(**changes: Any) -> wt.Scenario:
    return with_("producers", **changes)


def group(**changes: Any) -> wt.Scenario:
    return with_("groups", **changes)


# Figures: each of a scenario that is run


def records(scenario: wt.Scenario) -> float:
    return run(scenario).summary.appended.records.total


def size(scenario: wt.Scenario) -> float:
    """Bytes for each record."""
    traffic = run(scenario).summary.appended
    return traffic.bytes.total / traffic.records.total


def kinds(*names: str) -> Callable[[wt.Scenario], float]:
    """How many events there are of these kinds."""

    def count(scenario: wt.Scenario) -> float:
        return sum(run(scenario).summary.kinds.get(name, 0) for name in names)

    return count


def billed(get: Callable[[Any], Any]) -> Callable[[wt.Scenario], float]:
    """A figure of the group."""
    return lambda scenario: float(get(run(scenario).summary.groups["billing"]))


def partitions(scenario: wt.Scenario) -> float:
    """To how many partitions records went."""
    return len({e.partition for e in only(look(scenario)[1], "appended")})


def hottest(scenario: wt.Scenario) -> float:
    """The share of records that went to the busiest partition."""
    counts: dict[int | None, int] = {}
    for event in only(look(scenario)[1], "appended"):
        counts[event.partition] = counts.get(event.partition, 0) + (event.count or 0)
    return max(counts.values()) / sum(counts.values())


def burst(scenario: wt.Scenario) -> float:
    """The most records of a second by the fewest."""
    series = run(scenario).summary.appended.records.series[1:7]
    return max(series) / max(1, min(series))


def nodes(scenario: wt.Scenario) -> float:
    return len({e.node for e in look(scenario)[1]})


def first_assigned(scenario: wt.Scenario) -> float:
    """When a consumer first had a partition."""
    return at(only(look(scenario)[1], "assigned")[0])


def owners(scenario: wt.Scenario) -> float:
    """How many consumers got records of one partition at last."""
    late = [e for e in only(look(scenario)[1], "delivered", partition=0) if at(e) > 4]
    return len({e.node for e in late})


def workers(scenario: wt.Scenario) -> float:
    """How many consumers got records."""
    return len({e.node for e in only(look(scenario)[1], "delivered")})


def all_delivered(scenario: wt.Scenario) -> float:
    return run(scenario).summary.delivered.records.total


def fewer(figure: Callable[[wt.Scenario], float]) -> Callable[[wt.Scenario], float]:
    """The figure, the other way round."""
    return lambda scenario: -figure(scenario)


latency = billed(lambda g: g.delivery_latency.p50_us)
tail = billed(lambda g: g.delivery_latency.max_us)
delivered = billed(lambda g: g.delivered.records.total)
rebalances = billed(lambda g: g.rebalances.count)

CHECKS = {"settings": {"log_retention_check_interval_ms": 200}}


def cleaned(**changes: Any) -> wt.Scenario:
    """The base with a topic that is cleaned often."""
    return attrs.evolve(topic(**changes), cluster=wt.ClusterPlan(2, **CHECKS))


def crashing(scenario: wt.Scenario) -> wt.Scenario:
    return attrs.evolve(scenario, timeline=[wt.Crash(4, "billing-0", for_="500ms")])


def pausing(scenario: wt.Scenario) -> wt.Scenario:
    return attrs.evolve(scenario, timeline=[wt.Pause(4, "broker-0", for_=2)])


def kept(**changes: Any) -> wt.Scenario:
    """A topic of which records are still owed when their time is over."""
    return attrs.evolve(STOPPED, topics=[wt.TopicPlan("orders", 4, retention="1s", **changes)])


STOPPED = attrs.evolve(
    group(service=wt.ConstantService("100ms")), cluster=wt.ClusterPlan(2, **CHECKS)
)


ALERT = {"broker_session_timeout_ms": 500, "broker_heartbeat_interval_ms": 100}
WAIT = {"fetch_min_bytes": 5_000, "fetch_max_wait_ms": 2_000}
ONE_KEY = producer(keys=wt.OneKey())
JUST_RANDOM = {"partitioner.class": "random"}

Case: TypeAlias = tuple[Callable[[wt.Scenario], float], wt.Scenario, wt.Scenario]
CASES: dict[str, Case] = {
    "brokers": (nodes, cluster(brokers=1), BASE),
    "constant latency": (latency, BASE, cluster(latency=wt.ConstantLatency("20ms"))),
    "uniform latency": (latency, BASE, cluster(latency=wt.UniformLatency("10ms", "30ms"))),
    "lognormal latency": (latency, BASE, cluster(latency=wt.LognormalLatency("20ms"))),
    "its sigma": (
        tail,
        cluster(latency=wt.LognormalLatency("20ms", 0)),
        cluster(latency=wt.LognormalLatency("20ms", 2)),
    ),
    "disk": (fewer(records), BASE, cluster(disk="1s")),
    "disk as a setting": (fewer(records), BASE, cluster(settings={"disk_write_us": 1_000_000})),
    "cluster settings": (
        first_assigned,
        BASE,
        cluster(settings={"group_initial_rebalance_delay_ms": 3_000}),
    ),
    "broker settings": (kinds("broker_lost"), pausing(BASE), pausing(cluster(settings=ALERT))),
    "partitions": (partitions, topic(partitions=1), BASE),
    "compact": (kinds("removed"), cleaned(), cleaned(cleanup="compact")),
    "acknowledged": (kinds("removed"), cleaned(), cleaned(cleanup="acknowledged")),
    "retention": (kinds("removed"), cleaned(), cleaned(retention="2s", keep_owed=False)),
    "retention bytes": (kinds("removed"), cleaned(), cleaned(retention_bytes=1_000)),
    "keep owed": (kinds("removed"), kept(), kept(keep_owed=False)),
    "count": (records, BASE, producer(count=3)),
    "poisson": (records, BASE, producer(arrivals=wt.Poisson(400))),
    "constant": (records, BASE, producer(arrivals=wt.Constant(400))),
    "bursts": (burst, BASE, producer(arrivals=wt.Bursts(50, 1_000, every="4s", length="1s"))),
    "daily": (records, producer(arrivals=wt.Daily(1, 200, peak_at="12h")), BASE),
    "trace": (records, producer(arrivals=wt.trace([(1.0, 5), (2.0, 5)])), BASE),
    "one key": (hottest, BASE, ONE_KEY),
    "uniform keys": (hottest, BASE, producer(keys=wt.UniformKeys(2))),
    "zipf keys": (hottest, BASE, producer(keys=wt.ZipfKeys(100, 2))),
    "no keys": (partitions, ONE_KEY, producer(keys=wt.NoKeys())),
    "fixed size": (size, BASE, producer(sizes=wt.FixedSize(500))),
    "lognormal sizes": (size, BASE, producer(sizes=wt.LognormalSizes(500))),
    "manual": (hottest, BASE, producer(partitioner="manual", partition=2)),
    "random": (partitions, ONE_KEY, producer(keys=wt.OneKey(), partitioner="random")),
    "sticky": (
        fewer(kinds("appended")),
        producer(keys=wt.NoKeys(), partitioner="random"),
        producer(keys=wt.NoKeys(), partitioner="sticky"),
    ),
    "resolution": (fewer(kinds("appended")), BASE, producer(resolution="1s")),
    "producer settings": (kinds("appended"), BASE, producer(settings={"batch.size": 200})),
    "partitioner setting": (
        partitions,
        ONE_KEY,
        producer(keys=wt.OneKey(), settings=JUST_RANDOM),
    ),
    "consumers": (workers, group(consumers=1), BASE),
    "no consumers": (all_delivered, group(consumers=0), BASE),
    "broadcast": (delivered, BASE, group(delivery="broadcast")),
    "shared": (owners, BASE, group(delivery="shared")),
    "key shared": (owners, BASE, group(delivery="key_shared")),
    "acks": (fewer(kinds("offset_reset")), BASE, group(acks=True)),
    "assignor": (fewer(kinds("revoked")), BASE, group(assignor="cooperative-sticky")),
    "static": (rebalances, crashing(group(static=True)), crashing(BASE)),
    # Each of the two gets 100 records/s: what takes longer than 10 ms is more than it can do.
    "service": (latency, BASE, group(service=wt.ConstantService("12ms"))),
    "per batch": (latency, BASE, group(service=wt.ConstantService("2ms", per_batch="300ms"))),
    "exponential": (
        tail,
        group(service=wt.ConstantService("9ms", "1ms")),
        group(service=wt.ExponentialService("9ms", "1ms")),
    ),
    "service sigma": (
        latency,
        group(service=wt.LognormalService("6ms", sigma=0)),
        group(service=wt.LognormalService("6ms", sigma=1.5)),
    ),
    "group settings": (
        kinds("acknowledged"),
        group(settings=QUICK | {"auto_commit_interval_ms": 5_000}),
        BASE,
    ),
    "fetch settings": (fewer(kinds("delivered")), BASE, group(settings=QUICK | WAIT)),
    "observe": (kinds("inbox_observed"), BASE, attrs.evolve(BASE, observe="1s")),
    "observe more often": (
        kinds("messages_observed"),
        attrs.evolve(BASE, observe=2),
        attrs.evolve(BASE, observe="500ms"),
    ),
    "duration": (records, attrs.evolve(BASE, duration=4), BASE),
}


@pytest.mark.parametrize(("figure", "less", "more"), CASES.values(), ids=CASES)
def test_a_setting_has_the_effect_that_it_says(
    figure: Callable[[wt.Scenario], float], less: wt.Scenario, more: wt.Scenario
) -> None:
    assert figure(less) < figure(more)


def test_a_seed_is_another_run() -> None:
    assert records(BASE) != records(attrs.evolve(BASE, seed=2))


def test_a_late_group_starts_where_it_is_told() -> None:
    late: dict[str, int] = {}
    for start in ("earliest", "unconsumed", "latest"):
        quick = wt.ConstantService("100us")
        audit = attrs.evolve(BILLING, name="audit", consumers=0, start=start, service=quick)
        timeline = [wt.Stop(3, "billing-*"), wt.AddConsumers(6, group="audit")]
        scenario = attrs.evolve(BASE, groups=[BILLING, audit], timeline=timeline)
        late[start] = run(scenario).summary.groups["audit"].delivered.records.total
    assert late["earliest"] > late["unconsumed"] + 300 > late["latest"] + 600


WORK: list[wt.Records] = []


def work(lot: wt.Records) -> None:
    """A handler that fails on the first lot."""
    WORK.append(lot)
    if len(WORK) == 1:
        raise ValueError


def test_a_handler_is_called_with_all_that_is_delivered_and_may_fail() -> None:
    WORK.clear()
    ended = run(group(handler=f"{__name__}:work", service=None))
    delivered = ended.summary.groups["billing"].delivered.records.total
    assert sum(len(lot) for lot in WORK) == delivered > 1_000
    # The first to come has all four partitions, and a failure is noted for each batch of its lot.
    assert {partition.partition for partition, _, _ in WORK[0].pieces} == {0, 1, 2, 3}
    assert ended.summary.kinds["handler_failed"] == len(WORK[0].pieces) == 4


def test_an_engine_is_the_one_that_is_named() -> None:
    live = attrs.evolve(group(handler="builtins:len"), engine="live", duration=0.2)
    assert [run(scenario).info.engine for scenario in (live, BASE)] == ["live", "simulated"]


# Objectives


FAILING = attrs.evolve(
    BASE,
    timeline=[wt.Slow(3, "billing-*", factor=20, for_=1), wt.Crash(4, "billing-0", for_=1)],
)


def judged(scenario: wt.Scenario, **demands: Any) -> Run:
    return run(attrs.evolve(scenario, objectives=[wt.Objective(**demands)]))


@pytest.mark.parametrize(
    ("demand", "tight", "loose"),
    [
        ("max_lag_records", 10, 100_000),
        ("max_lag", "10ms", "30s"),
        ("p99_latency", "1ms", "30s"),
        ("max_unavailability", "1ms", "30s"),
    ],
)
def test_an_objective_is_met_or_not(demand: str, tight: Any, loose: Any) -> None:
    strict, easy = (judged(FAILING, **{demand: value}) for value in (tight, loose))
    assert (strict.met, easy.met) == (False, True)
    (judgement,) = strict.judgements
    assert judgement.objective == demand
    assert judgement.measured is not None
    assert judgement.measured > judgement.demanded
    assert judgement.measured == easy.judgements[0].measured


def test_lost_records_count_only_if_they_are_lost_after_the_time() -> None:
    scenario = attrs.evolve(BASE, timeline=[wt.Crash(4, "broker-0")])
    assert judged(BASE, no_lost_records=True).met
    assert not judged(scenario, no_lost_records=True).met
    assert not judged(scenario, no_lost_records=True, after=3).met
    assert judged(scenario, no_lost_records=True, after=5).met


def test_what_was_before_counts_for_no_objective() -> None:
    slow = attrs.evolve(BASE, timeline=[wt.Pause(1, "billing-*", for_="1500ms")])
    for demand, value in {"max_lag": "500ms", "p99_latency": "1s"}.items():
        assert not judged(slow, **{demand: value}).met
        assert judged(slow, **{demand: value}, after=5).met


def test_an_objective_holds_for_the_groups_that_its_pattern_names() -> None:
    tardy = attrs.evolve(BILLING, name="audit[1]", service=wt.ConstantService("50ms"))
    scenario = attrs.evolve(BASE, groups=[BILLING, tardy])
    for pattern, names, met in [
        ("*", ["billing", "audit[1]"], False),
        ("bill*", ["billing"], True),
        ("aud*", ["audit[1]"], False),
        ("audit[1]", ["audit[1]"], False),
    ]:
        ended = judged(scenario, group=pattern, max_lag_records=200)
        assert ([j.group for j in ended.judgements], ended.met) == (names, met)
