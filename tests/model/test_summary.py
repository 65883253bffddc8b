"""The figures of a run: tiny logs with known answers, and random runs against the plain way."""

import json
from collections.abc import Iterable
from typing import Any

import figures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import run
from tiny import about, acked, appended, assigned, batch_of, committed, event

import wavetank as wt
from wavetank.model.arrears import Reader
from wavetank.model.counters import Counters
from wavetank.model.events import Event
from wavetank.model.series import Spread
from wavetank.model.summary import GroupSummary, Summary, latency

S = 1_000_000
MS = 1_000


# Tiny logs


def delivered(time_us: int, base: int, count: int, since_us: int = 0, **cells: Any) -> Event:
    return about("delivered", time_us, base, count, since_us, **cells)


def revoked(time_us: int, **cells: Any) -> Event:
    return event(time_us, "revoked", **{"group": "readers", "member": "a", **cells})


def of_group(time_us: int, kind: str, **cells: Any) -> Event:
    return Event(0, time_us, kind, group="readers", **cells)


def summary_of(events: list[Event], now_us: int, **options: Any) -> Summary:
    counters = Counters(**options)
    counters.add(batch_of(events))
    return counters.summary(now_us)


def readers(events: list[Event], now_us: int, **options: Any) -> GroupSummary:
    return summary_of(events, now_us, **options).groups["readers"]


def test_a_run_without_events_has_figures() -> None:
    counters = Counters()
    counters.add(batch_of([]))
    summary = counters.summary(2 * S)
    assert summary.events == summary.appended.records.total == 0
    assert summary.appended.records.series == (0, 0)
    assert summary.groups == {}


