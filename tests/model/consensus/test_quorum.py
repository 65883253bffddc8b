"""Majorities, against a brute-force version."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.consensus.quorum import is_majority, majority, quorum_value


@given(st.lists(st.integers(0, 12), min_size=1, max_size=7))
def test_the_quorum_value_is_the_highest_that_some_majority_has_reached(values):
    majorities = combinations(values, majority(len(values)))
    assert quorum_value(values) == max(min(chosen) for chosen in majorities)


@given(st.integers(1, 9))
def test_two_majorities_of_the_same_voters_have_a_voter_in_common(voters):
    assert 2 * majority(voters) > voters
    assert 2 * (majority(voters) - 1) <= voters


@given(st.integers(1, 8))
def test_majorities_before_and_after_one_voter_is_added_have_a_voter_in_common(voters):
    assert majority(voters) + majority(voters + 1) > voters + 1


def test_nodes_that_are_no_voters_do_not_count():
    assert is_majority(["a", "b"], ("a", "b", "c"))
    assert not is_majority(["a", "d", "e"], ("a", "b", "c"))
    assert not is_majority(["a"], ())
