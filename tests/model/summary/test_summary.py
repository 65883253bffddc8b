"""Summaries: tiny logs with known answers, and random runs compared with a plain implementation."""

import json
from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.plain_summary as figures
import wavetank as wt
from helpers.event_logs import (
    acked,
    appended,
    assigned,
    batch_of,
    committed,
    partition_event,
    record_event,
)
from helpers.random_runs import run
from wavetank.model.events.schema import Event
from wavetank.model.summary.counters import Counters
from wavetank.model.summary.lag_tracker import AppendedBatches, RankSet
from wavetank.model.summary.series import DurationHistogram
from wavetank.model.summary.summary import Flow, GroupSummary, Summary, latency

S = 1_000_000
MS = 1_000


# Tiny logs


def delivered(time_us: int, base: int, count: int, since_us: int = 0, **cells: Any) -> Event:
    return record_event("delivered", time_us, base, count, since_us, **cells)


def revoked(time_us: int, **cells: Any) -> Event:
    return partition_event(time_us, "revoked", **{"group": "readers", "member": "a", **cells})


def of_group(time_us: int, kind: str, **cells: Any) -> Event:
    return Event(0, time_us, kind, group="readers", **cells)


def summary_of(events: list[Event], now_us: int, **options: Any) -> Summary:
    counters = Counters(**options)
    counters.add(batch_of(events))
    return counters.summary(now_us)


def readers(events: list[Event], now_us: int, **options: Any) -> GroupSummary:
    return summary_of(events, now_us, **options).groups["readers"]


def test_a_run_without_events_has_a_summary() -> None:
    counters = Counters()
    counters.add(batch_of([]))
    summary = counters.summary(2 * S)
    assert summary.events == summary.appended.records.total == 0
    assert summary.appended.records.series == (0, 0)
    assert summary.groups == {}


def test_traffic_is_counted_for_each_second() -> None:
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


def test_lag_is_appended_minus_committed_at_the_end_of_each_second() -> None:
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


