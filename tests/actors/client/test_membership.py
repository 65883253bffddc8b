"""Members that are slow, silent, stuck or static, and the timers that deal with them."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest

import wavetank as wt
from wavetank.model.messages.group import Cause

TP = wt.TopicPartition


@pytest.fixture
def cluster() -> Iterator[wt.Cluster]:
    """A simulated cluster with Kafka's own timers."""
    with wt.Cluster.simulated(seed=3, brokers=1) as cluster:
        cluster.create_topic("orders", partitions=4)
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def fill(cluster: wt.Cluster, count: int, name: str = "filler") -> None:
    producer = cluster.producer(name)
    for future in [producer.send("orders", n, key=n) for n in range(count)]:
        future.get()


def left(cluster: wt.Cluster) -> list[tuple[str | None, str | None]]:
    return [(event.member, event.reason) for event in cluster.events.of("member_left")]


def at(cluster: wt.Cluster, kind: str) -> list[float]:
    return [event.time_us / 1e6 for event in cluster.events.of(kind)]


@pytest.mark.parametrize("session", [6_000, 45_000])
def test_a_dead_member_is_out_after_its_session_timeout(cluster: wt.Cluster, session: int) -> None:
    group = cluster.group("g", ["orders"], session_timeout_ms=session)
    for name in "ab":
        group.consumer(name)
    group.assignment()
    crashed = cluster.now
    cluster.system.crash("b")
    cluster.run(for_=120)
    assert left(cluster) == [("b", "was silent for its session timeout")]
    waited = at(cluster, "member_left")[0] - crashed
    assert session / 1_000 - 3.1 <= waited <= session / 1_000 + 0.1
    assert list(group.assignment()) == ["a"]


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_a_sticky_assignor_moves_only_what_a_newcomer_or_a_leaver_makes_necessary(
    cluster: wt.Cluster, assignor: str
) -> None:
    """As in Kafka, an eager member gives everything up and says what it had."""
    cluster.create_topic("jobs", partitions=12)
    group = cluster.group("g", ["jobs"], assignor=assignor)
    members = [group.consumer(name) for name in "abc"]
    before = group.assignment()
    group.consumer("d")
    cluster.run(for_=20)
    after = group.assignment()
    assert {name: len(share) for name, share in after.items()} == dict.fromkeys("abcd", 3)
    kept = [len({*before[name]} & {*after[name]}) for name in "abc"]
    assert kept == [3, 3, 3], "exactly three partitions have moved"
    members[0].close()
    cluster.run(for_=20)
    last = group.assignment()
    assert all({*after[name]} <= {*last[name]} for name in "bcd")


@pytest.mark.parametrize("interval", [500, 3_000])
def test_members_hear_of_a_rebalance_with_their_next_heartbeat(
    cluster: wt.Cluster, interval: int
) -> None:
    group = cluster.group("g", ["orders"], heartbeat_interval_ms=interval)
    group.consumer("a")
    group.assignment()
    cluster.run(for_=interval / 1_000 * 1.5)
    group.consumer("b")
    cluster.run(for_=20)
    took = at(cluster, "rebalance_completed")[-1] - at(cluster, "rebalance_started")[-1]
    assert interval / 1_000 * 0.3 <= took <= interval / 1_000 * 1.1


def test_an_empty_groups_first_rebalance_waits_for_others_to_come() -> None:
    with wt.Cluster.simulated(brokers=1, group_initial_rebalance_delay_ms=3_000) as cluster:
        cluster.create_topic("orders", partitions=4)
        group = cluster.group("g", ["orders"])
        began = cluster.now
        group.consumer("a")
        cluster.run(for_=2)
        group.consumer("b")
        group.assignment()
        assert len(at(cluster, "rebalance_started")) == 1
        waited = at(cluster, "rebalance_completed")[0] - began
        assert 6.0 <= waited <= 6.1, "the wait begins once more if somebody has joined"


