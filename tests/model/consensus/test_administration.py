"""What users order about leaders, replicas and brokers, and which orders are impossible."""

import pytest

from wavetank.model.consensus.administration import plan_order
from wavetank.model.consensus.registration import PartitionRegistration
from wavetank.model.consensus.replication_control import ReplicationControl
from wavetank.model.errors import BadValueError, UnknownNameError
from wavetank.model.messages.cluster import ElectLeaders, ReassignPartition, RemoveBroker
from wavetank.model.topics import Topic, TopicPartition

T0 = TopicPartition("t", 0)


def cluster(brokers: str = "abcd", factor: int = 3) -> ReplicationControl:
    """Brokers with names of one letter, and a topic with one partition, led by the first."""
    control = ReplicationControl()
    for name in brokers:
        apply(control, control.register(name, 1, None, control.broker_epoch + 1, True))
        apply(control, control.unfence(name))
    control.apply_topic(Topic("t", 1, replication_factor=factor, min_insync_replicas=1))
    apply(control, control.create_partitions("t", range(1), factor))
    return control


def apply(control: ReplicationControl, entries: list[tuple]) -> None:
    for entry in entries:
        control.apply(entry)


def alter(control: ReplicationControl, *isr: str) -> None:
    """Let the leader have another in-sync set."""
    known = control.partitions[T0]
    epochs = {name: broker.epoch for name, broker in control.brokers.items()}
    changed = control.alter_isr(
        T0, known.leader, epochs[known.leader], known.leader_epoch, known.partition_epoch,
        tuple((name, epochs[name]) for name in isr),
    )  # fmt: skip
    apply(control, changed)


def order(control: ReplicationControl, order: object) -> PartitionRegistration:
    apply(control, plan_order(control, order))
    return control.partitions[T0]


def test_a_preferred_leader_that_is_in_sync_leads_again():
    control = cluster()
    apply(control, control.fence("a"))
    apply(control, control.unfence("a"))
    with pytest.raises(BadValueError, match="t-0: its preferred leader 'a' cannot lead"):
        plan_order(control, ElectLeaders((T0,)))
    assert plan_order(control, ElectLeaders(None)) == []
    alter(control, "b", "c", "a")
    assert order(control, ElectLeaders((T0,))).leader == "a"


def test_an_unclean_leader_is_only_elected_where_there_is_none():
    control = cluster()
    with pytest.raises(BadValueError, match="t-0 is led by 'a': expected no leader"):
        plan_order(control, ElectLeaders((T0,), unclean=True))
    alter(control, "a")
    for name in "abc":
        apply(control, control.fence(name))
    with pytest.raises(BadValueError, match="t-0: expected a replica on an active broker"):
        plan_order(control, ElectLeaders((T0,), unclean=True))
    apply(control, control.unfence("b"))
    assert order(control, ElectLeaders((T0,), unclean=True)).leader == "b"


def test_a_throttle_ends_with_its_reassignment():
    control = cluster()
    assert order(control, ReassignPartition(T0, ("b", "d"), 1_000)).throttle == 1_000
    alter(control, "a", "b", "c", "d")
    assert control.partitions[T0].replicas == ("b", "d")
    assert control.partitions[T0].throttle is None


def test_a_reassignment_that_adds_nothing_has_no_throttle():
    assert order(cluster(), ReassignPartition(T0, ("b", "a", "c"), 1_000)).throttle is None


def test_only_a_reassignment_that_is_under_way_can_be_cancelled():
    control = cluster()
    with pytest.raises(BadValueError, match="t-0 is not being reassigned"):
        plan_order(control, ReassignPartition(T0, None))
    order(control, ReassignPartition(T0, ("d",), 1_000))
    cancelled = order(control, ReassignPartition(T0, None))
    assert (cancelled.replicas, cancelled.throttle) == (("a", "b", "c"), None)


@pytest.mark.parametrize(
    "given",
    [ElectLeaders((T0._replace(partition=1),)), ReassignPartition(T0, ("x",)),
     RemoveBroker("x")],
)  # fmt: skip
def test_unknown_names_are_refused(given: object):
    with pytest.raises(UnknownNameError):
        plan_order(cluster(), given)


def test_a_broker_that_is_removed_is_replaced_and_gets_no_more_replicas():
    control = cluster()
    moved = order(control, RemoveBroker("a"))
    assert (moved.adding, moved.removing) == (("d",), ("a",))
    assert plan_order(control, RemoveBroker("a")) == [], "it is under way already"
    apply(control, control.create_partitions("t", range(1, 2), 3))
    with pytest.raises(BadValueError, match="'a' is being removed"):
        plan_order(control, ReassignPartition(TopicPartition("t", 1), ("a",)))
    assert "a" not in control.partitions[TopicPartition("t", 1)].replicas
    with pytest.raises(BadValueError, match="expected at most 3"):
        control.create_partitions("t", range(2, 3), 4)


def test_a_broker_that_is_removed_leaves_even_if_it_starts_again():
    control = cluster()
    order(control, RemoveBroker("a"))
    apply(control, control.register("a", 2, None, control.broker_epoch + 1, True))
    assert control.brokers["a"].leaving
    copy = ReplicationControl()
    copy.apply_topic(control.topics["t"])
    apply(copy, list(control.entries()))
    assert copy == control


def test_a_broker_is_not_removed_if_its_replicas_can_go_nowhere():
    with pytest.raises(BadValueError, match="expected an active broker without a replica of t-0"):
        plan_order(cluster("abc"), RemoveBroker("a"))
    with pytest.raises(BadValueError, match="expected another active broker"):
        plan_order(cluster("a", factor=1), RemoveBroker("a"))
    control = cluster("ab", factor=1)
    apply(control, control.fence("a"))
    with pytest.raises(BadValueError, match="t-0 has no leader to copy it from"):
        plan_order(control, RemoveBroker("a"))
