"""The in-sync set of a leader, one rule at a time and against a plain version of the rules."""

from random import Random

import attrs
import pytest

from wavetank.model.consensus.replica_set import (
    RETRY_US,
    TABLE,
    UNKNOWN,
    InSyncEvent,
    InSyncState,
    ReplicaSet,
)
from wavetank.model.messages.replication import ReplicaState

LAG_US = 1_000
BROKERS = ("a", "b", "c")


def state(
    in_sync: tuple[str, ...] = BROKERS, epoch: int = 0, unclean: bool = False
) -> ReplicaState:
    return ReplicaState(BROKERS, in_sync, "a", 5, epoch, unclean)


def leader(
    in_sync: tuple[str, ...] = BROKERS, *, end: int = 0, min_insync: int = 1, now_us: int = 0
) -> ReplicaSet:
    made = ReplicaSet(
        "a", 1, state(in_sync), lag_time_us=LAG_US, min_insync=min_insync, end_offset=end,
        now_us=now_us,
    )  # fmt: skip
    for number, follower in enumerate(made.followers.values()):
        made.restarted(follower, number + 2)
    return made


def fetch(
    replicas: ReplicaSet, name: str, offset: int, *, end: int, now_us: int = 0, changes: int = 0
) -> None:
    replicas.fetched(replicas.followers[name], offset, changes, end, now_us)


def test_the_high_watermark_is_the_lowest_end_in_the_in_sync_set() -> None:
    replicas = leader()
    fetch(replicas, "b", 7, end=10)
    assert replicas.high_watermark(10, 3) == 3, "nothing is known of c"
    fetch(replicas, "c", 5, end=10)
    assert replicas.high_watermark(10, 3) == 5
    fetch(replicas, "c", 10, end=10)
    assert replicas.high_watermark(10, 5) == 7


def test_the_high_watermark_does_not_wait_for_a_follower_that_is_not_in_sync() -> None:
    replicas = leader(("a", "b"))
    fetch(replicas, "b", 7, end=10)
    assert replicas.high_watermark(10, 0) == 7


def test_the_high_watermark_never_goes_back() -> None:
    replicas = leader()
    fetch(replicas, "b", 4, end=10)
    fetch(replicas, "c", 4, end=10)
    assert replicas.high_watermark(10, 6) == 6


def test_the_high_watermark_stands_still_below_min_insync_replicas() -> None:
    replicas = leader(("a",), min_insync=2)
    assert replicas.is_under_min
    assert not replicas.is_alone
    assert replicas.high_watermark(10, 2) == 2
    assert replicas.confirmed_changes(4, 1) == 1


def test_no_more_replicas_are_asked_for_than_there_are() -> None:
    assert not leader(min_insync=7).is_under_min


def test_a_follower_that_was_proposed_counts_before_the_proposal_is_confirmed() -> None:
    replicas = leader(("a", "b"), end=10)
    fetch(replicas, "b", 10, end=10)
    fetch(replicas, "c", 10, end=10)
    proposal = replicas.propose_expand(replicas.followers["c"], 10, 0, 0)
    assert proposal is not None
    assert proposal.in_sync == (("a", 1), ("b", 2), ("c", 3))
    fetch(replicas, "b", 20, end=20)
    assert replicas.high_watermark(20, 10) == 10


def test_a_follower_that_lags_counts_until_its_removal_is_confirmed() -> None:
    replicas = leader()
    fetch(replicas, "b", 10, end=10, now_us=2 * LAG_US)
    proposal = replicas.propose_shrink(10, 2 * LAG_US)
    assert proposal is not None
    assert proposal.in_sync == (("a", 1), ("b", 2))
    assert replicas.high_watermark(10, 0) == 0
    assert replicas.confirm(state(("a", "b"), 1))
    assert replicas.high_watermark(10, 0) == 10


