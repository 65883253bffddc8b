"""The state machine of a group: against Kafka's documentation, and after any order of events.

At the end: the owner and the position of a cursor.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wavetank.model.errors import WavetankError
from wavetank.model.group import (
    TABLE,
    AnswerHeartbeat,
    AnswerJoin,
    ClassicGroup,
    ClassicGroupState,
    GroupAction,
    GroupEffect,
    MemberAdded,
    MemberRemoved,
    RebalanceCompleted,
    RebalanceStarted,
    RefuseSync,
    SendAssignment,
    StartJoinTimer,
    StartSessionTimer,
    StoreGroup,
)
from wavetank.model.log.cursor import Cursor
from wavetank.model.messages.group import NOT_POLLING, Heartbeat, Join, StoredMember, Sync
from wavetank.model.topics import TopicPartition

State = ClassicGroupState

DELAY_MS, SESSION_MS, REBALANCE_MS = 3_000, 10_000, 50_000
SESSION_US = SESSION_MS * 1_000
PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))


def join(
    member: str,
    request: int = 1,
    *,
    instance: str | None = None,
    topics: tuple[str, ...] = ("t",),
    generation: int = -1,
) -> Join:
    return Join(request, member, instance, topics, (), (), generation, SESSION_MS, REBALANCE_MS)


class Driver:
    """Drives a group as a coordinator does."""

    def __init__(self, initial_delay_ms: int = 0) -> None:
        self.group = ClassicGroup(initial_delay_ms)
        self.rebalance = 0
        """The number of the latest one."""

    def perform(self, effects: list[GroupEffect]) -> list[GroupEffect]:
        """Write to the log when asked to, at once; return all effects."""
        after: list[GroupEffect] = []
        for effect in effects:
            if isinstance(effect, StartJoinTimer):
                self.rebalance = effect.rebalance
            if isinstance(effect, StoreGroup) and effect.assignments is not None:
                after += self.group.assignment_stored(effect.generation, effect.assignments)
        return effects + after

    def divide(self) -> dict[str, tuple[TopicPartition, ...]]:
        """Deal the partitions out in turn."""
        count = len(self.group.members)
        return {id: PARTITIONS[number::count] for number, id in enumerate(self.group.members)}

    def join(self, *members: str, request: int = 1, now_us: int = 0) -> list[GroupEffect]:
        """Let members join, all static."""
        return [
            effect
            for member in members
            for effect in self.perform(
                self.group.join(join(member, request, instance=f"i-{member}"), now_us)
            )
        ]

    def pass_deadline(self) -> list[GroupEffect]:
        return self.perform(self.group.pass_join_deadline(self.rebalance))

    def sync(self, *members: str) -> list[GroupEffect]:
        """Let members ask for their assignment; the leader has divided the partitions."""
        return [
            effect
            for member in members
            for effect in self.perform(self.group.sync(self.sync_of(member), 0))
        ]

    def sync_of(self, member: str) -> Sync:
        known = self.group.members.get(member)
        request = known.join.request if known is not None else 0
        leads = member == self.group.leader
        divided = tuple(self.divide().items()) if leads else ()
        return Sync(request, member, self.group.generation, divided)

    def leave(self, *members: str) -> list[GroupEffect]:
        return [
            effect
            for member in members
            for effect in self.perform(self.group.leave(member, "left", 0))
        ]


def in_state(state: State) -> Driver:
    """A group in this state, with the members "a" and "b" if the state has any."""
    driver = Driver(DELAY_MS)
    if state == State.DEAD:
        driver.group.remove()
    elif state != State.EMPTY:
        driver.join("a", "b")
        driver.pass_deadline()
        driver.pass_deadline()
        if state != State.COMPLETING_REBALANCE:
            driver.sync("a", "b")
        if state == State.PREPARING_REBALANCE:
            driver.perform(driver.group.change_assignor("sticky", 0))
    assert driver.group.state == state
    return driver


# Kafka's documentation of ClassicGroupState in our words: what leads to which state.
KAFKA: dict[tuple[State, str], State] = {
    (State.EMPTY, "a new member joins"): State.PREPARING_REBALANCE,
    (State.EMPTY, "the group is removed"): State.DEAD,
    (
        State.PREPARING_REBALANCE,
        "some members have joined by the deadline",
    ): State.COMPLETING_REBALANCE,
    (State.PREPARING_REBALANCE, "all members leave"): State.EMPTY,
    (State.PREPARING_REBALANCE, "the group is removed"): State.DEAD,
    (State.COMPLETING_REBALANCE, "the assignment is known"): State.STABLE,
    (State.COMPLETING_REBALANCE, "a new member joins"): State.PREPARING_REBALANCE,
    (State.COMPLETING_REBALANCE, "a member joins with other topics"): State.PREPARING_REBALANCE,
    (State.COMPLETING_REBALANCE, "a member leaves"): State.PREPARING_REBALANCE,
    (State.COMPLETING_REBALANCE, "a member fails"): State.PREPARING_REBALANCE,
    (State.COMPLETING_REBALANCE, "the group is removed"): State.DEAD,
    (State.STABLE, "a member fails"): State.PREPARING_REBALANCE,
    (State.STABLE, "a member leaves"): State.PREPARING_REBALANCE,
    (State.STABLE, "the leader joins"): State.PREPARING_REBALANCE,
    (State.STABLE, "a member joins with other topics"): State.PREPARING_REBALANCE,
    (State.STABLE, "the group is removed"): State.DEAD,
}

# Kafka's list of the states from which each state can be entered.
KAFKA_PREVIOUS: dict[State, set[State]] = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
    State.STABLE: {State.COMPLETING_REBALANCE},
    State.DEAD: {State.STABLE, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.EMPTY},
}

# Kafka's answer to the heartbeat of a member. In CompletingRebalance its documentation says that
# the group is rebalancing; its code answers normally, as the member has joined already.
KAFKA_HEARTBEAT: dict[State, str] = {
    State.EMPTY: "unknown",
    State.PREPARING_REBALANCE: "rebalancing",
    State.COMPLETING_REBALANCE: "ok",
    State.STABLE: "ok",
    State.DEAD: "unknown",
}


def some_join(driver: Driver) -> None:
    driver.join("a", request=2)
    driver.pass_deadline()


CAUSES: dict[str, Callable[[Driver], Any]] = {
    "a new member joins": lambda driver: driver.join("new"),
    "a member joins with other topics": lambda driver: driver.perform(
        driver.group.join(join("a", 2, topics=("u",)), 0)
    ),
    "the leader joins": lambda driver: driver.join("a", request=2),
    "a member leaves": lambda driver: driver.leave("a"),
    "all members leave": lambda driver: driver.leave("a", "b"),
    "a member fails": lambda driver: driver.perform(driver.group.check_session("a", SESSION_US)),
    "some members have joined by the deadline": some_join,
    "the assignment is known": lambda driver: driver.sync("a"),
    "the group is removed": lambda driver: driver.group.remove(),
}


@pytest.mark.parametrize(("state", "cause"), KAFKA)
def test_a_group_changes_state_as_kafka_documents(state: State, cause: str) -> None:
    driver = in_state(state)
    CAUSES[cause](driver)
    assert driver.group.state == KAFKA[state, cause]


def test_the_table_has_no_change_of_state_that_kafka_does_not_have() -> None:
    found: dict[State, set[State]] = {state: set() for state in TABLE}
    for state, events in TABLE.items():
        for following, _ in events.values():
            if following != state:
                found[following].add(state)
    assert found == KAFKA_PREVIOUS
    assert set(found) == set(State)


@pytest.mark.parametrize("state", KAFKA_HEARTBEAT)
def test_a_heartbeat_is_answered_as_in_kafka(state: State) -> None:
    group = in_state(state).group
    heartbeat = Heartbeat("a", group.generation)
    assert group.heartbeat(heartbeat, 0) == [AnswerHeartbeat(heartbeat, KAFKA_HEARTBEAT[state])]  # type: ignore[arg-type]


def test_every_action_is_in_the_table_and_the_machine_can_do_it() -> None:
    used = {name for events in TABLE.values() for _, actions in events.values() for name in actions}
    assert used == set(GroupAction)
    assert all(callable(getattr(ClassicGroup, f"_{name}")) for name in used)


@pytest.mark.parametrize(
    ("state", "call", "event"),
    [
        (State.EMPTY, lambda group: group.change_partitions(["t"], 0), "PARTITIONS_CHANGED"),
        (State.DEAD, lambda group: group.join(join("a"), 0), "MEMBER_JOINED"),
        (State.DEAD, lambda group: group.change_assignor("range", 0), "ASSIGNOR_CHANGED"),
        (State.DEAD, lambda group: group.remove(), "REMOVED"),
    ],
)
def test_an_unexpected_event_is_refused_and_changes_nothing(
    state: State, call: Callable[[ClassicGroup], object], event: str
) -> None:
    group = in_state(state).group
    before = (group.generation, dict(group.members))
    with pytest.raises(WavetankError, match=f"a group that is {state.value} cannot get {event}"):
        call(group)
    assert group.state == state
    assert (group.generation, group.members) == before


# Joining


def test_a_new_member_is_added_and_the_rebalance_waits_for_the_others() -> None:
    driver = Driver()
    driver.join("a")
    driver.sync("a")
    assert driver.join("b") == [
        StartSessionTimer("b", SESSION_US),
        MemberAdded("b"),
        RebalanceStarted("member joined", "b"),
        StartJoinTimer(2, REBALANCE_MS * 1_000),
    ]
    assert driver.join("a", request=2) == [
        AnswerJoin("a", 2, 2, leads=True),
        AnswerJoin("b", 1, 2, leads=False),
    ]


def test_a_group_is_stable_once_the_assignments_of_its_leader_are_stored() -> None:
    driver = in_state(State.COMPLETING_REBALANCE)
    assert driver.sync("b") == [], "it waits for the leader"
    divided = driver.divide()
    assert driver.sync("a") == [
        StoreGroup(1, divided),
        SendAssignment("a", 1, 1, PARTITIONS[0::2]),
        SendAssignment("b", 1, 1, PARTITIONS[1::2]),
        RebalanceCompleted(2),
    ]
    assert driver.sync("b") == [SendAssignment("b", 1, 1, PARTITIONS[1::2])], "asked again"


def test_assignments_that_are_stored_after_the_next_rebalance_has_begun_do_not_count() -> None:
    driver = in_state(State.COMPLETING_REBALANCE)
    [stored] = driver.group.sync(driver.sync_of("a"), 0)
    assert isinstance(stored, StoreGroup)
    assert stored.assignments is not None
    driver.leave("b")
    assert driver.group.assignment_stored(stored.generation, stored.assignments) == []
    assert driver.group.state == State.PREPARING_REBALANCE


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.STABLE])
def test_a_sync_of_an_old_generation_or_of_a_stranger_is_refused(state: State) -> None:
    group = in_state(state).group
    old = Sync(1, "a", group.generation - 1, ())
    assert group.sync(old, 0) == [RefuseSync("a", 1, "rebalancing")]
    strange = Sync(1, "x", group.generation, ())
    assert group.sync(strange, 0) == [RefuseSync("x", 1, "unknown")]


def test_members_that_wait_for_their_assignment_are_told_of_the_next_rebalance() -> None:
    driver = in_state(State.COMPLETING_REBALANCE)
    driver.sync("b")
    effects = driver.join("c")
    assert RefuseSync("b", 1, "rebalancing") in effects
    waiting = Heartbeat("a", 1, joining=1)
    told = driver.group.heartbeat(waiting, 0)
    assert told == [RefuseSync("a", 1, "rebalancing")], "it may wait for an answer that was lost"


def test_the_leader_stays_the_leader_and_its_place_goes_to_the_first_of_the_others() -> None:
    driver = in_state(State.STABLE)
    assert driver.group.leader == "a"
    driver.join("c")
    driver.join("b", "a", request=2)
    assert driver.group.leader == "a"
    driver.leave("a")
    driver.join("c", "b", request=3)
    assert driver.group.leader == "b"


def test_the_initial_delay_begins_again_at_its_end_if_somebody_has_joined_meanwhile() -> None:
    driver = Driver(20_000)
    seconds = 1_000_000
    assert driver.join("a")[-1] == StartJoinTimer(1, 20 * seconds)
    driver.join("b", "c")
    assert driver.pass_deadline() == [StartJoinTimer(1, 20 * seconds)]
    driver.join("d")
    assert driver.pass_deadline() == [StartJoinTimer(1, 10 * seconds)], "50 s in all"
    driver.join("e")
    answers = driver.pass_deadline()
    assert [type(answer) for answer in answers] == [AnswerJoin] * 5, "there is no time left"


def test_the_initial_delay_of_a_lone_member_is_not_repeated() -> None:
    driver = Driver(DELAY_MS)
    driver.join("a")
    assert driver.pass_deadline() == [AnswerJoin("a", 1, 1, leads=True)]


def test_a_new_coordinator_goes_on_with_the_members_of_the_group_and_new_sessions() -> None:
    group = ClassicGroup(DELAY_MS)
    members = [StoredMember(join(name), PARTITIONS[n::2], None) for n, name in enumerate("ab")]
    assert group.load(7, "b", members, 5) == [
        StartSessionTimer("a", SESSION_US),
        StartSessionTimer("b", SESSION_US),
    ]
    assert (group.state, group.generation, group.leader) == (State.STABLE, 7, "b")
    heartbeat = Heartbeat("a", 7)
    assert group.heartbeat(heartbeat, 6) == [AnswerHeartbeat(heartbeat, "ok")]
    assert group.members["a"].assignment == PARTITIONS[0::2]


# Kafka's answers to a commit of a member of the current generation.
KAFKA_COMMIT: dict[State, str] = {
    State.EMPTY: "unknown",
    State.PREPARING_REBALANCE: "ok",
    State.COMPLETING_REBALANCE: "rebalancing",
    State.STABLE: "ok",
    State.DEAD: "unknown",
}


@pytest.mark.parametrize("state", KAFKA_COMMIT)
def test_a_commit_is_answered_as_in_kafka(state: State) -> None:
    group = in_state(state).group
    assert group.check_commit("a", group.generation, 0) == KAFKA_COMMIT[state]
    if group.members:
        assert group.check_commit("a", group.generation - 1, 0) == "stale"
    assert group.check_commit("x", group.generation, 0) == "unknown"


def test_a_group_whose_last_member_leaves_in_the_initial_delay_is_empty_at_once() -> None:
    driver = Driver(DELAY_MS)
    driver.join("a")
    assert driver.leave("a") == [MemberRemoved("a", "left"), RebalanceCompleted(0), StoreGroup(0)]
    assert driver.group.state == State.EMPTY
    assert driver.pass_deadline() == [], "the timer of the rebalance that is over"
    assert StartJoinTimer(2, DELAY_MS * 1_000) in driver.join("b")


def test_a_member_that_rejoins_keeps_its_assignment_until_the_next_generation() -> None:
    driver = in_state(State.PREPARING_REBALANCE)
    driver.join("a", request=2)
    assert driver.group.members["a"].assignment == PARTITIONS[0::2]


def test_a_repeated_join_is_answered_only_once_the_generation_has_begun() -> None:
    driver = in_state(State.PREPARING_REBALANCE)
    driver.join("a", request=2)
    assert driver.join("a", request=2) == []
    driver.join("b", request=2)
    assert driver.join("a", request=2) == [AnswerJoin("a", 2, 2, leads=True)]
    driver.sync("b", "a")
    assert driver.join("a", request=2) == [SendAssignment("a", 2, 2, PARTITIONS[0::2])]


def test_a_new_coordinator_goes_on_from_the_highest_generation_that_a_member_knows() -> None:
    driver = Driver()
    driver.perform(driver.group.join(join("a", generation=7), 0))
    assert driver.group.generation == 8


def test_the_deadline_of_an_earlier_rebalance_does_not_end_a_later_one() -> None:
    driver = in_state(State.PREPARING_REBALANCE)
    assert driver.group.pass_join_deadline(driver.rebalance - 1) == []
    assert list(driver.group.members) == ["a", "b"]


# Static members


def test_a_static_member_that_restarts_gets_its_assignment_without_a_rebalance() -> None:
    driver = in_state(State.STABLE)
    effects = driver.perform(driver.group.join(join("a#2", 1, instance="i-a"), 0))
    assert effects == [
        StartSessionTimer("a#2", SESSION_US),
        MemberAdded("a#2", replaces="a"),
        StoreGroup(1),
        AnswerJoin("a#2", 1, 1, leads=False),
    ]
    assert driver.sync("a#2") == [SendAssignment("a#2", 1, 1, PARTITIONS[0::2])]
    assert driver.group.leader == "a#2"
    assert driver.group.state == State.STABLE
    assert list(driver.group.members) == ["a#2", "b"], "in the same place"


@pytest.mark.parametrize(
    ("state", "topics"),
    [
        (State.STABLE, ("u",)),
        (State.COMPLETING_REBALANCE, ("t",)),
        (State.COMPLETING_REBALANCE, ("u",)),
    ],
)
def test_a_static_member_that_wants_other_topics_or_interrupts_a_rebalance_starts_one(
    state: State, topics: tuple[str, ...]
) -> None:
    driver = in_state(state)
    effects = driver.perform(driver.group.join(join("a#2", instance="i-a", topics=topics), 0))
    assert RebalanceStarted("member replaced", "a#2 in place of a") in effects
    assert driver.group.state == State.PREPARING_REBALANCE
    driver.join("b", request=2)
    assert driver.group.state == State.COMPLETING_REBALANCE, "the static member has joined"


# Leaving


@pytest.mark.parametrize(
    ("reason", "cause"), [("left", "member left"), (NOT_POLLING, "poll timed out")]
)
def test_the_cause_of_a_rebalance_tells_a_stuck_member_from_one_that_leaves(
    reason: str, cause: str
) -> None:
    group = in_state(State.STABLE).group
    effects = group.leave("a", reason, 0)
    assert effects[0] == MemberRemoved("a", reason)
    assert effects[1] == RebalanceStarted(cause, f"a {reason}")  # type: ignore[arg-type]


def test_a_session_lasts_until_its_timeout_after_the_last_message() -> None:
    group = in_state(State.STABLE).group
    group.heartbeat(Heartbeat("a", group.generation), 4_000_000)
    assert group.check_session("a", SESSION_US) == [StartSessionTimer("a", 4_000_000)]
    effects = group.check_session("a", SESSION_US + 4_000_000)
    assert effects[0] == MemberRemoved("a", "was silent for its session timeout")
    assert group.check_session("a", 2 * SESSION_US) == [], "no member any more"


def test_a_member_that_does_not_join_by_the_deadline_is_removed() -> None:
    driver = in_state(State.PREPARING_REBALANCE)
    driver.join("b", request=2)
    assert driver.pass_deadline() == [
        MemberRemoved("a", "did not join in time"),
        AnswerJoin("b", 2, 2, leads=True),
    ]


# Heartbeats


def test_a_heartbeat_of_a_joining_member_repeats_the_answer_that_may_be_lost() -> None:
    driver = in_state(State.PREPARING_REBALANCE)
    group = driver.group
    driver.join("a", request=2)
    waiting = Heartbeat("a", 1, joining=2)
    assert group.heartbeat(waiting, 0) == [AnswerHeartbeat(waiting, "ok")]
    driver.join("b", request=2)
    assert group.heartbeat(waiting, 0) == [AnswerJoin("a", 2, 2, leads=True)]
    driver.sync("a")
    assert group.heartbeat(waiting, 0) == [SendAssignment("a", 2, 2, PARTITIONS[0::2])]


@pytest.mark.parametrize(
    "heartbeat", [Heartbeat("x", 1), Heartbeat("a", 0), Heartbeat("a", 1, joining=2)]
)
def test_a_heartbeat_of_another_member_generation_or_join_is_unknown(heartbeat: Heartbeat) -> None:
    assert in_state(State.STABLE).group.heartbeat(heartbeat, 0) == [
        AnswerHeartbeat(heartbeat, "unknown")
    ]


# Any order of events

MEMBERS = st.sampled_from(["a", "b", "c", "d"])


class RandomEvents(RuleBasedStateMachine):
    """Lets anything happen to a group that can, in any order."""

    initial_delay_ms = 0

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(self.initial_delay_ms)
        self.group = self.driver.group
        self.now_us = 0
        self.requests = 0
        self.lives = 1
        self.last_generation = 0

    def perform(self, effects: list[GroupEffect]) -> None:
        for effect in self.driver.perform(effects):
            if isinstance(effect, SendAssignment):
                member = self.group.members[effect.member]
                assert effect.request == member.join.request, "it answers the latest join"
                assert effect.generation == self.group.generation
                assert effect.partitions == member.assignment

    @rule(name=MEMBERS, topics=st.sampled_from([("t",), ("t", "u")]), known=st.integers(-1, 3))
    def member_joins(self, name: str, topics: tuple[str, ...], known: int) -> None:
        self.requests += 1
        asked = join(name, self.requests, topics=topics, generation=known)
        self.perform(self.group.join(asked, self.now_us))

    @rule(name=MEMBERS)
    def join_is_repeated(self, name: str) -> None:
        if name in self.group.members:
            self.perform(self.group.join(self.group.members[name].join, self.now_us))

    @rule(instance=st.sampled_from(["i", "j"]), topics=st.sampled_from([("t",), ("u",)]))
    def static_member_restarts(self, instance: str, topics: tuple[str, ...]) -> None:
        self.requests += 1
        self.lives += 1
        name = f"{instance}#{self.lives}"
        asked = join(name, self.requests, instance=instance, topics=topics)
        self.perform(self.group.join(asked, self.now_us))

    @rule(index=st.integers(0, 5))
    def member_leaves(self, index: int) -> None:
        self.perform(self.group.leave(self.any_member(index), "left", self.now_us))

    @rule(index=st.integers(0, 5), seconds=st.integers(0, 15))
    def time_passes(self, index: int, seconds: int) -> None:
        self.now_us += seconds * 1_000_000
        self.perform(self.group.check_session(self.any_member(index), self.now_us))

    @rule(back=st.integers(0, 2))
    def join_deadline_passes(self, back: int) -> None:
        self.perform(self.group.pass_join_deadline(self.driver.rebalance - back))

    @rule(index=st.integers(0, 5), back=st.integers(0, 1))
    def member_syncs(self, index: int, back: int) -> None:
        sync = self.driver.sync_of(self.any_member(index))
        late = Sync(sync.request, sync.member, sync.generation - back, sync.assignments)
        self.perform(self.group.sync(late, self.now_us))

    @rule()
    def all_members_sync(self) -> None:
        for member in list(self.group.members):
            self.perform(self.group.sync(self.driver.sync_of(member), self.now_us))

    @rule()
    def all_members_rejoin(self) -> None:
        for member in list(self.group.members.values()):
            self.requests += 1
            asked = join(member.id, self.requests, instance=member.join.instance)
            self.perform(self.group.join(asked, self.now_us))

    @precondition(lambda self: not self.group.is_rebalancing)
    @rule()
    def assignor_changes(self) -> None:
        self.perform(self.group.change_assignor("sticky", self.now_us))

    @precondition(lambda self: self.group.members)
    @rule()
    def partitions_change(self) -> None:
        self.perform(self.group.change_partitions(["t"], self.now_us))

    @rule(index=st.integers(0, 5), back=st.integers(0, 1))
    def heartbeat_arrives(self, index: int, back: int) -> None:
        heartbeat = Heartbeat(self.any_member(index), self.group.generation - back)
        before = self.group.state
        assert len(self.group.heartbeat(heartbeat, self.now_us)) == 1
        assert self.group.state == before

    def any_member(self, index: int) -> str:
        members = [*self.group.members, "nobody"]
        return members[index % len(members)]

    @invariant()
    def the_generation_never_goes_down(self) -> None:
        assert self.group.generation >= self.last_generation
        self.last_generation = self.group.generation

    @invariant()
    def only_an_empty_group_has_no_members(self) -> None:
        assert (self.group.state == State.EMPTY) == (not self.group.members)

    @invariant()
    def nobody_waits_for_an_assignment_that_is_known(self) -> None:
        waits = [m.status == "syncing" for m in self.group.members.values()]
        assert self.group.state != State.STABLE or not any(waits)

    @invariant()
    def everybody_who_waits_for_an_assignment_is_answered(self) -> None:
        for member in self.group.members.values():
            if self.group.state == State.PREPARING_REBALANCE and member.status != "joining":
                waiting = Heartbeat(member.id, -1, joining=member.join.request)
                [told] = self.group.heartbeat(waiting, self.now_us)
                assert isinstance(told, RefuseSync)

    @invariant()
    def a_group_with_members_has_one_of_them_as_its_leader(self) -> None:
        started = self.group.state in (State.COMPLETING_REBALANCE, State.STABLE)
        assert not started or self.group.leader in self.group.members

    @invariant()
    def a_group_waits_only_while_somebody_has_not_joined(self) -> None:
        joined = [m.status == "joining" for m in self.group.members.values()]
        if self.group.state == State.PREPARING_REBALANCE and not self.initial_delay_ms:
            assert not all(joined)
        elif self.group.state != State.PREPARING_REBALANCE:
            assert not any(joined)

    @invariant()
    def a_partition_belongs_to_one_member_at_most(self) -> None:
        owned = [tp for member in self.group.members.values() for tp in member.assignment]
        assert len(owned) == len(set(owned))


class RandomEventsWithDelay(RandomEvents):
    """The same, in a group whose first rebalance waits for more members."""

    initial_delay_ms = DELAY_MS


TestRandomEvents = RandomEvents.TestCase
TestRandomEventsWithDelay = RandomEventsWithDelay.TestCase


# A cursor

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
def test_a_cursor_obeys_its_newest_owner_alone(
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
                position = offset
                assert cursor.committed == position
    assert (cursor.owner, cursor.generation) == (owner, generation)
