"""The assignors of groups on disks, above all those that are functions and cannot be stored."""

from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE

import wavetank as wt
from helpers.clusters import QUICK
from wavetank.model.errors import BadValueError


def opened(folder: Path) -> wt.Cluster:
    return wt.Cluster.live(data_dir=folder, broker_heartbeat_interval_ms=100)


def last_takes_all(members: Any, partitions: Any) -> dict[str, Any]:
    """Assign everything to the last member."""
    *others, last = sorted(member.id for member in members)
    everything = [wt.TopicPartition(t, p) for t in partitions for p in range(partitions[t])]
    return {last: everything, **dict.fromkeys(others, ())}


def assigned(group: Any) -> list[int]:
    """How many partitions each of two consumers gets, once both have joined."""
    for name in ("reader-0", "reader-1"):
        group.consumer(name)
    view = group.describe
    group._cluster.run_until(
        lambda: view().state == "Stable" and len(view().members) == 2, DEADLINE
    )
    return sorted(len(partitions) for partitions in view().members.values())


def test_a_group_uses_the_function_that_it_is_given_again(tmp_path: Path) -> None:
    for _ in range(2):
        with opened(tmp_path) as cluster:
            if "orders" not in cluster.metadata().topics:
                cluster.create_topic("orders", 4)
            group = cluster.group("readers", ["orders"], assignor=last_takes_all, **QUICK)
            assert assigned(group) == [0, 4]
            assert group.describe().assignor == "last_takes_all"


@pytest.mark.parametrize("how", ["created", "changed"])
def test_a_group_is_refused_if_its_assignor_was_a_function_that_is_not_given_again(
    tmp_path: Path, how: str
) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("orders", 4)
        given: Any = {"assignor": last_takes_all} if how == "created" else {}
        group = cluster.group("readers", ["orders"], **given)
        if how == "changed":
            group.set_assignor(last_takes_all)
            group.consumer("reader").wait_ready()
    for _ in range(2):
        with opened(tmp_path) as cluster:
            assert cluster.describe_group("readers").assignor == "last_takes_all"
            with pytest.raises(
                BadValueError,
                match=r"group 'readers': its assignor is the function 'last_takes_all', which is "
                "not stored: expected it as the assignor again, or the name of another one",
            ):
                cluster.group("readers", ["orders"])
    with opened(tmp_path) as cluster:
        group = cluster.group("readers", ["orders"], assignor="range", **QUICK)
        assert assigned(group) == [2, 2]
    with opened(tmp_path) as cluster:
        assert cluster.group("readers", ["orders"]).describe().assignor == "range"


@pytest.mark.parametrize("kind", ["function", "shared"])
def test_a_group_keeps_its_assignor_when_controller_and_coordinator_crash(kind: str) -> None:
    options: Any = {"assignor": last_takes_all} if kind == "function" else {"delivery": "shared"}
    with wt.Cluster.simulated(storage="disk") as cluster:
        cluster.create_topic("orders", 4)
        group = cluster.group("readers", ["orders"], **options)
        group.consumer("reader-0")
        cluster.run(for_=5)
        for node in ("controller", "broker-0"):
            cluster.system.crash(node)
        for node in ("controller", "broker-0"):
            cluster.system.restart(node)
        cluster.run(for_=5)
        group.consumer("reader-1")
        cluster.run(for_=60)
        view = group.describe()
        counts = sorted(len(partitions) for partitions in view.members.values())
        assert counts == ([0, 4] if kind == "function" else [4, 4])
        assert view.assignor == ("last_takes_all" if kind == "function" else "everyone")