def test_a_follower_that_is_always_one_fetch_behind_is_in_sync() -> None:
    replicas = leader(("a", "b"))
    for number in range(10):
        fetch(replicas, "b", number, end=number + 1, now_us=number * LAG_US // 2)
    assert not replicas.lagging(10, 9 * LAG_US // 2)


def test_a_follower_that_never_catches_up_lags() -> None:
    replicas = leader(("a", "b"))
    for number in range(10):
        fetch(replicas, "b", number, end=5 * number + 5, now_us=number * LAG_US // 2)
    assert replicas.lagging(50, 9 * LAG_US // 2) == ["b"]


def test_an_idle_follower_with_the_whole_log_does_not_lag() -> None:
    replicas = leader(("a", "b"), end=4)
    fetch(replicas, "b", 4, end=4)
    assert not replicas.lagging(4, 100 * LAG_US)
    assert replicas.lagging(5, 100 * LAG_US) == ["b"]


def test_a_follower_joins_only_with_all_that_was_there_when_the_epoch_began() -> None:
    replicas = leader(("a",), end=10)
    fetch(replicas, "b", 9, end=12)
    assert replicas.propose_expand(replicas.followers["b"], 4, 0, 0) is None
    fetch(replicas, "b", 10, end=12)
    assert replicas.propose_expand(replicas.followers["b"], 4, 0, 0) is not None


def test_a_follower_joins_only_with_all_that_is_committed() -> None:
    replicas = leader(("a",), end=10)
    fetch(replicas, "b", 11, end=12, changes=2)
    follower = replicas.followers["b"]
    assert replicas.propose_expand(follower, 12, 2, 0) is None, "records"
    assert replicas.propose_expand(follower, 11, 3, 0) is None, "changes"
    assert replicas.propose_expand(follower, 11, 2, 0) is not None


def test_one_proposal_is_on_its_way_at_a_time() -> None:
    replicas = leader(("a",), end=10)
    for name in "bc":
        fetch(replicas, name, 10, end=10)
    assert replicas.propose_expand(replicas.followers["b"], 10, 0, 0) is not None
    assert replicas.propose_expand(replicas.followers["c"], 10, 0, 0) is None
    assert replicas.confirm(state(("a", "b"), 1))
    assert replicas.propose_expand(replicas.followers["c"], 10, 0, 0) is not None


def test_a_refused_follower_is_proposed_again_after_a_while() -> None:
    replicas = leader(("a",), end=10)
    fetch(replicas, "b", 10, end=10)
    follower = replicas.followers["b"]
    assert replicas.propose_expand(follower, 10, 0, 0) is not None
    replicas.refuse(0, 5)
    assert replicas.state is InSyncState.COMMITTED
    assert replicas.propose_expand(follower, 10, 0, 5 + RETRY_US - 1) is None
    assert replicas.propose_expand(follower, 10, 0, 5 + RETRY_US) is not None


def test_the_refusal_of_an_older_proposal_changes_nothing() -> None:
    replicas = leader(("a",), end=10)
    fetch(replicas, "b", 10, end=10)
    replicas.propose_expand(replicas.followers["b"], 10, 0, 0)
    replicas.refuse(-1, 5)
    assert replicas.state is InSyncState.PENDING_EXPAND


def test_an_older_state_is_ignored() -> None:
    replicas = leader(("a", "b"))
    assert replicas.confirm(state(("a",), 3))
    assert not replicas.confirm(state(("a", "b"), 3))
    assert not replicas.confirm(state(("a", "b"), 2))
    assert replicas.agreed.in_sync == ("a",)


def test_nothing_is_known_of_a_follower_that_has_restarted() -> None:
    replicas = leader(("a", "b"))
    follower = replicas.followers["b"]
    fetch(replicas, "b", 10, end=10)
    replicas.restarted(follower, 9)
    assert (follower.end_offset, follower.changes) == (UNKNOWN, UNKNOWN)
    assert replicas.high_watermark(12, 10) == 10


def test_the_table_names_each_state_and_only_events_that_can_happen() -> None:
    assert set(TABLE) == set(InSyncState)
    for here, row in TABLE.items():
        assert InSyncEvent.CONFIRMED in row
        pending = here is not InSyncState.COMMITTED
        assert (InSyncEvent.REFUSED in row) is pending
        assert (InSyncEvent.CAUGHT_UP in row) is not pending


@attrs.define
class PlainSet:
    """The rules in the plainest form: all sets that the controllers may have, kept as a list."""

    possible: list[set[str]]
    ends: dict[str, int]

    def high_watermark(self, end: int) -> int:
        members = set().union(*self.possible)
        return min([end, *(self.ends[name] for name in members if name != "a")])


@pytest.mark.parametrize("seed", range(200))
def test_the_high_watermark_is_safe_whichever_set_the_controllers_have(seed: int) -> None:
    """Random fetches and proposals; a proposal may have been accepted before anybody knows it."""
    dice = Random(seed)
    replicas = leader(end=0)
    plain = PlainSet([set(BROKERS)], {"b": UNKNOWN, "c": UNKNOWN})
    agreed, epoch = set(BROKERS), 0
    end = mark = now_us = 0
    for _ in range(80):
        now_us += dice.randrange(LAG_US)
        end += dice.randrange(4)
        name = dice.choice("bc")
        follower = replicas.followers[name]
        match dice.randrange(5):
            case 0 | 1:
                offset = dice.randint(max(0, follower.end_offset), end)
                fetch(replicas, name, offset, end=end, now_us=now_us)
                plain.ends[name] = offset
            case 2:
                proposal = replicas.propose_shrink(end, now_us)
                if proposal is None:
                    proposal = replicas.propose_expand(follower, mark, 0, now_us)
                if proposal is not None:
                    plain.possible = [agreed, {member for member, _ in proposal.in_sync}]
            case 3 if len(plain.possible) == 2:
                agreed = dice.choice(plain.possible)
                if agreed is plain.possible[0] and dice.random() < 0.5:
                    replicas.refuse(epoch, now_us)
                else:
                    epoch += 1
                    assert replicas.confirm(state(tuple(sorted(agreed)), epoch))
                plain.possible = [agreed]
        before, mark = mark, replicas.high_watermark(end, mark)
        assert mark == max(before, plain.high_watermark(end))
