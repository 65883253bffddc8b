"""The controller's rules about brokers, replicas and leaders, one by one.

Random sequences of all operations are in test_replication_runs.py.
"""

from collections import Counter
from typing import Any

import pytest

from wavetank.model.consensus.registration import PartitionRegistration
from wavetank.model.consensus.replication_control import IsrRefusal, ReplicationControl
from wavetank.model.errors import BadValueError, UnknownNameError
from wavetank.model.topics import Topic, TopicPartition

T0 = TopicPartition("t", 0)


class Control(ReplicationControl):
    """With shorter words for tests."""

    def do(self, operation: str, *arguments: Any, **options: Any) -> list[tuple]:
        """Carry out an operation, apply its entries, and return them."""
        entries = getattr(self, operation)(*arguments, **options)
        for entry in entries:
            self.apply(entry)
        return entries

    def start(self, name: str, life: int = 1, clean: bool = True, rack: str | None = None) -> None:
        """Start a process of a broker that takes part at once."""
        self.do("register", name, life, rack, self.broker_epoch + 1, clean)
        self.do("unfence", name)

    def alter(self, *isr: str, partition: TopicPartition = T0, **changed: Any) -> Any:
        """Let the leader of a partition ask for an in-sync set, and apply what it gets."""
        known = self.partitions[partition]
        request = {
            "broker": known.leader,
            "broker_epoch": self.brokers[known.leader].epoch,
            "leader_epoch": known.leader_epoch,
            "partition_epoch": known.partition_epoch,
            "isr": tuple((name, self.brokers[name].epoch) for name in isr),
        }
        entries = self.alter_isr(partition, **{**request, **changed})
        if not isinstance(entries, IsrRefusal):
            for entry in entries:
                self.apply(entry)
        return entries


def cluster(brokers: str = "abc", partitions: int = 1, factor: int = 3, least: int = 2, **options):
    """Brokers with names of one letter, and a topic."""
    control = Control(**options)
    for name in brokers:
        control.start(name)
    control.apply_topic(
        Topic("t", partitions, replication_factor=factor, min_insync_replicas=least)
    )
    control.do("create_partitions", "t", range(partitions), factor)
    return control


def sets_of(control: ReplicationControl, partition: TopicPartition = T0) -> tuple[str, str, str]:
    """The leader, the in-sync set and the eligible replicas, in short."""
    known = control.partitions[partition]
    return known.leader or "-", "".join(known.isr), "".join(known.elr)


# Brokers


def test_a_broker_that_registers_is_fenced_until_its_first_heartbeat():
    control = Control()
    control.do("register", "a", 1, "r1", 7, True)
    assert not control.is_active("a")
    assert (control.brokers["a"].epoch, control.broker_epoch) == (7, 7)
    assert control.do("unfence", "a") == [("unfence", "a")]
    assert control.is_active("a")


def test_a_process_that_is_registered_already_keeps_its_epoch():
    control = cluster()
    assert control.register("a", 1, None, 9, True) == []
    assert control.register("a", 0, None, 9, True) == []


def test_a_new_process_ends_what_the_earlier_one_led():
    control = cluster()
    control.do("register", "a", 2, None, 9, True)
    assert sets_of(control) == ("b", "bc", "")
    assert control.partitions[T0].leader_epoch == 1


def test_a_new_process_with_all_records_stays_eligible_and_leads_again():
    control = cluster("a", factor=1, least=1)
    control.do("register", "a", 2, None, 9, True)
    assert sets_of(control) == ("-", "", "a")
    control.do("unfence", "a")
    assert sets_of(control) == ("a", "a", "")
    assert not control.partitions[T0].unclean


def test_a_new_process_that_lost_records_is_no_longer_eligible():
    control = cluster()
    control.do("fence", "c")
    control.do("fence", "b")
    assert sets_of(control) == ("a", "a", "b")
    control.start("b", 2, clean=False)
    assert sets_of(control) == ("a", "a", "")


def test_a_fenced_broker_gives_its_partitions_to_replicas_in_sync():
    control = cluster(partitions=3)
    entries = control.do("fence", "a")
    assert [entry[0] for entry in entries] == ["partition"] * 3 + ["fence"]
    assert [each.leader for each in control.partitions.values()] == ["b", "b", "c"]
    assert control.do("fence", "a") == []


