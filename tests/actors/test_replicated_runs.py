"""Random runs of clusters with replicas keep all promises, and notice each missing safeguard.

The runs and the invariants are in helpers/replicated_runs.py. `make test-replication` tries 2,000
seeds, and looks for a seed that notices each safeguard among the first 200.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import attrs
import pytest
from pykka import Timeout

from helpers.replicated_runs import MORE, ReplicatedRun, ViolationError, problem_of
from wavetank.actors.broker import partition as partition_module
from wavetank.actors.broker.broker import Broker
from wavetank.actors.broker.change_log import ChangeLog
from wavetank.actors.broker.controller import Controller
from wavetank.actors.broker.coordinator import Coordinator
from wavetank.actors.broker.delayed_fetches import DelayedFetches
from wavetank.actors.broker.metadata_image import MetadataImage
from wavetank.actors.broker.metadata_log import MetadataLog
from wavetank.actors.broker.partition import Partition
from wavetank.actors.broker.replica_follower import ReplicaFollower
from wavetank.actors.broker.replication import Replication
from wavetank.model.consensus import election, replication_control
from wavetank.model.consensus.election import Election
from wavetank.model.consensus.replica_set import ReplicaSet
from wavetank.model.consensus.replication_control import ReplicationControl
from wavetank.model.errors import WavetankError
from wavetank.model.log.producer_state import ProducerStateManager

SEEDS = MORE or 48
CHUNK = max(8, SEEDS // 100)
"""Seeds per test case: few, so that a failure names them; not one, so that the list is short."""
ENOUGH = 200
"""Seeds within which a safeguard that is switched off must be noticed."""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept_in_spite_of_faults(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run = ReplicatedRun(seed)
        with run.cluster:
            try:
                run.run()
            except ViolationError as problem:
                steps = "\n".join(run.log)
                raise AssertionError(f"seed {seed}: {problem}\n{steps}") from None


def test_a_run_with_replicas_replays() -> None:
    digests = set()
    for _ in range(2):
        run = ReplicatedRun(3)
        with run.cluster as cluster:
            run.run()
        digests.add(cluster.events.digest)
    assert len(digests) == 1


# Safeguards: the in-sync set and the high watermark


def count_members(patch: pytest.MonkeyPatch, members: Callable[[ReplicaSet], Any]) -> None:
    count_all = ReplicaSet._count

    def counted(self: ReplicaSet) -> None:
        count_all(self)
        self._counted = [self.followers[each] for each in members(self) if each in self.followers]

    patch.setattr(ReplicaSet, "_count", counted)


def count_with_the_confirmed_set_only(patch: pytest.MonkeyPatch) -> None:
    count_members(patch, lambda known: known.agreed.in_sync)


def shrink_without_the_controller(patch: pytest.MonkeyPatch) -> None:
    count_members(patch, lambda known: known.proposed or known.agreed.in_sync)


def commit_with_too_few_in_sync(patch: pytest.MonkeyPatch) -> None:
    count_all = ReplicaSet._count

    def counted(self: ReplicaSet) -> None:
        count_all(self)
        self.is_under_min, self.is_alone = False, not self._counted

    patch.setattr(ReplicaSet, "_count", counted)


def join_below_the_start_of_the_epoch(patch: pytest.MonkeyPatch) -> None:
    nothing = property(lambda self: 0, lambda self, value: None)
    patch.setattr(ReplicaSet, "epoch_start", nothing, raising=False)


def join_without_the_changes(patch: pytest.MonkeyPatch) -> None:
    expand = ReplicaSet.propose_expand

    def without_changes(self: Any, follower: Any, high_watermark: int, _: int, now_us: int) -> Any:
        return expand(self, follower, high_watermark, -1, now_us)

    patch.setattr(ReplicaSet, "propose_expand", without_changes)


def count_no_followers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaSet, "high_watermark", lambda self, end_offset, known: end_offset)


# Safeguards: logs and what belongs to them


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    follow = ReplicaFollower.follow

    def cut_first(self: ReplicaFollower, leader: str | None, leader_epoch: int) -> None:
        if not self.is_writing:
            self._cut(self._log.high_watermark)
        follow(self, leader, leader_epoch)

    patch.setattr(ReplicaFollower, "follow", cut_first)


def truncate_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replication, "_diverges", lambda self, fetch, sender: False)


def fetch_without_the_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    on_fetch = Replication.on_fetch

    def any_epoch(self: Replication, fetch: Any, sender: Any) -> bool:
        return on_fetch(self, fetch._replace(leader_epoch=self._epoch), sender)

    patch.setattr(Replication, "on_fetch", any_epoch)


def take_answers_of_other_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaFollower, "_is_awaited", lambda self, request, leader_epoch: True)


def keep_the_state_of_an_earlier_epoch(patch: pytest.MonkeyPatch) -> None:
    follow = ReplicaFollower.follow

    def without_snapshot(self: ReplicaFollower, leader: str | None, leader_epoch: int) -> None:
        self._leader_epoch = leader_epoch
        follow(self, leader, leader_epoch)

    patch.setattr(ReplicaFollower, "follow", without_snapshot)


def forget_producers_on_followers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStateManager, "restored", lambda self, batch: None)


def keep_producers_after_a_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaFollower, "_remember_producers", lambda self: None)


# Safeguards: answers


def answer_all_at_once(patch: pytest.MonkeyPatch) -> None:
    store = Partition.store

    def early(self: Partition, batch: Any, append: Any, asker: Any) -> None:
        store(self, batch, append._replace(acks=1), asker)

    patch.setattr(Partition, "store", early)


def answer_duplicates_at_once(patch: pytest.MonkeyPatch) -> None:
    refuse = Partition.refuse

    def early(self: Partition, append: Any, verdict: Any, asker: Any) -> None:
        refuse(self, append._replace(acks=1), verdict, asker)

    patch.setattr(Partition, "refuse", early)


def answer_before_changes_are_replicated(patch: pytest.MonkeyPatch) -> None:
    def send(self: ChangeLog, to: Any, message: object) -> None:
        self._effects.send(to, message)

    patch.setattr(ChangeLog, "send", send)


def serve_reads_above_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    answer = DelayedFetches._answer

    def uncommitted(self: DelayedFetches, *arguments: Any, **options: Any) -> bool:
        log = self._log
        known, log.high_watermark = log.high_watermark, log.end_offset
        try:
            return answer(self, *arguments, **options)
        finally:
            log.high_watermark = known

    patch.setattr(DelayedFetches, "_answer", uncommitted)


def tell_an_end_that_may_be_too_low(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "knows_committed", property(lambda self: not self.resigned))


def answer_commits_before_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    append = Coordinator.append_to_log

    def early(self: Coordinator, offsets: Any, generation: Any, then: Any) -> None:
        append(self, offsets, generation, lambda: None)
        then()

    patch.setattr(Coordinator, "append_to_log", early)


def store_commits_in_any_order(patch: pytest.MonkeyPatch) -> None:
    apply = MetadataImage._apply_offsets

    def unnumbered(self: MetadataImage, group: str, offsets: Any, commit: int) -> None:
        self.commit_numbers[group].clear()
        apply(self, group, offsets, commit)

    patch.setattr(MetadataImage, "_apply_offsets", unnumbered)


# Safeguards: controllers


def tell_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    def promise(self: MetadataLog, to: Any, message: object) -> None:
        self._effects.send(to, message)

    patch.setattr(MetadataLog, "promise", promise)


def log_changes_one_by_one(patch: pytest.MonkeyPatch) -> None:
    def change_all(self: Controller, entries: Any) -> None:
        for entry in entries:
            self.image.apply(entry)
            self.log.propose([entry])

    patch.setattr(Controller, "change_all", change_all)


def elect_unclean_leaders(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(election.TABLE, Election.ONLINE, election.TABLE[Election.UNCLEAN])  # type: ignore[arg-type]


def keep_all_that_leave_eligible(patch: pytest.MonkeyPatch) -> None:
    def eligible(before: Any, wanted: Any, min_insync: int, lost: str | None) -> tuple[str, ...]:
        former = {*before.isr, *before.elr}.difference(wanted.isr, (lost,))
        return tuple(each for each in wanted.replicas if each in former)

    patch.setattr(election, "_eligible", eligible)


def let_a_leader_begin_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    change = election.change_partition

    def same_epoch(before: Any, *arguments: Any) -> Any:
        after = change(before, *arguments)
        return attrs.evolve(after, leader_epoch=before.leader_epoch)

    patch.setattr(replication_control, "change_partition", same_epoch)


def keep_a_restarted_broker_in_the_set(patch: pytest.MonkeyPatch) -> None:
    leave = ReplicationControl._leave_sets

    def unless_lost(self: ReplicationControl, name: str, lost: bool = False) -> list[Any]:
        return [] if lost else leave(self, name)

    patch.setattr(ReplicationControl, "_leave_sets", unless_lost)


def take_every_restart_for_a_clean_one(patch: pytest.MonkeyPatch) -> None:
    leave = ReplicationControl._leave_sets

    def clean(self: ReplicationControl, name: str, lost: bool = False) -> list[Any]:
        return leave(self, name)

    patch.setattr(ReplicationControl, "_leave_sets", clean)


def accept_members_of_any_broker_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicationControl, "_is_current", lambda self, name, epoch: True)


def accept_fenced_members(patch: pytest.MonkeyPatch) -> None:
    refuse = ReplicationControl._refuse_isr

    def unless_fenced(self: ReplicationControl, *arguments: Any) -> Any:
        refusal = refuse(self, *arguments)
        ineligible = replication_control.IsrRefusal.INELIGIBLE_REPLICA
        return None if refusal is ineligible else refusal

    patch.setattr(ReplicationControl, "_refuse_isr", unless_fenced)


def accept_sets_of_old_partition_epochs(patch: pytest.MonkeyPatch) -> None:
    refuse = ReplicationControl._refuse_isr

    def any_epoch(
        self: ReplicationControl, partition: Any, broker: str, broker_epoch: int,
        leader_epoch: int, partition_epoch: int, isr: Any,
    ) -> Any:  # fmt: skip
        known = self.partitions.get(partition)
        if known is not None:
            partition_epoch = known.partition_epoch
        return refuse(self, partition, broker, broker_epoch, leader_epoch, partition_epoch, isr)

    patch.setattr(ReplicationControl, "_refuse_isr", any_epoch)


# Safeguards: orders


def obey_controllers_of_old_terms(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Broker, "obeys", lambda self, term: True)


def carry_out_overtaken_orders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Broker,
        "last_orders",
        property(lambda self: (0, 0), lambda self, value: None),
        raising=False,
    )


def take_old_states(patch: pytest.MonkeyPatch) -> None:
    falling = count(0, -1)
    patch.setattr(partition_module, "_epochs", lambda state: next(falling))


def never_ask_to_be_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Broker, "lost_lease", property(lambda self: False, lambda self, value: None), raising=False
    )


SAFEGUARDS: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    count_no_followers: 0,
    count_with_the_confirmed_set_only: 57,
    shrink_without_the_controller: 11,
    commit_with_too_few_in_sync: 0,
    join_below_the_start_of_the_epoch: 19,
    truncate_to_the_high_watermark: 0,
    truncate_nothing: 0,
    take_answers_of_other_epochs: 0,
    keep_the_state_of_an_earlier_epoch: 3,
    forget_producers_on_followers: 0,
    keep_producers_after_a_truncation: 11,
    answer_all_at_once: 0,
    answer_duplicates_at_once: 0,
    answer_before_changes_are_replicated: 0,
    serve_reads_above_the_high_watermark: 0,
    tell_an_end_that_may_be_too_low: 19,
    elect_unclean_leaders: 12,
    keep_all_that_leave_eligible: 0,
    let_a_leader_begin_without_a_new_epoch: 0,
    keep_a_restarted_broker_in_the_set: 0,
    take_every_restart_for_a_clean_one: 12,
    never_ask_to_be_fenced: 0,
    carry_out_overtaken_orders: 112,
}
"""What can be switched off, and a seed that notices it."""


def notices(seed: int) -> bool:
    """Tell whether a seed finds something wrong."""
    try:
        return bool(problem_of(seed))
    except (Timeout, WavetankError, AssertionError):
        return True


@pytest.mark.parametrize("switch_off", SAFEGUARDS, ids=lambda each: each.__name__)
def test_a_safeguard_that_is_switched_off_is_noticed(
    switch_off: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    seeds = range(ENOUGH) if MORE else [SAFEGUARDS[switch_off]]
    assert any(map(notices, seeds)), f"not noticed within {len(seeds)} seeds"