def test_what_passed_is_counted_by_the_second() -> None:
    events = [
        appended(S // 2, 0, 10),
        appended(S - 1, 10, 5),
        appended(2 * S, 15, 1, topic="other", partition=0),
        delivered(2 * S, 0, 10),
        delivered(2 * S, 0, 10, group="others"),
        committed(2 * S + 1, 0, 10, S // 2),
    ]
    summary = summary_of(events, 4 * S)
    records = summary.appended.records
    assert (records.total, records.mean, records.peak) == (16, 4.0, 15)
    assert records.series == (15, 0, 1, 0)
    assert summary.appended.bytes.series == (1_500, 0, 100, 0)
    assert summary.delivered.records.series == (0, 0, 20, 0)
    assert summary.groups["others"].delivered.records.total == 10
    assert summary.acknowledged.bytes.total == 1_000
    assert summary.kinds == {"acknowledged": 1, "appended": 3, "delivered": 2}
    assert summary.events == 6


def test_lag_is_what_is_appended_and_not_committed_at_each_second_end() -> None:
    events = [
        assigned(0),
        appended(S // 2, 0, 10),
        appended(S, 10, 10),
        committed(3 * S // 2, 0, 4, S // 2),
        committed(7 * S // 2, 4, 6, S // 2),
        committed(4 * S, 10, 10, S),
    ]
    group = readers(events, 5 * S // 2 * 2)
    assert group.lag_records.series == (10, 16, 16, 10, 0)
    assert group.lag_us.series == (S // 2, 3 * S // 2, 5 * S // 2, 3 * S, 0)
    assert (group.lag_records.worst, group.lag_records.worst_at_us) == (16, 2 * S)
    assert (group.lag_us.worst, group.lag_us.worst_at_us) == (3 * S, 4 * S)
    assert group.lag_us.worst_after(4 * S) == 0
    assert group.lag_us.worst_after(4 * S - 1) == 3 * S


def test_the_final_lag_is_that_of_the_end_between_two_seconds() -> None:
    group = readers([assigned(0), appended(S // 4, 0, 7)], S + S // 2)
    assert group.lag_records.series == (7,)
    assert (group.lag_records.final, group.lag_us.final) == (7, S + S // 4)
    assert (group.lag_us.worst, group.lag_us.worst_at_us) == (S + S // 4, S + S // 2)
    assert group.lag_us.worst_after(10 * S) == S + S // 4


def test_what_is_acknowledged_out_of_order_leaves_the_oldest_behind() -> None:
    events = [
        assigned(0),
        appended(100, 0, 4),
        appended(200, 4, 4),
        appended(300, 8, 4),
        acked(S // 2, 8, 4, 300),
        acked(3 * S // 2, 0, 4, 100),
        acked(5 * S // 2, 4, 4, 200),
    ]
    group = readers(events, 3 * S)
    assert group.lag_records.series == (8, 4, 0)
    assert group.lag_us.series == (S - 100, 2 * S - 200, 0)


def test_dead_letters_archived_and_lost_records_are_not_owed() -> None:
    events = [
        assigned(0),
        appended(100, 0, 9),
        acked(200, 0, 1, 100),
        about("nacked", 210, 1, 2, 100),
        about("ack_timed_out", 220, 3, 2, 100),
        about("dead_lettered", S + 1, 1, 2, 100),
        about("archived", 2 * S + 1, 3, 2, 100),
        about("lost", 3 * S + 1, 5, 3, 100, epoch=0, detail="removed"),
    ]
    group = readers(events, 4 * S)
    assert group.lag_records.series == (8, 6, 4, 1)
    assert (group.nacked, group.ack_timed_out, group.dead_lettered, group.archived) == (2, 2, 2, 2)
    assert group.lost == 3


def test_who_begins_with_the_latest_owes_nothing_older() -> None:
    events = [appended(0, 0, 50), appended(0, 50, 50), assigned(10, 80), appended(20, 100, 5)]
    group = readers(events, S)
    assert group.lag_records.final == 25
    assert group.partitions == 1


def test_who_is_not_there_yet_owes_nothing() -> None:
    events = [appended(0, 0, 50), assigned(3 * S // 2)]
    group = readers(events, 2 * S)
    assert group.lag_records.series == (0, 50)
    assert group.lag_us.series == (0, 2 * S)


def test_a_first_commit_counts_only_for_what_was_owed() -> None:
    """A partition's first commit acknowledges everything before it, whatever the beginning."""
    reset = event(10, "offset_reset", group="readers", member="a", base_offset=80, detail="latest")
    events = [
        appended(0, 0, 50),
        appended(0, 50, 50),
        reset,
        assigned(10, 80),
        committed(20, 0, 50, 0),
        committed(20, 50, 40, 0),
    ]
    group = readers(events, S)
    assert group.lag_records.final == 10
    assert group.acknowledged.records.total == group.acknowledgement_latency.records == 10
    assert group.acknowledged.bytes.total == 1_000


def test_a_reset_skips_what_is_before_it() -> None:
    reset = event(S, "offset_reset", group="readers", member="a", base_offset=100, detail="latest")
    events = [assigned(0), appended(1, 0, 100), reset, appended(S, 100, 3)]
    assert readers(events, 2 * S).lag_records.series == (100, 3)


def test_a_lost_log_is_owed_to_nobody_and_begins_above_a_gap() -> None:
    events = [
        assigned(0),
        appended(1, 0, 10),
        committed(2, 0, 4, 1),
        event(S // 2, "lost", base_offset=0, count=10, detail="unreplicated, in memory"),
        appended(S + 1, 100_000, 5),
        assigned(S + 2, 100_000),
        committed(2 * S + 1, 100_000, 5, S + 1),
    ]
    summary = summary_of(events, 3 * S)
    group = summary.groups["readers"]
    assert group.lag_records.series == (0, 5, 0)
    assert group.lost == 6
    assert summary.lost == {"unreplicated, in memory": 10}
    [loss] = summary.losses
    assert (loss.second, loss.kind, loss.topic, loss.group, loss.records) == (
        0, "lost", "orders", None, 10,
    )  # fmt: skip


def test_a_gap_that_compaction_left_holds_no_commit_up() -> None:
    events = [assigned(0), appended(1, 0, 10), committed(2, 0, 3, 1), committed(2, 7, 3, 1)]
    group = readers(events, S)
    assert (group.lag_records.final, group.lag_us.final) == (0, 0)
    assert group.acknowledged.records.total == 6


def test_a_group_that_is_forgotten_owes_nothing_until_it_comes_back() -> None:
    gone = event(S, "subscription_removed", group="readers", detail="away for its time to live")
    events = [assigned(0), appended(1, 0, 10), gone, assigned(2 * S, 4)]
    group = readers(events, 3 * S)
    assert group.lag_records.series == (10, 0, 6)
    assert group.partitions == 1


def test_a_deleted_topic_is_owed_to_nobody_and_another_of_its_name_begins_anew() -> None:
    events = [
        assigned(0),
        appended(1, 0, 10),
        Event(0, S, "topic_deleted", topic="orders"),
        assigned(2 * S, 0),
        appended(2 * S, 0, 3),
    ]
    assert readers(events, 3 * S).lag_records.series == (10, 0, 3)


def test_every_partition_counts_in_records_and_the_oldest_in_time() -> None:
    events = [
        assigned(0),
        assigned(0, topic="orders", partition=1),
        assigned(0, topic="bills", partition=0),
        appended(10, 0, 1),
        appended(20, 0, 2, topic="orders", partition=1),
        appended(5, 0, 4, topic="bills", partition=0),
        appended(1, 0, 8, topic="others", partition=0),
    ]
    group = readers(events, S)
    assert (group.lag_records.final, group.lag_us.final) == (7, S - 5)
    assert group.partitions == 3


def test_a_broadcast_is_as_far_behind_as_its_last_subscriber() -> None:
    events = [
        assigned(0),
        assigned(0, member="b#2"),
        appended(1, 0, 10),
        acked(2, 0, 10, 1),
        acked(2, 0, 4, 1, member="b"),
        event(S, "subscription_removed", group="readers", detail="readers/b"),
    ]
    group = readers(events, 2 * S, broadcast=["readers"])
    assert group.lag_records.series == (6, 0)
    assert group.acknowledged.records.total == 14


def test_redeliveries_are_those_with_a_retry_count_or_of_lower_offsets() -> None:
    reset = event(0, "offset_reset", group="readers", member="a", base_offset=0, detail="earliest")
    commits = [reset, assigned(0), appended(1, 0, 30)]
    commits += [delivered(2, 0, 10), delivered(3, 10, 10), delivered(4, 5, 10), delivered(5, 15, 9)]
    assert readers(commits, S).redelivered == 15
    acks = [assigned(0), appended(1, 0, 30)]
    acks += [delivered(2, 10, 10), delivered(3, 0, 10), delivered(4, 0, 3, detail="retry 2")]
    assert readers(acks, S).redelivered == 3


def test_latency_is_weighted_by_records_and_can_begin_after_a_time() -> None:
    events = [delivered(10 * MS, 0, 99), delivered(S + 500 * MS, 99, 1, since_us=S)]
    group = readers(events, 2 * S).delivery_latency
    assert group.records == 100
    assert group.p99_us == pytest.approx(10 * MS, rel=0.01)
    assert group.p999_us == pytest.approx(500 * MS, rel=0.01)
    assert group.max_us == 500 * MS
    assert group.percentile_us(0.5, after_us=S) == pytest.approx(500 * MS, rel=0.01)
    assert group.percentile_us(0.5, after_us=S + 1) is None


def test_rebalances_are_timed_and_what_moves_is_counted() -> None:
    events = [
        of_group(0, "rebalance_started"),
        of_group(3 * MS, "rebalance_completed", count=1),
        assigned(4 * MS),
        assigned(4 * MS, topic="orders", partition=1),
        of_group(S, "rebalance_started"),
        revoked(S + 1),
        revoked(S + 1, topic="orders", partition=1),
        of_group(S + 5 * MS, "rebalance_started"),
        of_group(S + 20 * MS, "rebalance_completed", count=2),
        assigned(S + 30 * MS, member="b"),
        assigned(S + 40 * MS, topic="orders", partition=1),
        of_group(2 * S, "rebalance_started"),
    ]
    group = readers(events, 3 * S)
    assert (group.rebalances.count, group.rebalances.moved) == (4, 1)
    assert group.rebalances.total_us == 23 * MS + S
    assert group.rebalances.longest_us == S
    without = group.unavailability
    assert (without.count, without.total_us) == (2, 70 * MS - 2)
    assert (without.longest_us, without.longest_at_us) == (40 * MS - 1, S + 1)


@pytest.mark.parametrize(
    "end",
    [
        Event(0, S, "node_crashed", node="a"),
        of_group(S, "member_left", member="a"),
        revoked(S),
    ],
)
def test_a_partition_whose_owner_is_gone_is_without_one_until_the_next(end: Event) -> None:
    late = [revoked(2 * S), assigned(3 * S, member="b", node="b"), revoked(4 * S)]
    without = readers([assigned(0), end, *late], 5 * S).unavailability
    assert (without.count, without.longest_us, without.longest_at_us) == (1, 2 * S, S)
    longest = without.longest_after(2 * S)
    assert longest is not None
    assert (longest.at_us, longest.lasted_us, longest.topic) == (2 * S, S, "orders")
    assert without.longest_after(3 * S) is None


def test_what_is_still_without_an_owner_counts_up_to_now() -> None:
    counters = Counters()
    counters.add(batch_of([assigned(0), revoked(S)]))
    assert counters.summary(3 * S).groups["readers"].unavailability.longest_us == 2 * S
    without = counters.summary(4 * S).groups["readers"].unavailability
    assert (without.count, without.total_us, without.longest_us) == (1, 3 * S, 3 * S)


def test_a_partition_shared_by_many_is_without_an_owner_when_all_are_gone() -> None:
    events = [
        assigned(0), assigned(0, member="b", node="b"), revoked(S), revoked(2 * S, member="b"),
        assigned(3 * S, member="b", node="b"),
    ]  # fmt: skip
    group = readers(events, 4 * S)
    assert (group.unavailability.count, group.unavailability.total_us) == (1, S)
    assert group.rebalances.moved == 0


def test_faults_are_listed_up_to_a_thousand_and_counted() -> None:
    events = [Event(0, n, "link_cut", node=f"n{n}", detail="to b") for n in range(1_200)]
    summary = summary_of([*events, Event(0, 1_300, "node_paused", node="a")], S)
    assert (len(summary.faults), summary.fault_count) == (1_000, 1_201)
    fault = summary.faults[7]
    assert (fault.at_us, fault.kind, fault.node, fault.detail) == (7, "link_cut", "n7", "to b")


def test_what_went_wrong_on_the_way_in_is_counted() -> None:
    events = [
        event(0, "given_up", producer="p", base_offset=0, count=3, detail="too late"),
        event(S, "given_up", producer="p", base_offset=3, count=4, detail="too late"),
        event(S, "deduplicated", producer="p", count=5),
        event(S, "removed", base_offset=0, count=6, detail="delete"),
    ]
    summary = summary_of(events, 2 * S)
    assert (summary.given_up, summary.deduplicated, summary.removed) == (7, 5, 6)
    assert [(loss.second, loss.kind, loss.records) for loss in summary.losses] == [
        (0, "given_up", 3),
        (1, "given_up", 4),
    ]


# Rules against the plain way


@settings(max_examples=300)
@given(st.data())
def test_a_reader_knows_what_is_done_and_up_to_where_all_of_it(data: st.DataObject) -> None:
    """After each range, in whatever portions the ranges come."""
    cuts = data.draw(st.lists(st.integers(1, 60), unique=True).map(sorted))
    spans = list(zip([0, *cuts], [*cuts, 61], strict=True))
    ranges = data.draw(st.permutations(spans))[: data.draw(st.integers(0, len(spans)))]
    reader, done = Reader(0), set[int]()
    while ranges:
        size = data.draw(st.integers(1, len(ranges)))
        part, ranges = ranges[:size], ranges[size:]
        starts, ends = np.array(part, np.int64).T
        reach, beyond, new = reader.finish(starts, ends)
        for index, (start, end) in enumerate(part):
            assert (reach[index], beyond[index]) == ahead(done)
            done.update(range(start, end))
            assert new[index] == end - start
        assert (reach[-1], beyond[-1]) == ahead(done) == (reader.reach, reader.beyond())


def ahead(done: set[int]) -> tuple[int, int]:
    """Up to where all is done, and how much beyond."""
    first = next(number for number in range(100) if number not in done)
    return first, len(done) - first


DURATIONS = st.one_of(st.integers(0, 200), st.integers(0, 2 * S), st.integers(0, 10**11))


@given(
    st.lists(st.tuples(st.integers(0, 100_000 * S), DURATIONS, st.integers(1, 9)), min_size=1),
    st.sampled_from([0.01, 0.5, 0.9, 0.99, 0.999, 1.0]),
)
def test_percentiles_are_at_most_a_hundredth_off(
    seen: list[tuple[int, int, int]], share: float
) -> None:
    spread = Spread()
    for part in (seen[::2], seen[1::2]):
        spread.add(*(np.array([each[n] for each in part], np.int64) for n in range(3)))
    found = latency(spread.slices())
    values = [duration for _, duration, weight in seen for _ in range(weight)]
    assert found.records == len(values)
    assert found.max_us == max(values)
    exact = figures.percentile(values, share)
    assert found.percentile_us(share) == pytest.approx(exact, rel=0.01)


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 9)), min_size=1), st.data())
def test_whole_seconds_minutes_and_hours_can_be_left_out(
    seen: list[tuple[int, int]], data: st.DataObject
) -> None:
    spread = Spread()
    times = np.array([second for second, _ in seen], np.int64) * S
    spread.add(times, np.array([took for _, took in seen], np.int64), np.ones_like(times))
    wholes = st.one_of(
        st.integers(0, 120), st.integers(2, 120).map(lambda m: 60 * m),
        st.integers(2, 9).map(lambda h: 3_600 * h),
    )  # fmt: skip
    after = data.draw(wholes)
    left = [took for second, took in seen if second >= after]
    found = latency(spread.slices()).percentile_us(1.0, after * S)
    assert found == (pytest.approx(max(left), rel=0.01) if left else None)


# Whole runs against the plain way


RUNS = (
    [("storm", seed) for seed in range(4)]
    + [(kind, seed) for kind in ("exclusive", "shared", "key_shared") for seed in range(2)]
    + [("broadcast", seed) for seed in (1, 3)]
    + [("several", seed) for seed in range(3)]
)


def counted(kind: str, seed: int, sizes: Iterable[int] = ()) -> Summary:
    """Count the events of a run, in batches of some sizes, or as they are."""
    table, _, now_us = run(kind, seed)
    counters = Counters(["readers"] if kind == "broadcast" else [])
    for size in sizes:
        for batch in table.slice(0, size).combine_chunks().to_batches():
            counters.add(batch)
        table = table.slice(size)
    for batch in table.combine_chunks().to_batches():
        counters.add(batch)
    return counters.summary(now_us)


@pytest.mark.parametrize(("kind", "seed"), RUNS)
def test_the_figures_of_a_run_are_those_of_looking_at_each_record(kind: str, seed: int) -> None:
    _, events, now_us = run(kind, seed)
    plain = figures.Plain(("readers",) if kind == "broadcast" else ()).run(events, now_us)
    summary = counted(kind, seed)
    assert list(summary.groups) == sorted(plain.groups)
    assert any(any(series) for series in plain.ages_us.values())
    for name, group in summary.groups.items():
        assert list(group.lag_records.series) == plain.records[name], name
        assert list(group.lag_us.series) == plain.ages_us[name], name
        behind = group.lag_records.final, group.lag_us.final
        assert behind == plain.behind(name, now_us), name
        assert group.redelivered == plain.redelivered[name], name
        assert group.lost == plain.lost[name], name
        for found, seen in (
            (group.delivery_latency, plain.delivery_us[name]),
            (group.acknowledgement_latency, plain.acknowledgement_us[name]),
        ):
            for after_us in (0, 5 * S):
                took = [took_us for time_us, took_us in seen if time_us >= after_us]
                for share in (0.5, 0.9, 0.99, 0.999, 1.0) if took else ():
                    exact = figures.percentile(took, share)
                    assert found.percentile_us(share, after_us) == pytest.approx(exact, rel=0.01)
            assert found.records == len(seen)


@settings(max_examples=8)
@given(st.sampled_from(RUNS), st.lists(st.integers(0, 400), max_size=12))
def test_where_batches_begin_and_end_does_not_matter(
    what: tuple[str, int], sizes: list[int]
) -> None:
    assert counted(*what, sizes) == counted(*what)


def test_a_summary_on_the_way_changes_nothing_that_comes() -> None:
    table, events, now_us = run("several", 0)
    counters = Counters()
    for start in range(0, len(table), 997):
        part = table.slice(start, 997).combine_chunks()
        for batch in part.to_batches():
            counters.add(batch)
        assert counters.summary(events[min(start + 997, len(table)) - 1].time_us).events
    assert counters.summary(now_us) == counted("several", 0)


@pytest.mark.parametrize("what", RUNS[::4])
def test_a_summary_goes_through_json(what: tuple[str, int]) -> None:
    summary = counted(*what)
    assert Summary.from_dict(json.loads(json.dumps(summary.to_dict()))) == summary


# Long runs


def long_run(hours: int) -> list[Event]:
    """A batch a second, consumed at once by one group; another one comes when half is over."""
    events = [assigned(0)]
    half = hours * 1_800
    for second in range(hours * 3_600):
        events.append(appended(second * S, 10 * second, 10))
        events.append(committed(second * S + 5, 10 * second, 10, second * S))
        if second >= half:
            behind = second - half
            if second == half:
                events.append(assigned(second * S + 6, 0, group="late"))
            events.append(committed(second * S + 7, 10 * behind, 10, behind * S, group="late"))
    return events


def test_what_all_have_consumed_takes_little_room_and_serves_who_comes_late() -> None:
    """Append times of what was consumed long before are at most ten seconds off."""
    batch = batch_of(long_run(2))
    whole, pieces = Counters(), Counters()
    whole.add(batch)
    for start in range(0, batch.num_rows, 1_013):
        pieces.add(batch.slice(start, 1_013))
    summary = whole.summary(7_200 * S)
    assert pieces.summary(7_200 * S) == summary
    early, late = summary.groups["readers"], summary.groups["late"]
    assert set(early.lag_us.series) == {0}
    assert set(late.lag_records.series) == {0, 35_990 + 10}
    exact = np.array([0] * 3_600 + [3_600 * S] * 3_600)
    off = np.array(late.lag_us.series) - exact
    assert (off[3_600:] >= 0).all()
    assert off.max() <= 10 * S
    [ledger] = whole._ledgers.values()
    assert ledger._appends._size < 5_000


def test_a_listener_counts_while_a_live_cluster_runs() -> None:
    counters = Counters()
    with wt.Cluster.live(7, listener=counters.add, keep=False) as cluster:
        cluster.create_topic("orders")
        group = cluster.group("readers", ["orders"])
        consumer = group.consumer("a")
        producer = cluster.producer("shop")
        for number in range(20):
            producer.send("orders", number).get(timeout=20)
        got = 0
        while got < 20:
            got += len(consumer.poll(timeout=5))
        consumer.commit()
        system = cluster.system
        found = system.events.flush(lambda: counters.summary(system.now_us)).groups["readers"]
    assert found.delivered.records.total == found.acknowledged.records.total == 20
    assert found.lag_records.final == 0