def test_a_caller_that_does_not_poll_in_time_is_out_and_comes_back_with_its_next_poll(
    cluster: wt.Cluster,
) -> None:
    fill(cluster, 40)
    group = cluster.group("g", ["orders"], max_poll_interval_ms=20_000, enable_auto_commit=False)
    slow = group.consumer("slow", max_poll_records=5)
    records = slow.poll(timeout=5)
    assert len(records) == 5
    cluster.run(for_=30)
    assert left(cluster) == [("slow", "did not poll within max_poll_interval_ms")]
    assert [event.member for event in cluster.events.of("stuck")] == ["slow"]
    with pytest.raises(wt.errors.CommitFailedError, match=r"slow cannot commit orders-\d"):
        slow.commit()
    again = slow.poll(timeout=5)
    assert again[0].offset == 0


def test_a_caller_that_polls_in_time_stays_however_long_it_takes_in_all(
    cluster: wt.Cluster,
) -> None:
    group = cluster.group("g", ["orders"], max_poll_interval_ms=10_000)
    consumer = group.consumer("c")
    for _ in range(10):
        consumer.poll(timeout=0)
        cluster.run(for_=8)
    assert left(cluster) == []


def test_a_running_consumer_stuck_in_its_work_loses_its_partitions_and_its_late_commit(
    cluster: wt.Cluster,
) -> None:
    fill(cluster, 40)
    group = cluster.group("g", ["orders"], max_poll_interval_ms=10_000, enable_auto_commit=False)
    group.consumer("stuck", service=wt.load.ConstantService("1ms", per_batch="60s"))
    cluster.run(for_=5)
    group.consumer("quick", service=wt.load.ConstantService("1ms"))
    cluster.run(for_=40)
    assert ("stuck", "did not poll within max_poll_interval_ms") in left(cluster)
    assert sum(group.lag().values()) == 0
    acknowledged = cluster.events.of("acknowledged")
    assert {event.member for event in acknowledged} == {"quick"}


def test_a_member_frozen_beyond_its_session_is_fenced_when_it_wakes(cluster: wt.Cluster) -> None:
    fill(cluster, 8)
    group = cluster.group("g", ["orders"], session_timeout_ms=6_000, enable_auto_commit=False)
    frozen = group.consumer("frozen")
    got = list(frozen.poll(timeout=5))
    cluster.system.pause("frozen")
    other = group.consumer("other")
    cluster.run(for_=20)
    seen = [record for _ in range(8) for record in other.poll(timeout=1)]
    other.commit()
    late = frozen.ref.ask(wt_commit_all(), block=False)
    cluster.system.resume("frozen")
    answer = late.get(timeout=60)
    assert answer.committed == ()
    assert {record.partition for record in got} <= {tp.partition for tp in answer.refused}
    assert cluster.events.of("fenced")
    assert len(seen) == 8, "what it had not committed came again"


def wt_commit_all() -> Any:
    from wavetank.model.messages.client import CommitAll

    return CommitAll()


def restart(cluster: wt.Cluster, name: str, away: float) -> None:
    cluster.system.crash(name)
    cluster.run(for_=away)
    cluster.system.restart(name)


def test_a_static_member_that_restarts_in_time_causes_no_rebalance(cluster: wt.Cluster) -> None:
    group = cluster.group("g", ["orders"])
    for name in "ab":
        group.consumer(name, service=wt.load.ConstantService("1ms"), group_instance_id=name)
    before = group.assignment()
    rebalances = len(cluster.events.of("rebalance_started"))
    restart(cluster, "b", away=20)
    cluster.run(for_=60)
    assert group.assignment() == before
    assert len(cluster.events.of("rebalance_started")) == rebalances
    fill(cluster, 40)
    cluster.run(for_=20)
    assert sum(group.lag().values()) == 0, "the restarted one works"


def test_a_static_member_that_stays_away_too_long_is_out(cluster: wt.Cluster) -> None:
    group = cluster.group("g", ["orders"], session_timeout_ms=10_000)
    for name in "ab":
        group.consumer(name, service=wt.load.ConstantService("1ms"), group_instance_id=name)
    group.assignment()
    cluster.system.crash("b")
    cluster.run(for_=30)
    assert [member for member, _ in left(cluster)] == ["b"]


def test_a_dynamic_member_that_restarts_is_a_stranger_and_the_old_one_has_to_time_out(
    cluster: wt.Cluster,
) -> None:
    group = cluster.group("g", ["orders"], session_timeout_ms=10_000)
    for name in "ab":
        group.consumer(name, service=wt.load.ConstantService("1ms"))
    group.assignment()
    restart(cluster, "b", away=1)
    cluster.run(for_=40)
    assert "b#2" in group.describe().members
    assert left(cluster) == [("b", "was silent for its session timeout")]


