"""Random runs of the rules of replication keep all invariants, and notice missing safeguards.

The runs and the invariants are in helpers/replication_runs.py.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from helpers.replication_runs import ReplicationRun
from wavetank.model.consensus import election
from wavetank.model.consensus.election import Candidate, Election
from wavetank.model.consensus.replication_control import IsrRefusal, ReplicationControl

SEEDS = 200
CHUNK = 25
ENOUGH = 200
"""Seeds within which a safeguard that is switched off must be noticed."""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_invariant_holds_after_every_entry(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        run = ReplicationRun(seed)
        try:
            run.run()
        except AssertionError as problem:
            steps = "\n".join(run.steps)
            raise AssertionError(f"seed {seed}: {problem}\n{steps}") from None
        seen += run.seen
    expected = {"elections", "from elr", "unclean", "refused", *IsrRefusal}
    # No run has two controllers, and a leader always asks about what it leads.
    assert set(seen) >= expected - {IsrRefusal.NOT_CONTROLLER, IsrRefusal.NOT_LEADER}


# Safeguards


def skip_refusal(patch: pytest.MonkeyPatch, refusal: IsrRefusal) -> None:
    refuse = ReplicationControl._refuse_isr

    def skip(self: ReplicationControl, *request: Any) -> IsrRefusal | None:
        found = refuse(self, *request)
        return None if found is refusal else found

    patch.setattr(ReplicationControl, "_refuse_isr", skip)


def accept_changes_of_an_earlier_leader(patch: pytest.MonkeyPatch) -> None:
    skip_refusal(patch, IsrRefusal.FENCED_LEADER_EPOCH)


def accept_changes_of_an_earlier_partition(patch: pytest.MonkeyPatch) -> None:
    skip_refusal(patch, IsrRefusal.STALE_PARTITION_EPOCH)


def accept_any_replica_as_in_sync(patch: pytest.MonkeyPatch) -> None:
    skip_refusal(patch, IsrRefusal.INELIGIBLE_REPLICA)


def ignore_the_broker_epoch_of_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicationControl, "_is_current", lambda self, name, epoch: name in self.brokers)


def keep_who_lost_its_storage(patch: pytest.MonkeyPatch) -> None:
    leave = ReplicationControl._leave_sets
    patch.setattr(
        ReplicationControl, "_leave_sets", lambda self, name, lost=False: leave(self, name)
    )


def keep_eligible_replicas_when_enough_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    def keep(before: Any, wanted: Any, min_insync: int, lost: str | None) -> tuple[str, ...]:
        former = {*before.isr, *before.elr}.difference(wanted.isr, (lost,))
        return tuple(each for each in wanted.replicas if each in former)

    patch.setattr(election, "_eligible", keep)


def elect_eligible_replicas_though_others_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    brokers = election._brokers

    def both(partition: Any, candidate: Candidate) -> Any:
        isr = (*partition.isr, *partition.elr)
        return brokers(attrs.evolve(partition, isr=isr), candidate)

    patch.setattr(election, "_brokers", both)


def elect_the_last_leader_before_eligible_replicas(patch: pytest.MonkeyPatch) -> None:
    brokers = election._brokers

    def last(partition: Any, candidate: Candidate) -> Any:
        if candidate is Candidate.LAST_KNOWN_LEADER:
            partition = attrs.evolve(partition, isr=(), elr=())
        return brokers(partition, candidate)

    patch.setattr(election, "_brokers", last)


def elect_any_replica(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "TABLE", dict.fromkeys(Election, election.TABLE[Election.UNCLEAN]))


def lead_while_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicationControl, "fence", lambda self, name: [("fence", name)])


def lead_while_stopping(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicationControl, "begin_shutdown", lambda self, name: [("stopping", name)])


def end_a_reassignment_before_the_others_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    def complete(partition: Any) -> Any:
        if not partition.is_reassigning:
            return partition
        isr = tuple(each for each in partition.isr if each in partition.target)
        return attrs.evolve(
            partition, replicas=partition.target, isr=isr, adding=(), removing=()
        )  # fmt: skip

    patch.setattr(election, "_complete_reassignment", complete)


SAFEGUARDS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    accept_changes_of_an_earlier_leader: "in sync and not active",
    accept_changes_of_an_earlier_partition: "members",
    accept_any_replica_as_in_sync: "in sync and not active",
    ignore_the_broker_epoch_of_members: "records lost",
    keep_who_lost_its_storage: "records lost",
    keep_eligible_replicas_when_enough_are_in_sync: "records lost",
    elect_eligible_replicas_though_others_are_in_sync: "leader not in sync",
    elect_the_last_leader_before_eligible_replicas: "eligible replicas",
    elect_any_replica: "unclean without leave",
    lead_while_fenced: "in sync and not active",
    lead_while_stopping: "in sync and not active",
    end_a_reassignment_before_the_others_are_in_sync: "eligible replicas",
}
"""What can be switched off, and which of the invariants notices it first."""


@pytest.mark.parametrize("switch_off", SAFEGUARDS, ids=lambda each: each.__name__)
def test_a_safeguard_that_is_switched_off_is_noticed(
    switch_off: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    problem = next(filter(None, map(problem_of, range(ENOUGH))), f"not within {ENOUGH} seeds")
    assert problem.startswith(SAFEGUARDS[switch_off])


def problem_of(seed: int) -> str:
    """Run a seed, and return what is wrong with it; nothing, if all is well."""
    try:
        ReplicationRun(seed).run()
    except AssertionError as problem:
        return str(problem)
    return ""