def test_a_partition_has_no_leader_while_nobody_eligible_is_active():
    control = cluster()
    for name in "cba":
        control.do("fence", name)
    assert sets_of(control) == ("-", "", "ab")
    assert control.partitions[T0].last_known_leader == "a"
    control.do("unfence", "c")
    assert sets_of(control) == ("-", "", "ab")
    control.do("unfence", "b")
    assert sets_of(control) == ("b", "b", "a")


def test_a_stopping_broker_hands_its_partitions_over_and_leads_no_others():
    control = cluster()
    assert control.has_leaders("a")
    control.do("begin_shutdown", "a")
    assert sets_of(control) == ("b", "bc", "")
    assert not control.has_leaders("a")
    assert control.alter("b", "c", "a") is IsrRefusal.INELIGIBLE_REPLICA
    control.start("a", 2)
    assert control.is_active("a")


def test_a_broker_that_is_gone_for_good_is_forgotten():
    control = cluster()
    control.do("unregister", "a")
    assert "a" not in control.brokers
    assert sets_of(control) == ("b", "bc", "")


# In-sync sets


def test_a_leader_changes_the_in_sync_set():
    control = cluster()
    control.alter("a", "b")
    assert sets_of(control) == ("a", "ab", "")
    control.alter("a")
    assert sets_of(control) == ("a", "a", "b")
    assert control.partitions[T0].partition_epoch == 2
    assert control.partitions[T0].leader_epoch == 0


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"broker_epoch": 99}, IsrRefusal.STALE_BROKER_EPOCH),
        ({"broker": "z"}, IsrRefusal.STALE_BROKER_EPOCH),
        ({"partition": TopicPartition("t", 9)}, IsrRefusal.UNKNOWN_PARTITION),
        ({"leader_epoch": 2}, IsrRefusal.NOT_CONTROLLER),
        ({"partition_epoch": 2}, IsrRefusal.NOT_CONTROLLER),
        ({"leader_epoch": 0}, IsrRefusal.FENCED_LEADER_EPOCH),
        ({"broker": "c", "broker_epoch": 3}, IsrRefusal.NOT_LEADER),
        ({"partition_epoch": 0}, IsrRefusal.STALE_PARTITION_EPOCH),
        ({"isr": (("b", 2), ("a", 1))}, IsrRefusal.INELIGIBLE_REPLICA),
        ({"isr": (("b", 2), ("c", 4))}, IsrRefusal.INELIGIBLE_REPLICA),
        ({"isr": (("b", 2), ("d", 4))}, IsrRefusal.INELIGIBLE_REPLICA),
        ({"isr": (("b", 2), ("b", 2))}, IsrRefusal.INELIGIBLE_REPLICA),
        ({"isr": (("c", 3),)}, IsrRefusal.INELIGIBLE_REPLICA),
    ],
)
def test_a_change_of_the_in_sync_set_is_refused(changed: dict[str, Any], refusal: IsrRefusal):
    control = cluster()
    control.start("d")
    control.do("fence", "a")
    request = {
        "partition": T0, "broker": "b", "broker_epoch": 2, "leader_epoch": 1, "partition_epoch": 1,
        "isr": (("b", 2), ("c", 3)),
    }  # fmt: skip
    assert control.alter_isr(**{**request, **changed}) is refusal
    assert control.alter_isr(**request) == []


# Elections


def test_preferred_leaders_take_over_when_they_are_in_sync_again():
    control = cluster(partitions=3)
    control.do("fence", "a")
    control.do("unfence", "a")
    assert control.imbalance(99) == {"a": [T0]}
    assert control.imbalance(100) == {}
    assert control.do("elect_preferred") == []
    control.alter("b", "c", "a")
    assert len(control.do("elect_preferred", [T0, T0])) == 1
    assert control.partitions[T0].leader == "a"
    assert control.imbalance(0) == {}


def test_an_unclean_election_needs_a_partition_without_a_leader():
    control = cluster()
    assert control.do("elect_unclean", T0) == []
    control.alter("a", "b")
    control.do("fence", "b")
    control.do("fence", "a")
    assert sets_of(control) == ("-", "", "ab")
    control.do("elect_unclean", T0)
    assert sets_of(control) == ("c", "c", "")
    assert control.partitions[T0].unclean