def test_the_final_lag_is_that_at_the_end_even_between_two_seconds() -> None:
    group = readers([assigned(0), appended(S // 4, 0, 7)], S + S // 2)
    assert group.lag_records.series == (7,)
    assert (group.lag_records.final, group.lag_us.final) == (7, S + S // 4)
    assert (group.lag_us.worst, group.lag_us.worst_at_us) == (S + S // 4, S + S // 2)
    assert group.lag_us.worst_after(10 * S) == S + S // 4


def test_the_lag_in_time_is_the_age_of_the_oldest_record_not_acknowledged() -> None:
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


def test_dead_lettered_archived_and_lost_records_are_not_in_the_lag() -> None:
    events = [
        assigned(0),
        appended(100, 0, 9),
        acked(200, 0, 1, 100),
        record_event("nacked", 210, 1, 2, 100),
        record_event("ack_timed_out", 220, 3, 2, 100),
        record_event("dead_lettered", S + 1, 1, 2, 100),
        record_event("archived", 2 * S + 1, 3, 2, 100),
        record_event("lost", 3 * S + 1, 5, 3, 100, epoch=0, reason="removed"),
    ]
    group = readers(events, 4 * S)
    assert group.lag_records.series == (8, 6, 4, 1)
    assert (group.nacked, group.ack_timed_out, group.dead_lettered, group.archived) == (2, 2, 2, 2)
    assert group.lost == 3


def test_older_records_are_not_in_the_lag_of_a_group_that_begins_with_the_latest() -> None:
    events = [appended(0, 0, 50), appended(0, 50, 50), assigned(10, 80), appended(20, 100, 5)]
    group = readers(events, S)
    assert group.lag_records.final == 25
    assert group.partitions == 1


def test_a_group_has_no_lag_before_it_has_a_position() -> None:
    events = [appended(0, 0, 50), assigned(3 * S // 2)]
    group = readers(events, 2 * S)
    assert group.lag_records.series == (0, 50)
    assert group.lag_us.series == (0, 2 * S)


def test_a_first_commit_acknowledges_only_records_since_the_first_position() -> None:
    """The event of a first commit covers all records before it, wherever the group began."""
    reset = partition_event(
        10, "offset_reset", group="readers", member="a", base_offset=80, reason="latest"
    )
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


def test_a_reset_removes_earlier_records_from_the_lag() -> None:
    reset = partition_event(
        S, "offset_reset", group="readers", member="a", base_offset=100, reason="latest"
    )
    events = [assigned(0), appended(1, 0, 100), reset, appended(S, 100, 3)]
    assert readers(events, 2 * S).lag_records.series == (100, 3)


def test_a_lost_log_is_not_in_the_lag_and_continues_above_a_gap() -> None:
    events = [
        assigned(0),
        appended(1, 0, 10),
        committed(2, 0, 4, 1),
        partition_event(S // 2, "lost", base_offset=0, count=10, reason="unreplicated, in memory"),
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


def test_a_gap_left_by_compaction_is_not_in_the_lag() -> None:
    events = [assigned(0), appended(1, 0, 10), committed(2, 0, 3, 1), committed(2, 7, 3, 1)]
    group = readers(events, S)
    assert (group.lag_records.final, group.lag_us.final) == (0, 0)
    assert group.acknowledged.records.total == 6


def test_a_removed_subscription_has_no_lag_until_it_returns() -> None:
    gone = partition_event(
        S, "subscription_removed", group="readers", reason="time to live expired"
    )
    events = [assigned(0), appended(1, 0, 10), gone, assigned(2 * S, 4)]
    group = readers(events, 3 * S)
    assert group.lag_records.series == (10, 0, 6)
    assert group.partitions == 1


def test_a_deleted_topic_is_not_in_the_lag_and_a_new_one_of_its_name_begins_at_zero() -> None:
    events = [
        assigned(0),
        appended(1, 0, 10),
        Event(0, S, "topic_deleted", topic="orders"),
        assigned(2 * S, 0),
        appended(2 * S, 0, 3),
    ]
    assert readers(events, 3 * S).lag_records.series == (10, 0, 3)


def test_lag_is_the_sum_over_partitions_in_records_and_the_maximum_in_time() -> None:
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


def test_the_lag_of_a_broadcast_group_is_that_of_the_consumer_furthest_behind() -> None:
    events = [
        assigned(0),
        assigned(0, member="b#2", consumer="b"),
        appended(1, 0, 10),
        acked(2, 0, 10, 1),
        acked(2, 0, 4, 1, member="b"),
        partition_event(S, "subscription_removed", group="readers", consumer="b"),
    ]
    group = readers(events, 2 * S, broadcast=["readers"])
    assert group.lag_records.series == (6, 0)
    assert group.acknowledged.records.total == 14


def test_redelivered_records_have_a_retry_count_or_a_lower_offset() -> None:
    reset = partition_event(
        0, "offset_reset", group="readers", member="a", base_offset=0, reason="earliest"
    )
    commits = [reset, assigned(0), appended(1, 0, 30)]
    commits += [delivered(2, 0, 10), delivered(3, 10, 10), delivered(4, 5, 10), delivered(5, 15, 9)]
    assert readers(commits, S).redelivered == 15
    acks = [assigned(0), appended(1, 0, 30)]
    acks += [delivered(2, 10, 10), delivered(3, 0, 10), delivered(4, 0, 3, retries=2)]
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


def test_records_that_wait_for_delivery_count_in_the_latency_with_their_age() -> None:
    """A group that falls behind must not look fast because it delivered little."""
    events = [assigned(0), appended(0, 0, 100), delivered(10 * MS, 0, 60)]
    group = readers(events, 4 * S).delivery_latency
    assert (group.records, group.waiting) == (60, 40)
    assert group.p50_us == pytest.approx(10 * MS, rel=0.01)
    assert group.p90_us == group.p99_us == group.p999_us == pytest.approx(4 * S, rel=0.01)
    assert group.max_us == 4 * S
    assert group.lower_bounds == ("p90_us", "p99_us", "p999_us", "max_us")
    assert group.percentile_us(0.5, after_us=S) == pytest.approx(4 * S, rel=0.01)


def test_a_few_records_on_their_way_at_the_end_do_not_make_a_percentile_a_lower_bound() -> None:
    events = [assigned(0), appended(0, 0, 995), delivered(S, 0, 990)]
    group = readers(events, S + 1).delivery_latency
    assert group.waiting == 5
    assert group.lower_bounds == ("p999_us", "max_us")
    assert not group.is_lower_bound(0.99)
    assert group.is_lower_bound(0.999)


def test_records_that_wait_for_acknowledgement_count_with_their_age() -> None:
    events = [
        assigned(0), appended(0, 0, 10), delivered(S, 0, 10), acked(S, 2, 5, 0),
        record_event("dead_lettered", S, 7, 1, 0),
    ]  # fmt: skip
    group = readers(events, 3 * S)
    assert (group.delivery_latency.waiting, group.acknowledgement_latency.waiting) == (0, 4)
    assert group.acknowledgement_latency.p99_us == pytest.approx(3 * S, rel=0.01)


def test_a_delivery_gap_lasts_while_records_wait_and_none_is_delivered() -> None:
    reset = partition_event(0, "offset_reset", group="readers", member="a", base_offset=0)
    events = [
        reset, assigned(0),
        appended(S, 0, 10), delivered(S + 1, 0, 10, S),
        appended(5 * S, 10, 10), delivered(5 * S + 1, 10, 5, 5 * S),  # nothing waited before
        delivered(7 * S + 1, 15, 5, 5 * S),
        appended(8 * S, 20, 1), appended(10 * S, 21, 1),
        delivered(11 * S, 0, 1, S),  # a redelivery is a delivery
    ]  # fmt: skip
    gaps = readers(events, 13 * S + 500).undelivered
    assert [(gap.at_us, gap.lasted_us) for gap in gaps.outages] == [
        (S, 1), (5 * S, 1), (5 * S + 1, 2 * S), (8 * S, 3 * S), (11 * S, 2 * S + 500),
    ]  # fmt: skip
    assert (gaps.longest_us, gaps.longest_at_us) == (3 * S, 8 * S)
    longest = gaps.longest_after(12 * S)
    assert longest is not None
    assert (longest.at_us, longest.lasted_us, longest.topic) == (12 * S, S + 500, "orders")


def test_a_paused_owner_leaves_a_gap_although_the_partition_has_an_owner() -> None:
    events = [assigned(0), appended(S, 0, 10), Event(0, S, "node_paused", node="a")]
    group = readers(events, 43 * S)
    assert group.unowned.longest_us == 0
    assert group.undelivered.longest_us == 42 * S


def test_a_delivery_gap_counts_only_while_the_group_has_members() -> None:
    events = [
        of_group(0, "member_joined", member="a"), assigned(0), appended(S, 0, 10),
        of_group(3 * S, "member_left", member="a"),
        of_group(9 * S, "member_joined", member="b"),
        delivered(10 * S, 0, 10, S, member="b"),
    ]  # fmt: skip
    [gap] = readers(events, 20 * S).undelivered.outages
    assert (gap.at_us, gap.lasted_us) == (S, 2 * S)
    still_there = [of_group(0, "member_joined", member="c"), *events]
    assert readers(still_there, 20 * S).undelivered.longest_us == 9 * S


def test_a_delivery_gap_ends_when_its_records_are_lost_skipped_or_deleted() -> None:
    start = [assigned(0), appended(S, 0, 10)]
    ends = [
        partition_event(3 * S, "lost", base_offset=0, count=10, reason="in memory"),
        partition_event(3 * S, "offset_reset", group="readers", member="a", base_offset=10),
        partition_event(3 * S, "subscription_removed", group="readers"),
        Event(0, 3 * S, "topic_deleted", topic="orders"),
    ]
    for end in ends:
        assert readers([*start, end], 9 * S).undelivered.longest_us == 2 * S, end.kind
        assert readers([*start, end], 9 * S).delivery_latency.waiting == 0, end.kind


def test_figures_leave_out_the_warm_up() -> None:
    events = [
        of_group(0, "rebalance_started"),
        assigned(0), appended(0, 0, 100), revoked(S, member="a"),
        delivered(S, 0, 50), committed(S, 0, 50, 0),
        of_group(3 * S, "rebalance_completed", count=1),
        assigned(4 * S, 50, member="b"), delivered(4 * S, 0, 20, member="b"),
        delivered(4 * S, 50, 50, member="b"), committed(5 * S, 50, 50, 0, member="b"),
        appended(7 * S, 100, 10), delivered(7 * S + 1, 95, 15, 7 * S),
        committed(7 * S + 2, 100, 10, 7 * S),
    ]  # fmt: skip
    whole, late = (summary_of(events, 9 * S, warm_up_us=us) for us in (0, 6 * S))
    assert (whole.warm_up_us, late.warm_up_us) == (0, 6 * S)
    records = late.appended.records
    assert (records.total, records.peak, records.mean) == (10, 10, 10 / 3)
    assert records.series == whole.appended.records.series
    early, group = whole.groups["readers"], late.groups["readers"]
    assert (early.lag_us.worst, group.lag_us.worst) == (5 * S, 0)
    assert group.lag_us.series == early.lag_us.series
    assert (early.delivery_latency.max_us, group.delivery_latency.max_us) == (4 * S, 1)
    assert (early.delivery_latency.records, group.delivery_latency.records) == (135, 15)
    assert (early.redelivered, group.redelivered) == (25, 5)
    assert (early.rebalances.count, group.rebalances.count) == (1, 0)
    assert (early.unowned.total_us, group.unowned.total_us) == (3 * S, 0)
    assert early.rebalances.moved > group.rebalances.moved
    assert (early.undelivered.longest_us, group.undelivered.longest_us) == (3 * S, 1)
    partly = summary_of(events, 9 * S, warm_up_us=2 * S).groups["readers"]
    assert (partly.unowned.longest_us, partly.unowned.longest_at_us) == (2 * S, 2 * S)
    assert (partly.undelivered.longest_us, partly.undelivered.longest_at_us) == (2 * S, 2 * S)
    assert partly.rebalances.total_us == S


def test_rebalances_are_timed_and_moved_partitions_counted() -> None:
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
    outages = group.unowned
    assert (outages.count, outages.total_us) == (2, 70 * MS - 2)
    assert (outages.longest_us, outages.longest_at_us) == (40 * MS - 1, S + 1)


@pytest.mark.parametrize(
    "end",
    [
        Event(0, S, "node_crashed", node="a"),
        of_group(S, "member_left", member="a"),
        revoked(S),
    ],
)
def test_an_outage_lasts_from_the_loss_of_the_owner_to_the_next_assignment(end: Event) -> None:
    late = [revoked(2 * S), assigned(3 * S, member="b", node="b"), revoked(4 * S)]
    outages = readers([assigned(0), end, *late], 5 * S).unowned
    assert (outages.count, outages.longest_us, outages.longest_at_us) == (1, 2 * S, S)
    longest = outages.longest_after(2 * S)
    assert longest is not None
    assert (longest.at_us, longest.lasted_us, longest.topic) == (2 * S, S, "orders")
    assert outages.longest_after(3 * S) is None


def test_an_outage_that_has_not_ended_counts_up_to_now() -> None:
    counters = Counters()
    counters.add(batch_of([assigned(0), revoked(S)]))
    assert counters.summary(3 * S).groups["readers"].unowned.longest_us == 2 * S
    outages = counters.summary(4 * S).groups["readers"].unowned
    assert (outages.count, outages.total_us, outages.longest_us) == (1, 3 * S, 3 * S)


def test_a_shared_partition_has_an_outage_only_without_any_owner() -> None:
    events = [
        assigned(0), assigned(0, member="b", node="b"), revoked(S), revoked(2 * S, member="b"),
        assigned(3 * S, member="b", node="b"),
    ]  # fmt: skip
    group = readers(events, 4 * S)
    assert (group.unowned.count, group.unowned.total_us) == (1, S)
    assert group.rebalances.moved == 0


def test_faults_are_listed_up_to_a_thousand_and_counted() -> None:
    events = [Event(0, n, "link_cut", node=f"n{n}", peer="b") for n in range(1_200)]
    summary = summary_of([*events, Event(0, 1_300, "node_paused", node="a")], S)
    assert (len(summary.faults), summary.fault_count) == (1_000, 1_201)
    fault = summary.faults[7]
    assert (fault.at_us, fault.kind, fault.node, fault.peer) == (7, "link_cut", "n7", "b")


def test_what_brokers_found_on_their_disks_is_counted() -> None:
    events = [
        Event(0, 0, "log_recovered", topic="orders", partition=0, count=0, total=9),
        Event(1, 5, "log_recovered", topic="orders", partition=0, count=40, total=700),
        Event(2, 5, "log_recovered", topic="orders", partition=1, count=2, total=30),
        Event(3, 5, "log_truncated", topic="orders", partition=1),
        Event(4, 9, "log_damaged", topic="orders", partition=0, base_offset=3, count=10),
    ]
    found = summary_of(events, S).recovery
    assert (found.logs, found.records, found.longest_us) == (2, 42, 700)
    assert (found.truncated, found.damaged) == (1, 10)


def test_given_up_deduplicated_and_removed_records_are_counted() -> None:
    events = [
        partition_event(0, "given_up", producer="p", base_offset=0, count=3, reason="too late"),
        partition_event(S, "given_up", producer="p", base_offset=3, count=4, reason="too late"),
        partition_event(S, "deduplicated", producer="p", count=5),
        partition_event(S, "removed", base_offset=0, count=6, reason="delete"),
    ]
    summary = summary_of(events, 2 * S)
    assert (summary.given_up, summary.deduplicated, summary.removed) == (7, 5, 6)
    assert [(loss.second, loss.kind, loss.records) for loss in summary.losses] == [
        (0, "given_up", 3),
        (1, "given_up", 4),
    ]


# Parts compared with a plain implementation


@settings(max_examples=300)
@given(st.data())
def test_a_position_counts_records_done_and_the_rank_up_to_which_all_are(
    data: st.DataObject,
) -> None:
    """After each range, however the ranges are divided over calls."""
    cuts = data.draw(st.lists(st.integers(1, 60), unique=True).map(sorted))
    spans = list(zip([0, *cuts], [*cuts, 61], strict=True))
    ranges = data.draw(st.permutations(spans))[: data.draw(st.integers(0, len(spans)))]
    reader, done = RankSet(0), set[int]()
    while ranges:
        size = data.draw(st.integers(1, len(ranges)))
        part, ranges = ranges[:size], ranges[size:]
        starts, ends = np.array(part, np.int64).T
        reach, beyond, new = reader.add(starts, ends)
        for index, (start, end) in enumerate(part):
            assert (reach[index], beyond[index]) == ahead(done)
            done.update(range(start, end))
            assert new[index] == end - start
        assert (reach[-1], beyond[-1]) == ahead(done) == (reader.reach, reader.beyond())


@settings(max_examples=300)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=9)),
    st.integers(0, 5),
)
def test_a_set_of_ranks_covers_ranges_that_overlap(
    parts: list[list[tuple[int, int]]], first: int
) -> None:
    """After each range, however the ranges are divided over calls."""
    known, covered = RankSet(first), set(range(first))
    for part in parts:
        starts, sizes = np.array(part, np.int64).T
        reach = known.cover(starts, starts + sizes)
        for index, (start, size) in enumerate(part):
            assert reach[index] == ahead(covered)[0]
            covered.update(range(start, start + size))
        assert (known.reach, known.beyond()) == ahead(covered)
    batches = AppendedBatches()
    base = np.arange(0, 60, 3)
    batches.extend(base, base, np.full(len(base), 3), 10 * base)
    found = batches.missing_from(known)
    missing = [10 * (rank // 3 * 3) for rank in range(60) if rank not in covered]
    assert np.repeat(found.append_us, found.count).tolist() == missing


def ahead(done: set[int]) -> tuple[int, int]:
    """Return the rank up to which all is done, and the number of records done beyond."""
    first = next(number for number in range(100) if number not in done)
    return first, len(done) - first


DURATIONS = st.one_of(st.integers(0, 200), st.integers(0, 2 * S), st.integers(0, 10**11))


@given(
    st.lists(st.tuples(st.integers(0, 100_000 * S), DURATIONS, st.integers(1, 9)), min_size=1),
    st.sampled_from([0.01, 0.5, 0.9, 0.99, 0.999, 1.0]),
)
def test_percentiles_are_at_most_one_percent_off(
    seen: list[tuple[int, int, int]], share: float
) -> None:
    histogram = DurationHistogram()
    for part in (seen[::2], seen[1::2]):
        histogram.add(*(np.array([each[n] for each in part], np.int64) for n in range(3)))
    found = latency(histogram.slices())
    values = [duration for _, duration, weight in seen for _ in range(weight)]
    assert found.records == len(values)
    assert found.max_us == max(values)
    exact = figures.percentile(values, share)
    assert found.percentile_us(share) == pytest.approx(exact, rel=0.01)


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 9)), min_size=1), st.data())
def test_percentiles_can_leave_out_seconds_minutes_and_hours(
    seen: list[tuple[int, int]], data: st.DataObject
) -> None:
    histogram = DurationHistogram()
    times = np.array([second for second, _ in seen], np.int64) * S
    histogram.add(times, np.array([took for _, took in seen], np.int64), np.ones_like(times))
    wholes = st.one_of(
        st.integers(0, 120), st.integers(2, 120).map(lambda m: 60 * m),
        st.integers(2, 9).map(lambda h: 3_600 * h),
    )  # fmt: skip
    after = data.draw(wholes)
    left = [took for second, took in seen if second >= after]
    found = latency(histogram.slices()).percentile_us(1.0, after * S)
    assert found == (pytest.approx(max(left), rel=0.01) if left else None)


# Whole runs compared with a plain implementation


RUNS = (
    [("storm", seed) for seed in range(4)]
    + [(kind, seed) for kind in ("exclusive", "shared", "key_shared") for seed in range(2)]
    + [("broadcast", seed) for seed in (1, 3)]
    + [("several", seed) for seed in range(3)]
)


def counted(kind: str, seed: int, sizes: Iterable[int] = ()) -> Summary:
    """Count the events of a run, in batches of the given sizes, or as they are."""
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
def test_the_summary_of_a_run_equals_one_made_record_by_record(kind: str, seed: int) -> None:
    _, events, now_us = run(kind, seed)
    plain = figures.PlainSummary(("readers",) if kind == "broadcast" else ()).run(events, now_us)
    summary = counted(kind, seed)
    assert list(summary.groups) == sorted(plain.groups)
    assert any(any(series) for series in plain.ages_us.values())
    for name, group in summary.groups.items():
        assert list(group.lag_records.series) == plain.records[name], name
        assert list(group.lag_us.series) == plain.ages_us[name], name
        behind = group.lag_records.final, group.lag_us.final
        assert behind == plain.lag(name, now_us), name
        assert group.redelivered == plain.redelivered[name], name
        assert group.lost == plain.lost[name], name
        undelivered, unacknowledged = plain.waiting_us(name)
        for found, seen, waiting in (
            (group.delivery_latency, plain.delivery_us[name], undelivered),
            (group.acknowledgement_latency, plain.acknowledgement_us[name], unacknowledged),
        ):
            assert found.waiting == len(waiting)
            for after_us in (0, 5 * S):
                took = [took_us for time_us, took_us in seen if time_us >= after_us]
                took += waiting
                for share in (0.5, 0.9, 0.99, 0.999, 1.0) if took else ():
                    exact = figures.percentile(took, share)
                    assert found.percentile_us(share, after_us) == pytest.approx(exact, rel=0.01)
            assert found.records == len(seen)
        gaps = sorted(plain.gaps_with_members(name), key=lambda gap: (-gap[1], gap[0]))[:1_000]
        seen_gaps = [attrs.astuple(gap) for gap in group.undelivered.outages]
        assert seen_gaps == sorted(gaps, key=lambda gap: (gap[0], gap[1], gap[2:])), name
    assert any(group.undelivered.longest_us for group in summary.groups.values())


@settings(max_examples=8)
@given(st.sampled_from(RUNS), st.lists(st.integers(0, 400), max_size=12))
def test_a_summary_does_not_depend_on_batching(what: tuple[str, int], sizes: list[int]) -> None:
    assert counted(*what, sizes) == counted(*what)


def test_a_summary_during_the_run_does_not_change_later_ones() -> None:
    table, events, now_us = run("several", 0)
    counters = Counters()
    for start in range(0, len(table), 997):
        part = table.slice(start, 997).combine_chunks()
        for batch in part.to_batches():
            counters.add(batch)
        assert counters.summary(events[min(start + 997, len(table)) - 1].time_us).events
    assert counters.summary(now_us) == counted("several", 0)


@pytest.mark.parametrize("what", RUNS[::4])
def test_a_summary_can_be_written_as_json_and_read_back(what: tuple[str, int]) -> None:
    summary = counted(*what)
    assert Summary.from_dict(json.loads(json.dumps(summary.to_dict()))) == summary


# Long runs


def long_run(hours: int) -> list[Event]:
    """Make events with a batch each second, consumed at once by one group and late by another.

    The second group begins in the middle of the run.
    """
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


def test_old_batches_need_little_memory_and_still_give_the_lag_of_a_late_group() -> None:
    """Append times of records consumed long before are at most ten seconds off."""
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
    [partition_lag] = whole._partitions.values()
    assert partition_lag._appends._size < 5_000


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
        assert sum(group.lag().values()) == 0, "the partition has heard of the commit"
        system = cluster.system
        found = system.events.flush(lambda: counters.summary(system.now_us)).groups["readers"]
    assert found.delivered.records.total == found.acknowledged.records.total == 20
    assert found.lag_records.final == 0


@given(st.lists(st.integers(0, 99)), st.integers(1, 12))
def test_the_peak_over_some_seconds_is_the_largest_mean_of_that_many(
    series: list[int], seconds: int
) -> None:
    width = min(seconds, len(series))
    means = [sum(series[n : n + width]) / width for n in range(len(series) - width + 1) if width]
    assert Flow(series=tuple(series)).peak_over(seconds) == max(means, default=0)
