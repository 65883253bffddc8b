"""Every setting of a scenario has an effect: a changed setting changes a figure."""

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import pytest

import wavetank as wt
from helpers.short_runs import SHORT_RUN_SETTINGS, at, look, only
from wavetank.scenarios.runner import Run, run

SHOP = wt.ProducerPlan("shop", "orders", wt.load.Poisson(200), keys=wt.load.UniformKeys(100))
BILLING = wt.GroupPlan(
    "billing",
    ["orders"],
    consumers=2,
    service=wt.load.ConstantService("2ms"),
    settings=SHORT_RUN_SETTINGS,
)
BASE = wt.Scenario(
    "base", 8, [wt.TopicPlan("orders", 4)],
    cluster=wt.ClusterPlan(2, settings={"group_initial_rebalance_delay_ms": 0}),
    producers=[SHOP], groups=[BILLING],
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


# Figures: each runs a scenario and returns a number


def records(scenario: wt.Scenario) -> float:
    return run(scenario).summary.appended.records.total


def size(scenario: wt.Scenario) -> float:
    """Bytes per record."""
    traffic = run(scenario).summary.appended
    return traffic.bytes.total / traffic.records.total


def kinds(*names: str) -> Callable[[wt.Scenario], float]:
    """The number of events of these kinds."""

    def count(scenario: wt.Scenario) -> float:
        return sum(run(scenario).summary.kinds.get(name, 0) for name in names)

    return count


def billed(get: Callable[[Any], Any]) -> Callable[[wt.Scenario], float]:
    """A figure of the group."""
    return lambda scenario: float(get(run(scenario).summary.groups["billing"]))


def partitions(scenario: wt.Scenario) -> float:
    """The number of partitions that received records."""
    return len({e.partition for e in only(look(scenario)[1], "appended")})


def hottest(scenario: wt.Scenario) -> float:
    """The share of records in the busiest partition."""
    counts: dict[int | None, int] = {}
    for event in only(look(scenario)[1], "appended"):
        counts[event.partition] = counts.get(event.partition, 0) + (event.count or 0)
    return max(counts.values()) / sum(counts.values())


def burst(scenario: wt.Scenario) -> float:
    """The ratio of the busiest second to the quietest."""
    series = run(scenario).summary.appended.records.series[1:7]
    return max(series) / max(1, min(series))


def nodes(scenario: wt.Scenario) -> float:
    return len({e.node for e in look(scenario)[1]})


def first_assigned(scenario: wt.Scenario) -> float:
    """The time of the first assignment."""
    return at(only(look(scenario)[1], "assigned")[0])


def owners(scenario: wt.Scenario) -> float:
    """The number of consumers that received records of one partition after 4 s."""
    late = [e for e in only(look(scenario)[1], "delivered", partition=0) if at(e) > 4]
    return len({e.node for e in late})


def workers(scenario: wt.Scenario) -> float:
    """The number of consumers that received records."""
    return len({e.node for e in only(look(scenario)[1], "delivered")})


def all_delivered(scenario: wt.Scenario) -> float:
    return run(scenario).summary.delivered.records.total


def lost(scenario: wt.Scenario) -> float:
    return sum(event.count or 0 for event in only(look(scenario)[1], "lost"))


def fewer(figure: Callable[[wt.Scenario], float]) -> Callable[[wt.Scenario], float]:
    """The negated figure."""
    return lambda scenario: -figure(scenario)


latency = billed(lambda g: g.delivery_latency.p50_us)
tail = billed(lambda g: g.delivery_latency.max_us)
delivered = billed(lambda g: g.delivered.records.total)
rebalances = billed(lambda g: g.rebalances.count)

CHECKS: dict[str, Any] = {
    "storage": "memory",
    "settings": {"log_retention_check_interval_ms": 200},
}


def cleaned(**changes: Any) -> wt.Scenario:
    """The base with a topic that is cleaned often. In memory, no segment has to be full."""
    return attrs.evolve(topic(**changes), cluster=wt.ClusterPlan(2, **CHECKS))


def on_disk(settings: dict[str, Any] | None = None, **model: Any) -> wt.Scenario:
    """The base with partitions on disks of this model."""
    plan = wt.ClusterPlan(2, storage="disk", disk=wt.DiskModel(**model), settings=settings or {})
    return attrs.evolve(BASE, cluster=plan)


def committing(**model: Any) -> wt.Scenario:
    """The same, with records that are synced before they are visible."""
    return on_disk({"flush": "commit"}, **model)


def without_power(scenario: wt.Scenario) -> wt.Scenario:
    return attrs.evolve(scenario, timeline=[wt.actions.PowerLoss(4, "broker-*", for_=1)])


def crashing(scenario: wt.Scenario) -> wt.Scenario:
    return attrs.evolve(scenario, timeline=[wt.actions.Crash(4, "billing-0", for_="500ms")])


def pausing(scenario: wt.Scenario) -> wt.Scenario:
    return attrs.evolve(scenario, timeline=[wt.actions.Pause(4, "broker-0", for_=2)])


def kept(**changes: Any) -> wt.Scenario:
    """A topic with records that are past their retention but not consumed."""
    return attrs.evolve(STOPPED, topics=[wt.TopicPlan("orders", 4, retention="1s", **changes)])


STOPPED = attrs.evolve(
    group(service=wt.load.ConstantService("100ms")), cluster=wt.ClusterPlan(2, **CHECKS)
)


ALERT = {"broker_session_timeout_ms": 500, "broker_heartbeat_interval_ms": 100}
WAIT = {"fetch_min_bytes": 5_000, "fetch_max_wait_ms": 2_000}
ONE_KEY = producer(keys=wt.load.OneKey())
JUST_RANDOM = {"partitioner.class": "random"}

Case: TypeAlias = tuple[Callable[[wt.Scenario], float], wt.Scenario, wt.Scenario]
CASES: dict[str, Case] = {
    "brokers": (nodes, cluster(brokers=1), BASE),
    "constant latency": (latency, BASE, cluster(latency=wt.network.ConstantLatency("20ms"))),
    "uniform latency": (latency, BASE, cluster(latency=wt.network.UniformLatency("10ms", "30ms"))),
    "lognormal latency": (latency, BASE, cluster(latency=wt.network.LognormalLatency("20ms"))),
    "its sigma": (
        tail,
        cluster(latency=wt.network.LognormalLatency("20ms", 0)),
        cluster(latency=wt.network.LognormalLatency("20ms", 1)),
    ),
    "storage": (kinds("log_recovered"), cluster(storage="memory"), BASE),
    "disk write": (fewer(records), on_disk(), on_disk(write="1s")),
    "disk sync": (latency, committing(sync="1ms"), committing(sync="20ms")),
    "disk bandwidth": (fewer(records), on_disk(), on_disk(bandwidth=5_000)),
    "disk capacity": (fewer(records), on_disk(), on_disk(capacity=20_000)),
    "disk writeback": (
        lost,
        without_power(on_disk(writeback="1ms")),
        without_power(on_disk(writeback="30s")),
    ),
    "flush": (lost, without_power(committing()), without_power(on_disk())),
    "cluster settings": (
        first_assigned,
        BASE,
        cluster(settings={"group_initial_rebalance_delay_ms": 3_000}),
    ),
    "client": (
        first_assigned,
        group(settings=SHORT_RUN_SETTINGS | {"client": "librdkafka"}),
        group(settings=SHORT_RUN_SETTINGS | {"client": "java"}),
    ),
    "broker settings": (kinds("broker_lost"), pausing(BASE), pausing(cluster(settings=ALERT))),
    "partitions": (partitions, topic(partitions=1), BASE),
    "compact": (kinds("removed"), cleaned(), cleaned(cleanup="compact")),
    "acknowledged": (kinds("removed"), cleaned(), cleaned(cleanup="acknowledged")),
    "retention": (kinds("removed"), cleaned(), cleaned(retention="2s", retain_unconsumed=False)),
    "retention bytes": (kinds("removed"), cleaned(), cleaned(retention_bytes=1_000)),
    "keep owed": (kinds("removed"), kept(), kept(retain_unconsumed=False)),
    "count": (records, BASE, producer(count=3)),
    "poisson": (records, BASE, producer(arrivals=wt.load.Poisson(400))),
    "constant": (records, BASE, producer(arrivals=wt.load.Constant(400))),
    "bursts": (burst, BASE, producer(arrivals=wt.load.Bursts(50, 1_000, every="4s", length="1s"))),
    "daily": (records, producer(arrivals=wt.load.Daily(1, 200, peak_at="12h")), BASE),
    "trace": (records, producer(arrivals=wt.load.trace([(1.0, 5), (2.0, 5)])), BASE),
    "one key": (hottest, BASE, ONE_KEY),
    "uniform keys": (hottest, BASE, producer(keys=wt.load.UniformKeys(2))),
    "zipf keys": (hottest, BASE, producer(keys=wt.load.ZipfKeys(100, 2))),
    "no keys": (partitions, ONE_KEY, producer(keys=wt.load.NoKeys())),
    "fixed size": (size, BASE, producer(sizes=wt.load.FixedSize(500))),
    "lognormal sizes": (size, BASE, producer(sizes=wt.load.LognormalSizes(500))),
    "manual": (hottest, BASE, producer(partitioner="manual", partition=2)),
    "random": (partitions, ONE_KEY, producer(keys=wt.load.OneKey(), partitioner="random")),
    "sticky": (
        fewer(kinds("appended")),
        producer(keys=wt.load.NoKeys(), partitioner="random"),
        producer(keys=wt.load.NoKeys(), partitioner="sticky"),
    ),
    "resolution": (fewer(kinds("appended")), BASE, producer(resolution="1s")),
    "producer settings": (
        kinds("appended"),
        producer(resolution="100ms"),
        producer(resolution="100ms", settings={"batch.size": 200}),
    ),
    "partitioner setting": (
        partitions,
        ONE_KEY,
        producer(keys=wt.load.OneKey(), settings=JUST_RANDOM),
    ),
    "consumers": (workers, group(consumers=1), BASE),
    "no consumers": (all_delivered, group(consumers=0), BASE),
    "broadcast": (delivered, BASE, group(delivery="broadcast")),
    "shared": (owners, BASE, group(delivery="shared")),
    "key shared": (owners, BASE, group(delivery="key_shared")),
    "acks": (fewer(kinds("offset_reset")), BASE, group(acks=True)),
    "assignor": (
        fewer(kinds("revoked")),
        crashing(BASE),
        crashing(group(assignor="cooperative-sticky")),
    ),
    "static": (rebalances, crashing(group(static=True)), crashing(BASE)),
    # Each of the two consumers receives 100 records/s, so it can spend at most 10 ms on each.
    "service": (latency, BASE, group(service=wt.load.ConstantService("12ms"))),
    "per batch": (latency, BASE, group(service=wt.load.ConstantService("2ms", per_batch="300ms"))),
    "exponential": (
        tail,
        group(service=wt.load.ConstantService("9ms", "1ms")),
        group(service=wt.load.ExponentialService("9ms", "1ms")),
    ),
    "service sigma": (
        latency,
        group(service=wt.load.LognormalService("6ms", sigma=0)),
        group(service=wt.load.LognormalService("6ms", sigma=1.5)),
    ),
    "group settings": (
        kinds("acknowledged"),
        group(settings=SHORT_RUN_SETTINGS | {"auto_commit_interval_ms": 5_000}),
        BASE,
    ),
    "fetch settings": (fewer(kinds("delivered")), BASE, group(settings=SHORT_RUN_SETTINGS | WAIT)),
    "observe": (kinds("inbox_observed"), BASE, attrs.evolve(BASE, observe="1s")),
    "observe more often": (
        kinds("messages_observed"),
        attrs.evolve(BASE, observe=2),
        attrs.evolve(BASE, observe="500ms"),
    ),
    "duration": (records, attrs.evolve(BASE, duration=4), BASE),
}


@pytest.mark.parametrize(
    ("settings", "varies"),
    [
        ({}, True),
        ({"timer_stagger_percent": 0}, True),
        ({"timer_jitter_percent": 0}, True),
        ({"timer_stagger_percent": 0, "timer_jitter_percent": 0}, False),
    ],
)
def test_seeds_vary_the_phase_of_heartbeats_unless_timers_are_exact(
    settings: dict[str, int], varies: bool
) -> None:
    """A crash is noticed a session timeout after the last heartbeat."""
    found = set()
    for seed in range(4):
        crashed = attrs.evolve(
            BASE,
            seed=seed,
            producers=[],
            cluster=wt.ClusterPlan(2, settings=settings),
            timeline=[wt.actions.Crash(4, "billing-0")],
        )
        found.add(only(look(crashed)[1], "member_left")[0].time_us)
    assert len(found) == (4 if varies else 1)


@pytest.mark.parametrize(("figure", "less", "more"), CASES.values(), ids=CASES)
def test_a_setting_has_its_effect(
    figure: Callable[[wt.Scenario], float], less: wt.Scenario, more: wt.Scenario
) -> None:
    assert figure(less) < figure(more)


def test_another_seed_gives_another_run() -> None:
    assert records(BASE) != records(attrs.evolve(BASE, seed=2))


def test_a_late_group_starts_at_its_start_position() -> None:
    late: dict[str, int] = {}
    for start in ("earliest", "unconsumed", "latest"):
        quick = wt.load.ConstantService("100us")
        audit = attrs.evolve(BILLING, name="audit", consumers=0, start=start, service=quick)
        timeline = [wt.actions.Stop(3, "billing-*"), wt.actions.AddConsumers(6, group="audit")]
        scenario = attrs.evolve(BASE, groups=[BILLING, audit], timeline=timeline)
        late[start] = run(scenario).summary.groups["audit"].delivered.records.total
    assert late["earliest"] > late["unconsumed"] + 300 > late["latest"] + 600


WORK: list[wt.Records] = []


def work(records: wt.Records) -> None:
    """A handler that fails on the first poll batch."""
    WORK.append(records)
    if len(WORK) == 1:
        raise ValueError


def test_a_handler_is_called_with_all_delivered_records_and_may_fail() -> None:
    WORK.clear()
    ended = run(group(handler=f"{__name__}:work", service=None))
    delivered = ended.summary.groups["billing"].delivered.records.total
    assert sum(len(records) for records in WORK) == delivered > 1_000
    # The first poll batch has both partitions; a failure is recorded for each batch in it.
    assert len({partition.partition for partition, _, _ in WORK[0].pieces}) == 2
    assert ended.summary.kinds["handler_failed"] == len(WORK[0].pieces)


def test_the_engine_is_the_one_of_the_scenario() -> None:
    live = attrs.evolve(group(handler="builtins:len"), engine="live", duration=0.2)
    assert [run(scenario).info.engine for scenario in (live, BASE)] == ["live", "simulated"]


# Objectives


FAILING = attrs.evolve(
    BASE,
    timeline=[
        wt.actions.Slow(3, "billing-*", factor=20, for_=1),
        wt.actions.Crash(4, "billing-0", for_=1),
    ],
)


def evaluated(scenario: wt.Scenario, **limits: Any) -> Run:
    return run(attrs.evolve(scenario, objectives=[wt.Objective(**limits)]))


@pytest.mark.parametrize(
    ("limit", "tight", "loose"),
    [
        ("max_lag_records", 10, 100_000),
        ("max_lag", "10ms", "30s"),
        ("p99_latency", "1ms", "30s"),
        ("max_unavailability", "1ms", "30s"),
    ],
)
def test_an_objective_is_met_or_missed(limit: str, tight: Any, loose: Any) -> None:
    strict, easy = (evaluated(FAILING, **{limit: value}) for value in (tight, loose))
    assert (strict.met, easy.met) == (False, True)
    (result,) = strict.objective_results
    assert result.objective == limit
    assert result.measured is not None
    assert result.measured > result.limit
    assert result.measured == easy.objective_results[0].measured


def test_lost_records_count_only_after_the_warm_up() -> None:
    crash = [wt.actions.Crash(4, "broker-0")]
    scenario = attrs.evolve(cluster(storage="memory"), timeline=crash)
    assert evaluated(BASE, no_lost_records=True).met
    assert not evaluated(scenario, no_lost_records=True).met
    assert not evaluated(scenario, no_lost_records=True, after=3).met
    assert evaluated(scenario, no_lost_records=True, after=5).met


def test_the_warm_up_counts_for_no_objective() -> None:
    slow = attrs.evolve(BASE, timeline=[wt.actions.Pause(1, "billing-*", for_="1500ms")])
    for limit, value in {"max_lag": "500ms", "p99_latency": "1s"}.items():
        assert not evaluated(slow, **{limit: value}).met
        assert evaluated(slow, **{limit: value}, after=5).met


def test_a_group_that_delivers_a_small_part_in_time_misses_its_latency() -> None:
    """Of the records that it appends, a hopelessly slow group delivers the first ones quickly."""
    slow = attrs.evolve(BILLING, consumers=1, service=wt.load.ConstantService("500ms"))
    settings = {**SHORT_RUN_SETTINGS, "max_poll_records": 1}
    scenario = attrs.evolve(BASE, groups=[attrs.evolve(slow, settings=settings)])
    ended = evaluated(scenario, p99_latency="7500ms", after=0)
    latency = ended.summary.groups["billing"].delivery_latency
    assert latency.waiting > 50 * latency.records > 0
    assert latency.waiting + latency.records == ended.summary.appended.records.total
    assert not ended.met
    [result] = ended.objective_results
    assert f"as {latency.waiting:,} records still wait at the end" in result.text


@pytest.mark.parametrize(
    "fault",
    [
        wt.actions.Pause(3, "billing-0", for_="4s"),
        wt.actions.Cut(3, between=["billing-0", "broker-*"], for_="4s"),
    ],
)
def test_a_consumer_that_keeps_its_partitions_and_gets_nothing_is_unavailable(fault: Any) -> None:
    patient = {**SHORT_RUN_SETTINGS, "session_timeout_ms": 10_000, "heartbeat_interval_ms": 3_000}
    scenario = attrs.evolve(
        BASE, groups=[attrs.evolve(BILLING, settings=patient)], timeline=[fault]
    )
    ended = evaluated(scenario, max_unavailability="3s")
    billing = ended.summary.groups["billing"]
    assert billing.unowned.longest_us < 100_000
    assert billing.undelivered.longest_us > 3_900_000
    assert not ended.met
    [result] = ended.objective_results
    assert result.measured == billing.undelivered.longest_us / 1e6
    assert "s without delivery, orders-" in result.text


def test_a_healthy_group_is_never_long_without_delivery() -> None:
    ended = evaluated(BASE, max_unavailability="250ms", after=5)
    assert ended.met, ended.objective_results[0].text


def test_figures_and_objectives_leave_out_the_warm_up_of_the_scenario() -> None:
    slow = attrs.evolve(BASE, timeline=[wt.actions.Pause(1, "billing-*", for_="1500ms")])
    limits = wt.Objective(max_lag="500ms", p99_latency="1s", max_unavailability="1s")
    whole = run(attrs.evolve(slow, objectives=[limits]))
    late = run(attrs.evolve(slow, objectives=[limits], warm_up=5))
    assert whole.digest == late.digest
    assert [result.met for result in whole.objective_results] == [False] * 3
    assert [result.met for result in late.objective_results] == [True] * 3
    assert all(" after 5 s: " in result.text for result in late.objective_results)
    assert (
        late.objective_results
        == run(attrs.evolve(slow, objectives=[attrs.evolve(limits, after=5)])).objective_results
    )
    before, after = (each.summary.groups["billing"] for each in (whole, late))
    assert after.lag_us.worst < before.lag_us.worst / 2
    assert after.delivery_latency.p99_us < before.delivery_latency.p99_us / 2
    assert after.undelivered.longest_us < before.undelivered.longest_us / 2
    assert late.summary.appended.records.total < whole.summary.appended.records.total / 2
    assert late.summary.appended.records.mean == pytest.approx(200, rel=0.1)
    assert before.rebalances.count > after.rebalances.count == 0


def test_an_objective_applies_to_the_groups_that_match_its_pattern() -> None:
    tardy = attrs.evolve(BILLING, name="audit[1]", service=wt.load.ConstantService("50ms"))
    scenario = attrs.evolve(BASE, groups=[BILLING, tardy])
    for pattern, names, met in [
        ("*", ["billing", "audit[1]"], False),
        ("bill*", ["billing"], True),
        ("aud*", ["audit[1]"], False),
        ("audit[1]", ["audit[1]"], False),
    ]:
        ended = evaluated(scenario, group=pattern, max_lag_records=200)
        assert ([j.group for j in ended.objective_results], ended.met) == (names, met)
