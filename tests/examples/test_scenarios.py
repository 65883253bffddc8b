"""The example scenarios, shortened: their runs show what their comments conclude."""

from pathlib import Path

import attrs
import pytest

import wavetank as wt
from wavetank.scenarios.files import scenario_file
from wavetank.scenarios.runner import Run, run

LIBRARY = Path(__file__).parents[2] / "examples" / "scenarios"


@pytest.fixture(autouse=True)
def handlers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make handlers importable from the scenarios' folder, as the command does."""
    monkeypatch.syspath_prepend(str(LIBRARY))


def ran(name: str, *changes: str) -> Run:
    """Run an example scenario with overrides."""
    done = run(scenario_file.load(LIBRARY / f"{name}.toml", changes))
    assert done.skipped == ()
    return done


def restarted(*changes: str) -> Run:
    """The rolling restart, one consumer every 12 s."""
    sooner = [f"timeline[{index}].stagger=12.3s" for index in range(3)]
    return ran(
        "rolling_restart", "duration=2m", *sooner,
        *[f"timeline[{index}].at=10.4s" for index in range(3)], *changes,
    )  # fmt: skip


def first_below(series: tuple[int, ...], limit: int, after_s: int) -> int:
    """The number of seconds from `after_s` until a lag is below a limit."""
    return next(second for second, lag in enumerate(series[after_s:]) if lag < limit)


@pytest.mark.parametrize("path", sorted(LIBRARY.glob("*.toml")), ids=lambda path: path.stem)
def test_every_file_has_measurements_and_a_conclusion(path: Path) -> None:
    scenario_file.load(path)
    head = path.read_text("utf-8").partition("\nname = ")[0]
    assert "# Measured" in head
    assert "# Conclude: " in head


def test_a_rolling_restart_costs_an_eager_group_more_than_a_cooperative_one() -> None:
    done = restarted()
    eager, coop, static = (done.summary.groups[name] for name in ("eager", "coop", "static"))
    assert done.met
    assert eager.unowned.total_us > 2 * coop.unowned.total_us
    assert eager.unowned.count == 8 * 2 * 48
    assert coop.unowned.count == coop.rebalances.moved == 8 * 2 * 6
    assert (static.rebalances.count, static.rebalances.moved) == (1, 0)
    assert static.unowned.total_us == pytest.approx(8 * 6 * 8_000_000, rel=0.02)
    assert static.delivery_latency.p99_us > 5 * coop.delivery_latency.p99_us
    assert [group.redelivered for group in (eager, coop, static)] == [0, 0, 0]


def test_rare_heartbeats_make_rebalances_twice_as_expensive() -> None:
    rare = [f"groups[{index}].settings.heartbeat_interval_ms=3000" for index in range(3)]
    often, seldom = restarted().summary.groups, restarted(*rare).summary.groups
    for name in ("eager", "coop"):
        assert seldom[name].unowned.total_us > 2 * often[name].unowned.total_us


def test_a_hot_key_overloads_a_partition_owner_but_not_a_key_shared_group() -> None:
    done = ran("hot_partition")
    by_partition, by_key = (done.summary.groups[n].lag_us for n in ("by-partition", "by-key"))
    assert done.met
    assert by_partition.final > 3 * by_key.final
    assert by_partition.final > by_partition.series[80] > by_partition.series[40]


def test_catching_up_after_a_burst_takes_as_long_as_computed() -> None:
    done = ran(
        "flash_crowd", "duration=170s", "timeline[0].at=20s", "timeline[0].for=20s",
        "timeline[1].at=27s",
    )  # fmt: skip
    fixed, scaled = (done.summary.groups[name].lag_records for name in ("fixed", "scaled"))
    piled_up, spare = (5000 - 1600) * 20, 1600 - 1000
    assert done.met
    assert fixed.worst == pytest.approx(piled_up, rel=0.15)
    assert first_below(fixed.series, 2500, 40) == pytest.approx(piled_up / spare, rel=0.15)
    assert first_below(scaled.series, 2500, 40) < 10


