"""Rebalance listeners: on_assigned, on_revoked and on_lost, on both engines."""

from typing import Any

import pytest

import wavetank as wt
from wavetank.model.errors import BadValueError, HandlerError

DEADLINE = 20
QUICK = {"heartbeat_interval_ms": 20}
SHORT = {"session_timeout_ms": 300}
OUTLASTING = {"session_timeout_ms": 6_000}
"""For live clusters: only a paused member may lose its session, not one that a stall holds up."""


class Heard:
    """Remembers what a listener was told, by partition number."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def listener(self) -> dict[str, Any]:
        def hear(kind: str) -> Any:
            return lambda partitions: self.calls.append((kind, sorted(p for _, p in partitions)))

        return {f"on_{kind}": hear(kind) for kind in ("assigned", "revoked", "lost")}


def make_group(cluster: wt.Cluster, partitions: int = 4, **options: Any) -> wt.ConsumerGroup:
    cluster.create_topic("jobs", partitions=partitions)
    return cluster.group("workers", ["jobs"], **{**QUICK, **options})


def short_session(cluster: wt.Cluster) -> dict[str, int]:
    return SHORT if cluster.system.engine == "simulated" else OUTLASTING


def ignore(records: wt.Records) -> None:
    """Do nothing with records."""


def poll_until(cluster: wt.Cluster, consumer: wt.ConsumerHandle, condition: Any) -> None:
    """Poll until a condition holds."""
    end = cluster.now + DEADLINE
    while not condition():
        assert cluster.now < end
        consumer.poll(timeout="10ms")


# A consumer with a handler


def test_an_eager_member_gives_up_everything_and_gets_its_share_anew(cluster: wt.Cluster) -> None:
    group, heard = make_group(cluster), Heard()
    group.consumer("ann", ignore, **heard.listener()).wait_ready(DEADLINE)
    bob = group.consumer("bob", ignore)
    bob.wait_ready(DEADLINE)
    mine = sorted({0, 1, 2, 3} - {p for _, p in bob.positions()})
    cluster.run_until(lambda: len(heard.calls) >= 3, DEADLINE)
    expected = [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3]), ("assigned", mine)]
    assert heard.calls == expected


def test_a_cooperative_member_hears_only_of_partitions_that_move(cluster: wt.Cluster) -> None:
    group, heard = make_group(cluster, assignor="cooperative-sticky"), Heard()
    group.consumer("ann", ignore, **heard.listener()).wait_ready(DEADLINE)
    bob = group.consumer("bob", ignore)
    bob.wait_ready(DEADLINE)
    moved = sorted(p for _, p in bob.positions())
    changes = [call for call in heard.calls if call[1]]
    assert changes == [("assigned", [0, 1, 2, 3]), ("revoked", moved)]
    assert len(moved) == 2


def test_a_consumer_with_a_service_time_alone_hears_as_well(calm: wt.Cluster) -> None:
    group, heard = make_group(calm), Heard()
    group.consumer("ann", service=wt.load.ConstantService("1ms"), **heard.listener()).wait_ready()
    calm.run(for_=1)
    assert heard.calls == [("assigned", [0, 1, 2, 3])]


@pytest.mark.parametrize("how", ["close", "leave", "unsubscribe"])
def test_a_member_that_leaves_in_order_hears_that_its_partitions_are_revoked(
    cluster: wt.Cluster, how: str
) -> None:
    group, heard = make_group(cluster), Heard()
    ann = group.consumer("ann", ignore, **heard.listener())
    ann.wait_ready(DEADLINE)
    getattr(ann, how)()
    cluster.run_until(lambda: len(heard.calls) >= 2, DEADLINE)
    assert heard.calls == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]


def test_partitions_move_only_after_the_listener_has_been_told(calm: wt.Cluster) -> None:
    group = make_group(calm, partitions=1, assignor=lambda members, counts: {
        member.id: [wt.TopicPartition("jobs", 0)] if member.id == max(m.id for m in members) else []
        for member in members
    })  # fmt: skip
    log: list[tuple[float, str]] = []
    first = {"on_revoked": lambda partitions: log.append((calm.now, "revoked"))}
    second = {"on_assigned": lambda partitions: log.append((calm.now, "assigned"))}
    group.consumer("ann", ignore, **first).wait_ready()
    group.consumer("bob", ignore, **second).wait_ready()
    calm.run(for_=1)
    assert [what for _, what in sorted(log)] == ["revoked", "assigned"]


def test_a_member_whose_session_has_timed_out_has_lost_its_partitions(cluster: wt.Cluster) -> None:
    group, heard = make_group(cluster, **short_session(cluster)), Heard()
    ann = group.consumer("ann", ignore, **heard.listener())
    bob = group.consumer("bob", ignore)
    for each in (ann, bob):
        each.wait_ready(DEADLINE)
    mine = sorted(p for _, p in ann.positions())
    cluster.run_until(lambda: heard.calls[-1:] == [("assigned", mine)], DEADLINE)
    heard.calls.clear()
    cluster.system.pause("ann")
    cluster.run_until(lambda: len(bob.positions()) == 4, DEADLINE)
    cluster.system.resume("ann")
    cluster.run_until(lambda: any(kind == "assigned" for kind, _ in heard.calls), DEADLINE)
    lost = [partition for kind, share in heard.calls if kind == "lost" for partition in share]
    assert sorted(lost) == mine
    assert [kind for kind, _ in heard.calls if kind != "lost"] == ["assigned"]


def test_a_handler_that_takes_too_long_loses_its_partitions_after_it(calm: wt.Cluster) -> None:
    group, heard = make_group(calm, partitions=1, max_poll_interval_ms=5_000), Heard()
    times: list[float] = []
    service = wt.load.ConstantService("20s")
    ann = group.consumer(
        "ann", lambda records: times.append(calm.now), service=service, **heard.listener()
    )
    ann.wait_ready()
    calm.producer("shop").send("jobs", 1)
    calm.run(for_=15)
    assert heard.calls == [("assigned", [0])]
    calm.run_until(lambda: bool(times))
    calm.run(for_="1ms")
    assert heard.calls[:2] == [("assigned", [0]), ("lost", [0])]


def test_without_on_lost_the_listener_hears_of_a_revocation(calm: wt.Cluster) -> None:
    group, revoked = make_group(calm, partitions=1, **SHORT), []
    group.consumer("ann", ignore, on_revoked=revoked.append).wait_ready()
    calm.system.pause("ann")
    calm.run(for_=2)
    assert revoked == []
    calm.system.resume("ann")
    calm.run(for_=1)
    assert revoked == [(wt.TopicPartition("jobs", 0),)]


def test_a_listener_that_raises_is_recorded_and_stops_nothing(cluster: wt.Cluster) -> None:
    def fail(partitions: Any) -> None:
        raise RuntimeError("no")

    group = make_group(cluster)
    group.consumer("ann", ignore, on_assigned=fail, on_revoked=fail).wait_ready(DEADLINE)
    group.consumer("bob", ignore).wait_ready(DEADLINE)
    cluster.run_until(lambda: len(cluster.events.of("listener_failed")) >= 3, DEADLINE)
    reasons = [(e.reason, e.detail) for e in cluster.events.of("listener_failed")]
    assert reasons == [(what, "RuntimeError: no") for what in ("assigned", "revoked", "assigned")]


def test_an_error_of_a_listener_can_be_raised(calm: wt.Cluster) -> None:
    def fail(partitions: Any) -> None:
        raise AssertionError("no")

    group = make_group(calm)
    group.consumer("ann", ignore, on_assigned=fail, on_handler_error="raise")
    with pytest.raises(HandlerError, match="listener of ann failed on assigned partitions"):
        calm.run(for_=10)


# A consumer that is called


def test_a_caller_hears_of_partitions_when_it_polls(cluster: wt.Cluster) -> None:
    group, heard = make_group(cluster), Heard()
    ann = group.consumer("ann", **heard.listener())
    ann.wait_ready(DEADLINE)
    assert heard.calls == []
    ann.poll(timeout=0)
    assert heard.calls == [("assigned", [0, 1, 2, 3])]
    bob = group.consumer("bob", ignore)
    poll_until(cluster, ann, lambda: len(bob.positions()) == 2)
    poll_until(cluster, ann, lambda: len(heard.calls) == 3)
    assert [kind for kind, _ in heard.calls] == ["assigned", "revoked", "assigned"]
    assert heard.calls[1] == ("revoked", [0, 1, 2, 3])


def test_commits_still_work_while_partitions_are_revoked(cluster: wt.Cluster) -> None:
    group = make_group(cluster, partitions=1, enable_auto_commit=False)
    committed: list[Any] = []
    ann = group.consumer("ann", on_revoked=lambda partitions: committed.append(ann.commit()))
    cluster.producer("shop").send("jobs", 1).get(timeout=DEADLINE)
    ann.wait_ready(DEADLINE)
    poll_until(cluster, ann, lambda: sum(p for p in ann.positions().values()) == 1)
    ann.leave()
    assert committed == [{wt.TopicPartition("jobs", 0): 1}]
    assert sum(group.lag().values()) == 0


def test_commits_still_work_while_a_rebalance_revokes_partitions(cluster: wt.Cluster) -> None:
    group = make_group(cluster, partitions=2, enable_auto_commit=False)
    committed: list[Any] = []
    ann = group.consumer("ann", on_revoked=lambda partitions: committed.append(ann.commit()))
    shop = cluster.producer("shop", "manual", linger_ms=0)
    for number in range(2):
        shop.send("jobs", number, partition=number).get(timeout=DEADLINE)
    ann.wait_ready(DEADLINE)
    poll_until(cluster, ann, lambda: sum(ann.positions().values()) == 2)
    seen: list[int] = []
    bob = group.consumer("bob", lambda records: seen.extend(r.value for r in records))
    poll_until(cluster, ann, lambda: len(bob.positions()) == 1)
    assert [sum(offsets.values()) for offsets in committed] == [2]
    assert seen == []


@pytest.mark.parametrize("how", ["close", "leave", "unsubscribe"])
def test_a_caller_that_leaves_hears_that_its_partitions_are_revoked(
    cluster: wt.Cluster, how: str
) -> None:
    group, heard = make_group(cluster), Heard()
    ann = group.consumer("ann", **heard.listener())
    ann.wait_ready(DEADLINE)
    ann.poll(timeout=0)
    getattr(ann, how)()
    assert heard.calls == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]


def test_a_static_caller_that_closes_hears_of_it_too(cluster: wt.Cluster) -> None:
    group, heard = make_group(cluster), Heard()
    ann = group.consumer("ann", group_instance_id="ann", **heard.listener())
    ann.wait_ready(DEADLINE)
    ann.close()
    assert heard.calls[-1] == ("revoked", [0, 1, 2, 3])


def test_a_caller_hears_of_a_lost_session_at_its_next_poll(cluster: wt.Cluster) -> None:
    group, heard = make_group(cluster, **short_session(cluster)), Heard()
    ann = group.consumer("ann", **heard.listener())
    ann.wait_ready(DEADLINE)
    ann.poll(timeout=0)
    heard.calls.clear()
    cluster.system.pause("ann")
    cluster.run_until(lambda: group.describe().state == "Empty", DEADLINE)
    cluster.system.resume("ann")
    poll_until(cluster, ann, lambda: len(heard.calls) >= 2)
    assert heard.calls == [("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]


def test_a_caller_can_seek_when_it_gets_partitions(cluster: wt.Cluster) -> None:
    group = make_group(cluster, partitions=1)
    shop = cluster.producer("shop", linger_ms=0)
    for number in range(5):
        shop.send("jobs", number).get(timeout=DEADLINE)
    ann = group.consumer("ann", on_assigned=lambda partitions: ann.seek("jobs", 0, 3))
    seen: list[int] = []
    while len(seen) < 2:
        seen += [record.value for record in ann.poll(timeout=DEADLINE)]
    assert seen == [3, 4]


def test_what_a_callers_listener_raises_comes_out_of_poll(cluster: wt.Cluster) -> None:
    def fail(partitions: Any) -> None:
        raise RuntimeError("no")

    ann = make_group(cluster).consumer("ann", on_assigned=fail)
    ann.wait_ready(DEADLINE)
    with pytest.raises(RuntimeError, match="no"):
        ann.poll(timeout=DEADLINE)


def test_a_group_that_acknowledges_tells_its_listeners(cluster: wt.Cluster) -> None:
    group, heard = make_group(cluster, delivery="shared"), Heard()
    ann = group.consumer("ann", ignore, **heard.listener())
    ann.wait_ready(DEADLINE)
    ann.close()
    cluster.run_until(lambda: len(heard.calls) >= 2, DEADLINE)
    assert heard.calls == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]


async def late(partitions: Any) -> None:
    """Too late."""


@pytest.mark.parametrize(
    ("listener", "message"),
    [
        ({"on_revoked": late}, "on_revoked = late: expected a plain function, not async"),
        ({"on_lost": 5}, "on_lost = 5: expected a function of partitions"),
    ],
)
def test_a_listener_that_cannot_be_called_is_refused(
    calm: wt.Cluster, listener: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadValueError, match=message):
        make_group(calm).consumer("ann", **listener)
