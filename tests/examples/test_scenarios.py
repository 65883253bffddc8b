"""The library of scenarios, each in a shorter run: what its comments conclude is what happens."""

from pathlib import Path

import attrs
import pytest

import wavetank as wt
from wavetank.actors.runner import Run, run
from wavetank.strategies import scenario_files

LIBRARY = Path(__file__).parents[2] / "examples" / "scenarios"


@pytest.fixture(autouse=True)
def handlers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command does it: a handler's module is beside its scenario."""
    monkeypatch.syspath_prepend(str(LIBRARY))


def ran(name: str, *changes: str) -> Run:
    """What came of a scenario of the library, with some changes."""
    done = run(scenario_files.load(LIBRARY / f"{name}.toml", changes))
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
    """After how many seconds more than `after_s` a lag is below a limit."""
    return next(second for second, lag in enumerate(series[after_s:]) if lag < limit)


@pytest.mark.parametrize("path", sorted(LIBRARY.glob("*.toml")), ids=lambda path: path.stem)
def test_every_file_says_what_was_measured_and_what_to_conclude(path: Path) -> None:
    scenario_files.load(path)
    head = path.read_text("utf-8").partition("\nname = ")[0]
    assert "# Measured" in head
    assert "# Conclude: " in head


def test_a_rolling_restart_costs_an_eager_group_more_than_a_cooperative_one() -> None:
    done = restarted()
    eager, coop, static = (done.summary.groups[name] for name in ("eager", "coop", "static"))
    assert done.met
    assert eager.unavailability.total_us > 2 * coop.unavailability.total_us
    assert eager.unavailability.count == 8 * 2 * 48
    assert coop.unavailability.count == coop.rebalances.moved == 8 * 2 * 6
    assert (static.rebalances.count, static.rebalances.moved) == (1, 0)
    assert static.unavailability.total_us == pytest.approx(8 * 6 * 8_000_000, rel=0.02)
    assert static.delivery_latency.p99_us > 5 * coop.delivery_latency.p99_us


def test_rare_heartbeats_make_a_cooperative_rebalance_the_expensive_one() -> None:
    rare = [f"groups[{index}].settings.heartbeat_interval_ms=3000" for index in range(3)]
    groups = restarted(*rare).summary.groups
    assert groups["coop"].unavailability.total_us > groups["eager"].unavailability.total_us


def test_a_hot_key_is_too_much_for_an_owner_of_partitions_but_not_of_slots() -> None:
    done = ran("hot_partition")
    by_partition, by_key = (done.summary.groups[n].lag_us for n in ("by-partition", "by-key"))
    assert done.met
    assert by_partition.final > 5 * by_key.final
    assert by_partition.final > by_partition.series[80] > by_partition.series[40]


def test_a_burst_is_caught_up_with_as_queueing_says() -> None:
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


def test_nobody_helps_a_slow_owner_and_everybody_a_slow_member_of_a_shared_group() -> None:
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


def test_a_storm_outlasts_the_burst_that_set_it_off() -> None:
    done = ran("rebalance_storm", "duration=150s", "timeline[0].at=15s", "timeline[0].for=10s")
    tight, *others = (done.summary.groups[name] for name in ("tight", "calm", "small-polls"))
    assert done.met
    assert tight.lag_us.series[13] < 3_000_000
    assert tight.lag_records.final > 3 * tight.lag_records.series[24]
    assert tight.redelivered > tight.delivered.records.total / 2
    assert tight.rebalances.count > 20
    for cured in others:
        assert cured.rebalances.count == 1
        assert cured.redelivered == 0
        assert cured.lag_records.final < 1000


def test_a_broker_that_fails_loses_its_logs_and_its_partitions_wait_for_the_timeout() -> None:
    done = ran("broker_failure", "duration=70s", "timeline[0].at=30s", "timeline[0].for=20s")
    judged = {judgement.objective: judgement.met for judgement in done.judgements}
    assert judged == {"max_lag": True, "no_lost_records": False}
    appended = done.summary.appended.records.series
    before = sum(appended[:30])
    assert sum(done.summary.lost.values()) == pytest.approx(before / 3, rel=0.15)
    assert 0 < done.summary.groups["billing"].lost < before / 100
    assert done.summary.given_up == 0
    assert 6 <= sum(count < 800 for count in appended[30:45]) <= 8
    assert max(appended) > 3000
    assert done.summary.groups["billing"].rebalances.count == 1


def test_a_poison_record_stops_a_partition_or_becomes_a_dead_letter() -> None:
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


def test_a_cut_costs_consumers_their_session_and_producers_nothing() -> None:
    done = ran(
        "network_partition", "duration=75s", "timeline[0].at=10s", "timeline[0].for=25s",
        "timeline[1].at=10s", "timeline[1].for=25s", "timeline[2].at=45s", "timeline[2].for=20s",
    )  # fmt: skip
    billing = done.summary.groups["billing"]
    assert done.met
    assert done.summary.kinds["member_left"] == 2
    assert done.summary.kinds["member_joined"] == 4 + 2
    assert 9_000_000 < billing.lag_us.worst < 15_000_000
    assert 0 < billing.redelivered < 400
    assert done.summary.deduplicated > 100
    assert done.summary.given_up == 0


def test_a_replay_changes_nothing_for_a_group_and_a_peak_is_as_late_as_queueing_says() -> None:
    changes = (
        "duration=6h", "producers[0].arrivals.day=6h", "producers[0].arrivals.peak_at=3.5h",
        "timeline[0].at=5h", "timeline[0].since=4.5h",
    )  # fmt: skip
    done = ran("replay_day", *changes)
    scenario = scenario_files.load(LIBRARY / "replay_day.toml", changes)
    without = wt.run(attrs.evolve(scenario, timeline=()))
    assert done.met
    assert done.summary.kinds["replayed"] > 0
    assert done.summary.groups == without.summary.groups
    lag = done.summary.groups["billing"].lag_records
    assert lag.worst == pytest.approx(48_600 / 4, rel=0.15)
    assert lag.final < 1000