def test_a_static_member_that_closes_is_expected_back(cluster: wt.Cluster) -> None:
    group = cluster.group("g", ["orders"], session_timeout_ms=10_000)
    for name in "ab":
        group.consumer(name, group_instance_id=name)
    group.assignment()
    group.consumers["b"].close()
    cluster.run(for_=5)
    assert left(cluster) == []
    cluster.run(for_=20)
    assert [member for member, _ in left(cluster)] == ["b"]


def test_an_assignor_of_a_user_is_used_and_checked(cluster: wt.Cluster) -> None:
    def first_takes_all(members: Any, partitions: Any) -> Any:
        first, *others = sorted(member.id for member in members)
        everything = [TP(t, p) for t in partitions for p in range(partitions[t])]
        return {first: everything, **dict.fromkeys(others, ())}

    group = cluster.group("g", ["orders"], assignor=first_takes_all)
    for name in "ba":
        group.consumer(name)
    assert {n: len(share) for n, share in group.assignment().items()} == {"a": 4, "b": 0}


@pytest.mark.parametrize("says", [{}, {"a": [TP("orders", 0)], "b": [TP("orders", 0)]}, None])
def test_an_assignor_that_talks_nonsense_is_recorded_and_the_group_goes_on_with_ranges(
    cluster: wt.Cluster, says: Any
) -> None:
    group = cluster.group("g", ["orders"], assignor=lambda members, partitions: says)
    for name in "ab":
        group.consumer(name)
    assert {n: len(share) for n, share in group.assignment().items()} == {"a": 2, "b": 2}
    assert cluster.events.of("assignor_failed")


def test_a_cooperative_assignor_that_fails_still_takes_nothing_away_from_its_owner(
    cluster: wt.Cluster,
) -> None:
    @wt.cooperative
    def broken(members: Any, partitions: Any) -> Any:
        raise RuntimeError("no idea")

    group = cluster.group("g", ["orders"], assignor=broken)
    group.consumer("a", service=wt.load.ConstantService("1ms"))
    group.assignment()
    group.consumer("b", service=wt.load.ConstantService("1ms"))
    cluster.run(for_=20)
    assert {n: len(share) for n, share in group.assignment().items()} == {"a": 2, "b": 2}
    assert len(cluster.events.of("revoked")) == 2, "only what moves is given up"


def test_each_rebalance_says_what_set_it_off_in_words_of_its_own(cluster: wt.Cluster) -> None:
    service = wt.load.ConstantService("1ms")
    cluster.create_topic("bills")
    group = cluster.group(
        "g", ["orders"], assignor="cooperative-sticky", session_timeout_ms=6_000,
        max_poll_interval_ms=20_000, enable_auto_commit=False,
    )  # fmt: skip
    group.consumer("a", service=service)
    cluster.run(for_=5)
    group.consumer("b", service=service)
    cluster.run(for_=15)
    cluster.system.crash("b")
    cluster.run(for_=15)
    group.set_assignor("range")
    cluster.run(for_=15)
    cluster.add_partitions("orders", 6)
    cluster.run(for_=15)
    other = group.consumer("c", service=service)
    cluster.run(for_=15)
    other.subscribe(["bills", "orders"])
    cluster.run(for_=15)
    slow = group.consumer("slow", max_poll_records=1)
    cluster.run(for_=15)
    fill(cluster, 400)
    assert slow.poll(timeout=15)
    cluster.run(for_=40)
    slow.close()
    events = cluster.events.of("rebalance_started")
    started = [f"{event.reason}: {event.detail}" for event in events]
    assert [each for each in dict.fromkeys(started) if "rejoined" not in each] == [
        "member joined: a",
        "member joined: b",
        "session timed out: b",
        "assignor changed: range",
        "partitions changed: orders",
        "member joined: c",
        "subscription changed: c",
        "member joined: slow",
        "poll timed out: slow did not poll within max_poll_interval_ms",
    ]
    assert any(each.startswith("member rejoined: ") for each in started)
    assert {each.split(": ")[0] for each in started} <= set(get_args(Cause))
