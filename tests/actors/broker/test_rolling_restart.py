"""A rolling restart of 8 consumers with 64 partitions: which partitions each protocol stops."""

from collections import defaultdict
from typing import Any

import pytest

import wavetank as wt

CONSUMERS, PARTITIONS = 8, 64


def rolling_restart(assignor: str, static: bool = False) -> list[wt.Event]:
    """Restart one consumer after the other; return the events since the first restart."""
    with wt.Cluster.simulated(seed=11, brokers=3) as cluster:
        cluster.create_topic("orders", partitions=PARTITIONS)
        cluster.producer("load", load=wt.load.Load("orders", wt.load.Constant(2_000)))
        group = cluster.group("g", ["orders"], assignor=assignor, session_timeout_ms=10_000)
        for number in range(CONSUMERS):
            name = f"c{number}"
            group.consumer(
                name,
                service=wt.load.ConstantService("50us"),
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
                group.consumer(handle.name, service=wt.load.ConstantService("50us"))
            cluster.run(for_=20)
        group.assignment()
        assert not cluster.events.of("failed", "unhandled")
        return list(cluster.events)[first:]


def revoked(events: list[wt.Event]) -> dict[int | None, set[Any]]:
    """The partitions that were revoked in each generation from members that stayed."""
    found: dict[int | None, set[Any]] = defaultdict(set)
    for event in events:
        if event.kind == "revoked" and event.reason not in ("left", "stopped"):
            found[event.epoch].add(event.partition)
    return found


def test_eager_rebalances_stop_all_partitions() -> None:
    events = rolling_restart("range")
    rebalances = [e for e in events if e.kind == "rebalance_started"]
    assert len(rebalances) == 2 * CONSUMERS, "one when a consumer leaves, one when it comes back"
    stopped = revoked(events)
    assert len(stopped) == 2 * CONSUMERS
    own = PARTITIONS // CONSUMERS
    # When one leaves, the partitions of the others; when it comes back, all of them.
    assert sorted({len(partitions) for partitions in stopped.values()}) == [
        PARTITIONS - own,
        PARTITIONS,
    ]


def test_cooperative_rebalances_stop_only_the_partitions_that_move() -> None:
    events = rolling_restart("cooperative-sticky")
    stopped = revoked(events)
    own = PARTITIONS // CONSUMERS
    # When one leaves, only its own partitions move; when it comes back, eight of the others do.
    assert {len(partitions) for partitions in stopped.values()} == {own}
    assert len(stopped) == CONSUMERS


def test_restarts_of_static_members_stop_no_partition() -> None:
    events = rolling_restart("range", static=True)
    assert not [e for e in events if e.kind == "rebalance_started"]
    assert not revoked(events)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_every_record_is_consumed_once_with_either_protocol(assignor: str) -> None:
    events = rolling_restart(assignor)
    last: dict[Any, int] = {}
    for event in events:
        if event.kind == "delivered":
            where = event.partition
            assert last.get(where, event.base_offset) == event.base_offset
            last[where] = event.base_offset + event.count
    assert len(last) == PARTITIONS
