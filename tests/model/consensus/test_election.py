"""Who leads a partition, and what that makes of its in-sync set."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.consensus.election import Election, change_partition, elect
from wavetank.model.consensus.registration import PartitionRegistration

ONLINE, PREFERRED, UNCLEAN = Election


def partition(replicas: str, isr: str, elr: str = "", leader: str | None = None, **fields: object):
    """A partition whose brokers have names of one letter."""
    return PartitionRegistration(tuple(replicas), tuple(isr), tuple(elr), leader=leader, **fields)


def change(before, min_insync=2, active="abcde", election=ONLINE, lost=None, **wanted):
    """Change a partition: fields are given as texts of one-letter names."""
    fields = {name: tuple(value) for name, value in wanted.items()}
    return change_partition(
        before, attrs.evolve(before, **fields), min_insync, active.__contains__, election, lost
    )


# election, replicas, isr, elr, leader, last known leader, active → leader, whether it is unclean
CASES = [
    # The leader goes on, wherever it stands.
    (ONLINE, "abc", "abc", "", "b", None, "abc", "b", False),
    (ONLINE, "abc", "abc", "", "b", None, "ac", "a", False),
    # Replicas are tried in their order, not in that of the in-sync set.
    (ONLINE, "abc", "cb", "", None, None, "abc", "b", False),
    # Only who is in sync leads; eligible replicas only if nobody is in sync.
    (ONLINE, "abc", "c", "a", None, None, "abc", "c", False),
    (ONLINE, "abc", "", "bc", None, "a", "abc", "b", False),
    (ONLINE, "abc", "", "c", None, "a", "ab", None, False),
    (ONLINE, "abc", "c", "", None, None, "ab", None, False),
    # The last leader only if nobody is left that has all records.
    (ONLINE, "abc", "", "", None, "b", "abc", "b", True),
    (ONLINE, "abc", "", "", None, "b", "ac", None, False),
    (ONLINE, "abc", "", "", None, "d", "abcd", None, False),
    (ONLINE, "abc", "", "", None, None, "abc", None, False),
    # The preferred leader takes over if it is in sync.
    (PREFERRED, "abc", "abc", "", "b", None, "abc", "a", False),
    (PREFERRED, "abc", "bc", "", "b", None, "abc", "b", False),
    (PREFERRED, "abc", "abc", "", "b", None, "bc", "b", False),
    # An unclean election takes anybody, but prefers those that lose nothing.
    (UNCLEAN, "abc", "abc", "", "b", None, "abc", "b", False),
    (UNCLEAN, "abc", "", "c", None, "b", "abc", "c", False),
    (UNCLEAN, "abc", "", "", None, "c", "abc", "c", True),
    (UNCLEAN, "abc", "", "c", None, "c", "ab", "a", True),
    (UNCLEAN, "abc", "c", "", None, None, "b", "b", True),
    (UNCLEAN, "abc", "", "c", None, "c", "d", None, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("election", "replicas", "isr", "elr", "leader", "last", "active", "chosen", "unclean"), CASES
)
def test_the_leader_is_the_first_candidate_that_is_active(
    election, replicas, isr, elr, leader, last, active, chosen, unclean
):
    before = partition(replicas, isr, elr, leader, last_known_leader=last)
    assert elect(before, election, active.__contains__) == (chosen, unclean)


brokers = st.sampled_from("abcd")
some = st.sets(brokers).map(sorted).map("".join)


@st.composite
def partitions(draw):
    replicas = draw(st.permutations("abcd").map(lambda order: order[: draw(st.integers(1, 4))]))
    isr = [each for each in replicas if draw(st.booleans())]
    elr = [each for each in replicas if each not in isr and draw(st.booleans())]
    last = draw(st.none() | brokers)
    return partition(
        "".join(replicas), "".join(isr), "".join(elr),
        draw(st.none() | st.sampled_from(replicas)), last_known_leader=last,
    )  # fmt: skip


@given(partitions(), st.sampled_from(Election), some)
def test_an_election_is_clean_if_a_replica_that_has_all_records_is_active(before, election, active):
    complete = [each for each in before.isr or before.elr if each in active]
    leader, unclean = elect(before, election, active.__contains__)
    if complete:
        assert leader in complete
        assert not unclean
    elif leader is not None:
        assert leader in before.replicas
        assert leader in active
        assert unclean
        nobody_else = not before.isr and not before.elr and leader == before.last_known_leader
        assert nobody_else or election is UNCLEAN
    elif election is UNCLEAN:
        assert not set(active) & set(before.replicas)


def test_who_leaves_while_too_few_are_in_sync_stays_eligible():
    before = partition("abc", "abc", leader="a")
    enough = change(before, isr="ab")
    assert (enough.isr, enough.elr) == (("a", "b"), ())
    too_few = change(enough, isr="a")
    assert (too_few.isr, too_few.elr) == (("a",), ("b",))


def test_the_last_one_in_sync_is_eligible_when_it_is_gone():
    before = partition("abc", "a", "b", leader="a", leader_epoch=4, partition_epoch=7)
    assert change(before, isr="", active="") == partition(
        "abc", "", "ab", last_known_leader="a", leader_epoch=5, partition_epoch=8
    )


def test_nobody_is_eligible_any_more_once_enough_are_in_sync():
    before = partition("abc", "a", "bc", leader="a")
    assert change(before, isr="ab").elr == ()


def test_no_more_than_all_replicas_have_to_be_in_sync():
    before = partition("ab", "a", "b", leader="a")
    assert change(before, min_insync=3, isr="ab").elr == ()


def test_an_eligible_replica_that_leads_is_the_only_one_in_sync():
    before = partition("abc", "", "bc", last_known_leader="a", leader_epoch=2)
    after = change(before, active="bc")
    assert (after.leader, after.isr, after.elr) == ("b", ("b",), ("c",))
    assert (after.leader_epoch, after.last_known_leader, after.unclean) == (3, None, False)


def test_who_has_lost_its_storage_is_not_eligible():
    before = partition("abc", "ab", "", leader="a")
    after = change(before, isr="b", lost="a", active="bc")
    assert (after.leader, after.isr, after.elr) == ("b", ("b",), ())


def test_the_only_replica_that_has_lost_its_storage_is_remembered_as_the_last_leader():
    before = partition("a", "a", leader="a")
    gone = change(before, isr="", lost="a", active="")
    assert (gone.isr, gone.elr, gone.last_known_leader) == ((), (), "a")
    back = change(gone, active="a")
    assert (back.leader, back.isr, back.unclean) == ("a", ("a",), True)


def test_the_last_known_leader_is_not_forgotten_while_there_is_no_leader():
    before = partition("ab", "", "a", last_known_leader="b")
    assert change(before, lost="a", active="").last_known_leader == "b"


def test_an_unclean_leader_is_alone_in_sync_and_nobody_is_eligible():
    before = partition("abc", "", "ab", last_known_leader="a")
    after = change(before, active="c", election=UNCLEAN)
    assert (after.leader, after.isr, after.elr, after.unclean) == ("c", ("c",), (), True)
    assert change(after, isr="cb").unclean
    assert not change(change(after, isr="cb"), isr="b", active="b").unclean


def test_a_reassignment_ends_when_all_replicas_that_stay_are_in_sync():
    before = partition("cbda", "ab", leader="a", adding=("c", "d"), removing=("a",))
    waiting = change(before, isr="abc")
    assert (waiting.replicas, waiting.leader) == (("c", "b", "d", "a"), "a")
    done = change(waiting, isr="abcd")
    assert (done.replicas, done.isr) == (("c", "b", "d"), ("b", "c", "d"))
    assert (done.adding, done.removing, done.leader) == ((), (), "c")
    assert done.leader_epoch == waiting.leader_epoch + 1


def test_the_leader_epoch_stays_when_the_leader_goes_on():
    before = partition("abc", "abc", leader="a", leader_epoch=3, partition_epoch=5)
    after = change(before, isr="ab")
    assert (after.leader_epoch, after.partition_epoch) == (3, 6)


def test_nothing_changes_without_a_reason():
    before = partition("abc", "ab", leader="b")
    assert change(before) is before