def test_unclean_elections_are_automatic_if_that_is_set():
    control = cluster(unclean_leader_election=True)
    control.alter("a", "b")
    control.do("fence", "a")
    assert sets_of(control) == ("b", "b", "a")
    assert not control.partitions[T0].unclean
    control.do("fence", "b")
    assert sets_of(control) == ("c", "c", "")
    assert control.partitions[T0].unclean


def test_a_controller_that_begins_elects_leaders_that_are_missing():
    control = cluster("a", partitions=2, factor=1, least=1)
    control.do("fence", "a")
    first, *_ = control.unfence("a")
    control.apply(first)
    assert len(control.do("elect_leaders")) == 2
    assert control.do("elect_leaders") == []


# Replicas


def test_new_partitions_are_placed_on_active_brokers_first():
    control = cluster("abcd")
    control.do("fence", "a")
    first = control.do("create_partitions", "t", range(1, 5), 3)
    assert "a" not in control.affected_brokers(first)
    control.do("create_partitions", "t", range(5, 6), 4)
    last = control.partitions[TopicPartition("t", 5)]
    assert last.replicas[-1] == "a"
    assert "a" not in last.isr


def test_more_replicas_than_brokers_are_refused():
    control = cluster("ab", factor=2)
    with pytest.raises(BadValueError, match="replication_factor = 3: expected at most 2"):
        control.create_partitions("t", range(1), 3)


def test_without_an_active_broker_no_partition_can_be_created():
    control = cluster("a", factor=1)
    control.do("fence", "a")
    with pytest.raises(BadValueError, match="topic 't': expected an active broker"):
        control.create_partitions("t", range(1, 2), 1)


def test_partitions_of_a_topic_that_is_created_again_have_higher_epochs():
    control = cluster()
    control.do("fence", "a")
    gone = control.partitions[T0]
    control.apply_topic_deleted("t")
    assert control.partitions == {}
    control.apply_topic(Topic("t", 1))
    control.do("create_partitions", "t", range(1), 1)
    assert control.partitions[T0].leader_epoch > gone.leader_epoch
    assert control.partitions[T0].partition_epoch > gone.partition_epoch


def test_a_partition_without_replicas_begins_again_elsewhere():
    control = cluster("ab", factor=1, least=1)
    control.do("fence", "a")
    control.do("restart_empty", T0)
    assert control.partitions[T0] == PartitionRegistration(
        ("b",), ("b",), leader="b", leader_epoch=2, partition_epoch=2, unclean=True
    )


def test_a_partition_that_begins_again_keeps_replicas_that_cannot_be_replaced():
    control = cluster()
    control.do("fence", "a")
    control.do("restart_empty", T0)
    assert control.partitions[T0].replicas == ("b", "c", "a")
    assert sets_of(control) == ("b", "bc", "")
    control.do("fence", "b")
    control.do("fence", "c")
    assert control.restart_empty(T0) == []


def test_a_reassignment_adds_replicas_before_it_removes_others():
    control = cluster("abcd")
    control.do("reassign", T0, ("d", "b", "c"))
    moving = control.partitions[T0]
    assert (moving.replicas, moving.adding, moving.removing) == (
        ("d", "b", "c", "a"), ("d",), ("a",)
    )  # fmt: skip
    assert moving.leader == "a"
    control.alter("a", "b", "c", "d")
    assert control.partitions[T0].replicas == ("d", "b", "c")
    assert control.partitions[T0].leader == "d"
    assert not control.partitions[T0].is_reassigning


def test_a_reassignment_that_only_removes_or_reorders_ends_at_once():
    control = cluster()
    control.do("reassign", T0, ("c", "b"))
    assert control.partitions[T0].replicas == ("c", "b")
    assert not control.partitions[T0].is_reassigning


def test_a_reassignment_that_is_replaced_removes_what_it_no_longer_adds():
    control = cluster("abcd", factor=1, least=1)
    control.do("reassign", T0, ("b", "c"))
    control.do("reassign", T0, ("c", "d"))
    moving = control.partitions[T0]
    assert (moving.target, moving.adding) == (("c", "d"), ("c", "d"))
    assert set(moving.removing) == {"a", "b"}