def test_a_slow_consumer_gets_help_in_a_shared_group_only() -> None:
    shorter = [f"timeline[{index}].for=30s" for index in range(2)]
    sooner = [f"timeline[{index}].at=15s" for index in range(2)]
    done = ran("slow_consumer", "duration=80s", *shorter, *sooner)
    exclusive, shared = (done.summary.groups[name] for name in ("exclusive", "shared"))
    assert done.met
    assert exclusive.rebalances.count == 1
    usual = max(exclusive.lag_records.series[5:15])
    piled_up = exclusive.lag_records.worst - usual
    assert piled_up == pytest.approx((75 - 25) * 30, rel=0.15)
    assert exclusive.lag_us.worst > 5 * shared.lag_us.worst


def test_a_rebalance_storm_outlasts_the_burst_that_triggers_it() -> None:
    done = ran("rebalance_storm", "duration=150s", "timeline[0].at=15s", "timeline[0].for=10s")
    tight, *others = (done.summary.groups[name] for name in ("tight", "calm", "small-polls"))
    assert done.met
    assert tight.lag_us.series[13] < 3_000_000
    assert tight.lag_records.final > 3 * tight.lag_records.series[24]
    assert tight.redelivered > tight.delivered.records.total / 2
    assert tight.rebalances.count > 20
    for solved in others:
        assert solved.rebalances.count == 1
        assert solved.redelivered == 0
        assert solved.lag_records.final < 1000


def unplugged(*changes: str) -> Run:
    """The power loss after 20 s, for 10 s."""
    return ran(
        "pull_the_plug", "duration=40s", "timeline[0].at=20s", "timeline[0].for=10s", *changes
    )


def test_a_power_loss_takes_what_was_not_synced_and_waiting_for_syncs_costs_latency() -> None:
    flushes = ("log_flush_interval_messages=100", "log_flush_interval_messages=1", "flush=commit")
    runs = [unplugged(), *(unplugged(f"cluster.settings.{flush}") for flush in flushes)]
    never, seldom, always, commit = (sum(done.summary.lost.values()) for done in runs)
    # 4 of 12 partitions get a third of 1,000 records/s; none of them is 30 s old.
    assert 1_000 < never <= 1_000 / 3 * 20 * 1.1
    assert 0 < seldom < 4 * 100
    assert always <= 4
    assert commit == 0
    assert [done.met for done in runs[:2]] == [False, False]
    assert runs[-1].met
    latencies = [done.summary.groups["billing"].delivery_latency.p50_us for done in runs]
    assert latencies[0] == pytest.approx(latencies[1], rel=0.1)
    assert latencies[2] == pytest.approx(latencies[0] + 2_000, rel=0.1)
    assert latencies[3] == pytest.approx(latencies[0] + 4_000, rel=0.1)


def test_a_sync_costs_little_where_batches_do_not_arrive_together() -> None:
    few = "producers[0].arrivals.rate=5"
    runs = [unplugged(few, f"cluster.settings.{flush}") for flush in (
        "log_flush_interval_messages=1", "flush=commit",
    )]  # fmt: skip
    always, commit = (done.summary.groups["billing"].delivery_latency.p50_us for done in runs)
    assert always < 600
    assert commit == pytest.approx(always + 2_000, rel=0.1)


def test_a_crash_loses_nothing_on_a_disk_and_its_partitions_wait_for_the_broker() -> None:
    done = unplugged("timeline[0].do=crash")
    assert done.met
    assert done.summary.lost == {}
    stored = [e.time_us / 1e6 for e in done.events.of("appended") if e.node == "broker-1"]
    assert [at for at in stored if 20.1 < at < 30] == []
    assert min(at for at in stored if at > 30) < 31


def test_a_consumer_beyond_the_end_of_what_is_left_starts_at_the_earliest_record() -> None:
    done = unplugged()
    resets = [e for e in done.events.of("offset_reset") if e.time_us > 30_000_000]
    assert {(e.base_offset, e.reason) for e in resets} == {(0, "earliest")}
    assert done.summary.groups["billing"].redelivered > 1_000


