"""A rolling restart of 8 consumers over 64 partitions: what stops, by protocol."""

from collections import defaultdict
from typing import Any

import pytest

import wavetank as wt

CONSUMERS, PARTITIONS = 8, 64


def rolling_restart(assignor: str, static: bool = False) -> list[wt.Event]:
    """Restart one consumer after the other; give the events of that time."""
    with wt.Cluster.simulated(seed=11, brokers=3) as cluster:
        cluster.create_topic("orders", partitions=PARTITIONS)
        cluster.producer("load", load=wt.Load("orders", wt.Constant(2_000)))
        group = cluster.group("g", ["orders"], assignor=assignor, session_timeout_ms=10_000)
        for number in range(CONSUMERS):
            name = f"c{number}"
            group.consumer(
                name,
                service=wt.ConstantService("50us"),
                group_instance_id=name if static else None,
            )
        group.assignment()
        cluster.run(for_=10)
        first = len(cluster.events)
        for number in range(CONSUMERS):
            handle = group.consumers[f"c{number}"]
            handle.close() if not static else cluster.system.crash(handle.name)
            cluster.run(for_=5)
            if static:
                cluster.system.restart(handle.name)
            else:
                group.consumer(handle.name, service=wt.ConstantService("50us"))
            cluster.run(for_=20)
        group.assignment()
        assert not cluster.events.of("failed", "unhandled")
        return list(cluster.events)[first:]


def stops(events: list[wt.Event]) -> dict[int | None, set[Any]]:
    """Which partitions somebody had to give up in each generation, but for who went himself."""
    found: dict[int | None, set[Any]] = defaultdict(set)
    for event in events:
        if event.kind == "revoked" and event.detail not in ("left", "stopped"):
            found[event.epoch].add(event.partition)
    return found


def test_eager_stops_everything_each_time() -> None:
    events = rolling_restart("range")
    rebalances = [e for e in events if e.kind == "rebalance_started"]
    assert len(rebalances) == 2 * CONSUMERS, "one for each that goes, one for each that comes"
    given_up = stops(events)
    assert len(given_up) == 2 * CONSUMERS
    own = PARTITIONS // CONSUMERS
    # All that the others had: 64 but for the eight of who has gone, or all 64 when one comes.
    assert sorted({len(partitions) for partitions in given_up.values()}) == [
        PARTITIONS - own,
        PARTITIONS,
    ]


def test_cooperative_stops_only_what_moves() -> None:
    events = rolling_restart("cooperative-sticky")
    given_up = stops(events)
    own = PARTITIONS // CONSUMERS
    # When one goes its eight are handed out and nobody stops; when one comes it gets eight.
    assert {len(partitions) for partitions in given_up.values()} == {own}
    assert len(given_up) == CONSUMERS


def test_static_members_stop_nothing_at_all() -> None:
    events = rolling_restart("range", static=True)
    assert not [e for e in events if e.kind == "rebalance_started"]
    assert not stops(events)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_in_either_way_every_record_is_consumed_once(assignor: str) -> None:
    events = rolling_restart(assignor)
    last: dict[Any, int] = {}
    for event in events:
        if event.kind == "delivered":
            where = event.partition
            assert last.get(where, event.base_offset) == event.base_offset
            last[where] = event.base_offset + event.count
    assert len(last) == PARTITIONS
