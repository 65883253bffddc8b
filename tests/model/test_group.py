"""A group's states, and a cursor's owner and position."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.cursor import Cursor
from wavetank.model.group import TRANSITIONS, Group, GroupState
from wavetank.model.membership import Join


def join(member: str, instance: str | None = None, topics: tuple[str, ...] = ("t",)) -> Join:
    return Join(1, member, instance, topics, (), -1, 1_000, 5_000)


@pytest.mark.parametrize("before", get_args(GroupState))
@pytest.mark.parametrize("after", get_args(GroupState))
def test_a_group_changes_state_only_along_the_table(before: GroupState, after: GroupState) -> None:
    group = Group()
    group.state = before
    if after in TRANSITIONS[before]:
        group.go(after)
        assert group.state == after
    else:
        with pytest.raises(AssertionError, match=f"{before} cannot become {after}"):
            group.go(after)


def test_every_state_can_be_reached_and_only_dead_is_final() -> None:
    reached, edge = {"Empty"}, ["Empty"]
    while edge:
        for state in TRANSITIONS[edge.pop()]:  # type: ignore[index]
            if state not in reached:
                reached.add(state)
                edge.append(state)
    assert reached == set(get_args(GroupState))
    assert [state for state in TRANSITIONS if not TRANSITIONS[state]] == ["Dead"]


def test_a_static_member_steps_into_its_own_shoes_in_the_same_place() -> None:
    group = Group()
    for member in ("a", "b", "c"):
        group.put(join(member, instance=f"i-{member}"))
    group.begin_generation({"a": (), "b": (), "c": ()})
    old = group.static_member("i-b")
    assert old is not None
    group.replace(old, join("b#2", instance="i-b"))
    assert list(group.members) == ["a", "b#2", "c"]
    assert group.static_member("i-x") is None
    assert group.static_member(None) is None


def test_a_new_generation_waits_for_everybody_to_take_note() -> None:
    group = Group()
    group.put(join("a"))
    group.put(join("b", topics=("u", "t")))
    assert group.all_joined()
    assert group.subscribed() == ("t", "u")
    assert group.rebalance_timeout_ms() == 5_000
    group.begin_generation({"a": (), "b": ()})
    assert group.generation == 1
    assert not group.all_joined()
    assert not any(member.noted for member in group.members.values())


steps = st.lists(
    st.tuples(
        st.sampled_from(["claim", "commit"]),
        st.sampled_from("abc"),
        st.integers(0, 5),
        st.integers(0, 20),
    ),
    max_size=40,
)


@given(steps)
def test_a_cursor_obeys_its_newest_owner_alone_and_never_goes_back(
    ops: list[tuple[str, str, int, int]],
) -> None:
    cursor = Cursor()
    owner, generation, position = None, -1, 0
    for kind, member, of_generation, offset in ops:
        if kind == "claim":
            granted = of_generation > generation or (
                of_generation == generation and owner in (None, member)
            )
            assert cursor.claim(member, of_generation) == granted
            if granted:
                owner, generation = member, of_generation
        else:
            allowed = member == owner and of_generation >= generation
            assert cursor.may_act(member, of_generation) == allowed
            if allowed:
                assert cursor.commit(offset) == position
                position = max(position, offset)
                assert cursor.committed == position
    assert (cursor.owner, cursor.generation) == (owner, generation)