SOONER = ("duration=70s", "timeline[0].at=30s", "timeline[0].for=20s")


def test_the_partitions_of_a_failed_broker_wait_for_it_and_lose_nothing() -> None:
    done = ran("broker_failure", *SOONER)
    billing = done.summary.groups["billing"]
    assert done.met
    assert (done.summary.lost, done.summary.given_up) == ({}, 0)
    appended = done.summary.appended.records.series
    assert sum(count < 800 for count in appended[30:60]) == 20
    assert max(appended) == appended[50] > 20 * 1_000 / 3
    assert 20_000_000 < billing.lag_us.worst < 26_000_000
    assert (billing.rebalances.count, billing.redelivered) == (1, 0)


def test_producers_give_up_records_for_a_broker_that_is_away_too_long() -> None:
    done = ran(
        "broker_failure", *SOONER, "producers[0].settings.delivery_timeout_ms=15000",
    )  # fmt: skip
    # For a third of 1,000 records/s, the last 15 s before the broker is back are not too long.
    assert done.summary.given_up == pytest.approx(5 * 1_000 / 3, rel=0.2)


def test_a_failed_broker_loses_logs_in_memory_and_its_partitions_wait_for_the_timeout() -> None:
    done = ran("broker_failure", *SOONER, "cluster.storage=memory")
    met = {result.objective: result.met for result in done.objective_results}
    assert met == {"max_lag": True, "no_lost_records": False}
    appended = done.summary.appended.records.series
    before = sum(appended[:30])
    assert sum(done.summary.lost.values()) == pytest.approx(before / 3, rel=0.15)
    assert 0 < done.summary.groups["billing"].lost < before / 100
    assert done.summary.given_up == 0
    assert 4 <= sum(count < 800 for count in appended[30:45]) <= 8
    assert max(appended) > 2_000
    assert done.summary.groups["billing"].rebalances.count == 1


def test_a_poison_record_blocks_a_partition_or_becomes_a_dead_letter() -> None:
    done = ran("poison_message", "duration=40s")
    commits, acknowledges = (done.summary.groups[name] for name in ("commits", "acknowledges"))
    assert done.met
    assert commits.lag_us.final > 30_000_000
    assert commits.redelivered > 1000
    assert commits.delivered.records.series[-1] > 75
    assert acknowledges.dead_lettered > 1
    assert acknowledges.redelivered >= 4 * acknowledges.dead_lettered
    assert acknowledges.lag_us.worst < 5_000_000
    assert acknowledges.lag_records.final < 100


def test_a_cut_ends_consumer_sessions_and_loses_no_produced_records() -> None:
    done = ran(
        "network_partition", "duration=75s", "timeline[0].at=10s", "timeline[0].for=25s",
        "timeline[1].at=10s", "timeline[1].for=25s", "timeline[2].at=45s", "timeline[2].for=20s",
    )  # fmt: skip
    billing = done.summary.groups["billing"]
    assert done.met
    assert done.summary.kinds["member_left"] == 2
    assert done.summary.kinds["member_joined"] == 4 + 2
    assert 9_000_000 < billing.lag_us.worst < 15_000_000
    assert 0 < billing.redelivered < 1_500
    assert done.summary.deduplicated > 100
    assert done.summary.given_up == 0


def test_a_replay_does_not_affect_a_group_and_the_peak_lag_is_as_computed() -> None:
    changes = (
        "duration=6h", "producers[0].arrivals.day=6h", "producers[0].arrivals.peak_at=3.5h",
        "timeline[0].at=5h", "timeline[0].since=4.5h",
    )  # fmt: skip
    done = ran("replay_day", *changes)
    scenario = scenario_file.load(LIBRARY / "replay_day.toml", changes)
    without = wt.run(attrs.evolve(scenario, timeline=()))
    assert done.met
    assert done.summary.kinds["replayed"] > 0
    assert done.summary.groups == without.summary.groups
    lag = done.summary.groups["billing"].lag_records
    assert lag.worst == pytest.approx(48_600 / 4, rel=0.15)
    assert lag.final < 1000