def test_a_reassignment_can_be_cancelled():
    control = cluster("abcd")
    control.do("reassign", T0, ("d", "b", "c"))
    control.do("cancel_reassignment", T0)
    assert set(control.partitions[T0].replicas) == {"a", "b", "c"}
    assert not control.partitions[T0].is_reassigning
    assert control.do("cancel_reassignment", T0) == []


def test_a_reassignment_is_not_cancelled_if_only_new_replicas_are_in_sync():
    control = cluster("abc", factor=1, least=1)
    control.do("reassign", T0, ("b", "c"))
    control.alter("a", "b")
    control.do("fence", "a")
    with pytest.raises(BadValueError, match="partition t-0: its reassignment cannot be cancelled"):
        control.cancel_reassignment(T0)


def test_a_reassignment_needs_brokers_that_exist_each_once():
    control = cluster()
    with pytest.raises(UnknownNameError, match="unknown broker 'x'"):
        control.reassign(T0, ("a", "x"))
    with pytest.raises(BadValueError, match="expected brokers, each once"):
        control.reassign(T0, ("a", "a"))
    with pytest.raises(BadValueError, match="expected brokers, each once"):
        control.reassign(T0, ())
    with pytest.raises(UnknownNameError, match="unknown partition 't-7'"):
        control.reassign(TopicPartition("t", 7), ("a",))


def test_a_new_broker_gets_replicas_of_others():
    control = cluster(partitions=12, factor=2)
    control.start("d")
    assert len(control.do("rebalance_replicas")) == 6
    counts = Counter(name for each in control.partitions.values() for name in each.target)
    assert counts == dict.fromkeys("abcd", 6)
    assert control.do("rebalance_replicas") == []


def test_a_broker_is_evacuated():
    control = cluster("abc", partitions=3, factor=2)
    control.do("evacuate", "a")
    assert "a" not in {name for each in control.partitions.values() for name in each.target}


def test_a_broker_is_replaced_only_where_it_is_the_only_replica():
    control = cluster("abc", partitions=3, factor=2)
    control.apply_topic(Topic("alone", 3))
    control.do("create_partitions", "alone", range(3), 1)
    entries = control.do("evacuate", "a", sole=True)
    assert [entry[1] for entry in entries] == ["alone"]


# What others need


def test_brokers_are_told_of_partitions_that_they_have_or_had():
    control = cluster("abcd", partitions=2, factor=2, least=1)
    control.do("reassign", T0, ("c", "d"))
    entries = control.alter("a", "c", "d")
    assert control.partitions[T0].replicas == ("c", "d")
    control = cluster("abcd", partitions=1, factor=2, least=1)
    assert control.affected_brokers(control.reassign(T0, ("a",))) == {"a": [T0], "b": [T0]}
    assert control.affected_brokers([*entries, ("fence", "a")]).keys() == {"a", "b", "c", "d"}


class CountingDict(dict):
    """A dictionary that counts how often it is asked."""

    asked = 0

    def __getitem__(self, key: Any) -> Any:
        self.asked += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)

    def __iter__(self) -> Any:
        raise AssertionError("a look at all partitions")

    items = values = keys = __iter__


def cost_of_a_lost_broker(brokers: int, partitions: int) -> tuple[int, int]:
    """Return how often a partition is looked up until a broker is lost, and back; and its share."""
    control = Control(partitions=CountingDict())
    names = [f"broker-{number:02}" for number in range(brokers)]
    for name in names:
        control.start(name)
    control.apply_topic(Topic("t", partitions, replication_factor=3))
    control.do("create_partitions", "t", range(partitions), 3)
    control.partitions.asked = 0
    share = len(control.index.replicas[names[7]])
    control.do("fence", names[7])
    control.do("unfence", names[7])
    control.do("register", names[7], 2, None, control.broker_epoch + 1, False)
    return control.partitions.asked, share


def test_a_lost_broker_costs_what_it_has_and_not_what_all_have():
    few, many = cost_of_a_lost_broker(10, 100), cost_of_a_lost_broker(50, 500)
    assert many[1] == pytest.approx(few[1], rel=0.1)
    for asked, share in (few, many):
        assert asked <= 5 * share
