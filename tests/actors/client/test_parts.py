"""The parts of a consumer, each without an engine."""

from itertools import count
from typing import Any

import attrs
import pytest

import wavetank as wt
from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.client.acknowledger import Acknowledger, ShareFetchState
from wavetank.actors.client.fetcher import Fetcher, FetchPosition
from wavetank.actors.client.membership import GroupMembership
from wavetank.actors.client.metadata import MetadataCache, RetryMetadata
from wavetank.actors.client.offset_committer import OffsetCommitter
from wavetank.actors.client.pending import PendingRequests
from wavetank.actors.client.poll_loop import PollLoop, PollOver
from wavetank.actors.client.worker import RecordProcessing as Job
from wavetank.actors.client.worker import WorkDone
from wavetank.actors.controller_finder import ControllerFinder
from wavetank.model.log.batch import Batch
from wavetank.model.member import MemberState
from wavetank.model.messages.client import (
    Claim,
    Claimed,
    CommitDone,
    Fetch,
    Fetched,
    Poll,
    Polled,
    PollFailed,
)
from wavetank.model.messages.cluster import GetMetadata, Leader, Metadata
from wavetank.model.messages.group import (
    Assign,
    CommittedOffset,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    JoinedMember,
    Leave,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetched,
    Sync,
    SyncRefused,
)
from wavetank.model.messages.share import (
    Acknowledgements,
    AcknowledgementsDone,
    AcknowledgeRecords,
    RecordsAcknowledged,
    SubscriptionConfig,
)
from wavetank.model.settings import ConsumerSettings
from wavetank.model.topics import Topic

ORDERS = wt.TopicPartition("orders", 0)
OTHER = wt.TopicPartition("orders", 1)
CONTROLLER, COORDINATOR, LEADER = (FakeRef(name) for name in ("controller", "group", "leader"))
METADATA = Metadata(
    1,
    {"orders": Topic("orders", 2)},
    {tp: Leader(LEADER, "broker-0", 0) for tp in (ORDERS, OTHER)},
    {"billing": COORDINATOR},
    ("broker-0",),
)


@attrs.define(eq=False, slots=False)
class Consumer:
    """A consumer that consists of a membership alone."""

    effects: FakeEffects
    settings: ConsumerSettings = attrs.Factory(ConsumerSettings)
    busy: bool = False
    stored: bool = True
    membership: Any = None
    revoked_: list[Any] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        self.ids = count(1)
        self.cluster = MetadataCache(self.effects, ControllerFinder((CONTROLLER,)), self.settings)
        self.cluster.update(METADATA)
        self.membership = GroupMembership(
            self.effects, self.cluster, self.ids, self.settings, "billing", ("orders",), self
        )

    def make_partition(self, partition: Any) -> FetchPosition:
        return FetchPosition(partition, LEADER, claimed=True)

    def begin(self, partitions: Any) -> None: ...

    def is_busy(self) -> bool:
        return self.busy

    def commit_all(self, partitions: Any) -> bool:
        return self.stored

    def joining(self) -> None: ...

    def revoking(self, partitions: Any) -> None: ...

    def revoked(self, partitions: Any) -> None:
        self.revoked_ += [each.partition for each in partitions]

    def begin_generation(self, *members: JoinedMember) -> int:
        [*_, join] = self.effects.messages(Join)
        answer = JoinAnswer(join.request, join.generation + 1, "range", members, {"orders": 2})
        self.membership.on_join_answer(answer)
        return join.request

    def assign(self, *partitions: Any, protocol: str = "eager") -> None:
        request = self.begin_generation()
        generation = self.membership.generation
        self.membership.on_assign(Assign(request, generation, partitions, protocol))

    def answer(self, status: str, protocol: str = "eager") -> None:
        self.membership.heartbeat()
        [*_, heartbeat] = self.effects.messages(Heartbeat)
        self.membership.on_heartbeat_answer(HeartbeatAnswer(heartbeat, status, protocol))


@pytest.fixture
def effects() -> FakeEffects:
    return FakeEffects()


@pytest.fixture
def consumer(effects: FakeEffects) -> Consumer:
    made = Consumer(effects)
    made.membership.join()
    return made


# Membership


def test_a_member_asks_for_its_assignment_when_the_generation_has_begun(
    consumer: Consumer, effects: FakeEffects
) -> None:
    request = consumer.begin_generation()
    assert consumer.membership.state is MemberState.SYNCING
    assert effects.messages(Sync) == [Sync(request, "me", 0, ())]
    consumer.assign(ORDERS, OTHER)
    assert consumer.membership.state is MemberState.STABLE
    assert set(consumer.membership.assigned) == {ORDERS, OTHER}


def test_the_leader_of_a_group_divides_the_partitions(
    consumer: Consumer, effects: FakeEffects
) -> None:
    members = [JoinedMember(name, None, ("orders",), (), (), -1) for name in ("me", "you")]
    consumer.begin_generation(*members)
    [sync] = effects.messages(Sync)
    assert sync.assignments == (("me", (ORDERS,)), ("you", (OTHER,)))


def test_a_member_without_an_assignment_joins_again(
    consumer: Consumer, effects: FakeEffects
) -> None:
    consumer.membership.on_sync_refused(SyncRefused(consumer.begin_generation(), "rebalancing"))
    assert consumer.membership.state is MemberState.JOINING
    assert len(effects.messages(Join)) == 2


def test_an_eager_member_says_what_it_had_last(consumer: Consumer) -> None:
    consumer.assign(ORDERS, OTHER)
    consumer.answer("rebalancing", "eager")
    join = consumer.effects.messages(Join)[-1]
    assert (join.owned, join.previous, join.generation) == ((), (ORDERS, OTHER), 0)


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_only_librdkafka_gives_up_its_partitions_when_the_coordinator_is_out_of_reach(
    effects: FakeEffects, client: str
) -> None:
    consumer = Consumer(effects, ConsumerSettings(client=client))
    consumer.membership.join()
    consumer.assign(ORDERS)
    effects.now += consumer.settings.session_timeout_ms * 1_000 + 1
    consumer.membership.heartbeat()
    stranger = client == "librdkafka"
    assert consumer.revoked_ == ([ORDERS] if stranger else [])
    assert effects.messages(Join)[-1].member == ("me/2" if stranger else "me")


def test_a_static_member_that_is_closed_does_not_leave_and_returns_as_another_member(
    effects: FakeEffects,
) -> None:
    consumer = Consumer(effects, ConsumerSettings(group_instance_id="till-1"))
    consumer.membership.join()
    consumer.assign(ORDERS)
    asker = FakeRef("user")
    consumer.membership.leave_when_finished(asker, stays_if_static=True)
    assert effects.messages(Leave) == []
    assert consumer.revoked_ == [ORDERS]
    assert not consumer.membership.in_group
    assert effects.sent[-1][0] is asker
    consumer.membership.join()
    join = effects.messages(Join)[-1]
    assert (join.member, join.instance) == ("me/2", "till-1")


def test_an_assignment_that_answers_an_older_join_is_ignored(consumer: Consumer) -> None:
    consumer.membership.on_assign(Assign(99, 5, (ORDERS,), "eager"))
    assert consumer.membership.state is MemberState.JOINING
    assert not consumer.membership.assigned


def test_an_eager_member_gives_up_everything_before_it_joins_again(consumer: Consumer) -> None:
    consumer.assign(ORDERS, OTHER)
    consumer.answer("rebalancing", "eager")
    assert consumer.revoked_ == [ORDERS, OTHER]
    assert consumer.membership.state is MemberState.JOINING
    assert consumer.effects.messages(Join)[-1].owned == ()


def test_a_cooperative_member_keeps_its_partitions_when_it_joins_again(consumer: Consumer) -> None:
    consumer.assign(ORDERS, OTHER, protocol="cooperative")
    consumer.answer("rebalancing", "cooperative")
    assert consumer.revoked_ == []
    assert consumer.effects.messages(Join)[-1].owned == (ORDERS, OTHER)


def test_a_cooperative_member_that_gave_a_partition_up_joins_once_more(consumer: Consumer) -> None:
    consumer.assign(ORDERS, OTHER, protocol="cooperative")
    consumer.answer("rebalancing", "cooperative")
    consumer.assign(ORDERS, protocol="cooperative")
    assert consumer.revoked_ == [OTHER]
    assert consumer.membership.state is MemberState.JOINING
    assert consumer.effects.messages(Join)[-1].owned == (ORDERS,)


@pytest.mark.parametrize("blocked_by", ["the user", "a commit"])
def test_nothing_is_given_up_before_the_user_and_the_commits_are_done(
    consumer: Consumer, blocked_by: str
) -> None:
    consumer.assign(ORDERS)
    consumer.busy, consumer.stored = blocked_by == "the user", blocked_by != "a commit"
    consumer.answer("rebalancing")
    assert consumer.membership.state is MemberState.REJOINING
    assert consumer.revoked_ == []
    consumer.busy, consumer.stored = False, True
    consumer.membership.proceed()
    assert consumer.revoked_ == [ORDERS]
    assert consumer.membership.state is MemberState.JOINING


def test_a_member_that_the_group_went_on_without_starts_from_nothing(consumer: Consumer) -> None:
    consumer.assign(ORDERS)
    consumer.answer("unknown")
    assert consumer.revoked_ == [ORDERS]
    assert consumer.membership.state is MemberState.JOINING


def test_a_deleted_partition_ends_a_reconciliation(consumer: Consumer) -> None:
    consumer.assign(ORDERS, OTHER, protocol="cooperative")
    consumer.answer("rebalancing", "cooperative")
    consumer.stored = False
    consumer.assign(ORDERS, protocol="cooperative")
    assert consumer.membership.state is MemberState.RECONCILING
    consumer.membership.revoke([OTHER], "deleted")
    assert consumer.membership.state is MemberState.STABLE


def test_a_request_to_leave_is_answered_when_the_coordinator_has_confirmed_it(
    consumer: Consumer, effects: FakeEffects
) -> None:
    consumer.assign(ORDERS)
    asker = FakeRef("user")
    consumer.busy = True
    consumer.membership.leave_when_finished(asker)
    assert effects.messages(Leave) == []
    consumer.busy = False
    consumer.membership.proceed()
    assert effects.messages(Leave) == [Leave("me", "left")]
    assert (asker, "me") not in effects.sent
    consumer.membership.on_left()
    assert (asker, "me") in effects.sent


def test_a_member_in_its_second_life_has_another_name_unless_it_is_static() -> None:
    second = FakeEffects(life=2)
    assert Consumer(second).membership.member == "me#2"
    static = Consumer(second, ConsumerSettings(group_instance_id="till-1")).membership
    assert (static.member, static.identity) == ("me#2", "till-1")


# Pending requests


def test_only_the_newest_request_of_a_partition_can_be_answered(consumer: Consumer) -> None:
    consumer.assign(ORDERS)
    membership = consumer.membership
    pending = PendingRequests(
        consumer.effects, consumer.cluster, consumer.ids, consumer.settings, membership
    )
    [assigned] = membership.assigned.values()
    first, second = pending.number(assigned), pending.number(assigned)
    assert pending.answered(first) is None
    assert pending.answered(second) is assigned
    assert pending.answered(second) is None


def test_a_request_without_an_answer_is_sent_again_after_its_timeout(consumer: Consumer) -> None:
    consumer.assign(ORDERS)
    membership, effects = consumer.membership, consumer.effects
    pending = PendingRequests(
        effects, consumer.cluster, consumer.ids, consumer.settings, membership
    )
    [assigned] = membership.assigned.values()
    pending.number(assigned)
    advanced: list[Any] = []
    effects.now = consumer.settings.request_timeout_ms * 1_000
    pending.retry_late(advanced.append)
    assert assigned.request
    effects.now += 1
    pending.retry_late(advanced.append)
    assert not assigned.request
    assert assigned.leader is None
    assert advanced == [assigned, assigned]


# Fetcher and offset committer


@attrs.define(eq=False)
class Reading:
    """A fetcher and a committer on an assigned partition."""

    effects: FakeEffects
    fetcher: Fetcher
    committer: OffsetCommitter
    assigned: FetchPosition

    def learn_offset(self, offset: int | None) -> None:
        self.fetcher.fetch_offsets()
        [*_, fetch] = self.effects.messages(OffsetFetch)
        known = {} if offset is None else {ORDERS: offset}
        self.fetcher.on_offset_fetched(OffsetFetched(fetch.request, known))

    def commits(self) -> list[OffsetCommit]:
        return self.effects.messages(OffsetCommit)


@pytest.fixture
def reading(effects: FakeEffects) -> Reading:
    consumer = Consumer(effects, ConsumerSettings(auto_offset_reset="earliest"))
    consumer.make_partition = FetchPosition
    consumer.membership.join()
    consumer.assign(ORDERS)
    shared = (consumer.ids, consumer.settings, consumer.membership)
    committer = OffsetCommitter(
        effects, consumer.cluster, *shared, commits_by_itself=True, on_answer=lambda: None
    )
    fetcher = Fetcher(effects, consumer.cluster, *shared, begin=committer.begin, fail=pytest.fail)
    return Reading(effects, fetcher, committer, consumer.membership.assigned[ORDERS])


def test_the_committed_offset_is_known_before_a_partition_is_claimed(reading: Reading) -> None:
    reading.fetcher.advance(reading.assigned)
    assert not reading.effects.messages(Claim)
    reading.learn_offset(7)
    assert len(reading.effects.messages(Claim)) == 1


def test_offsets_are_asked_for_once_until_the_answer_is_late(reading: Reading) -> None:
    reading.fetcher.fetch_offsets()
    reading.fetcher.fetch_offsets()
    assert len(reading.effects.messages(OffsetFetch)) == 1
    reading.effects.now += ConsumerSettings().request_timeout_ms * 1_000
    reading.fetcher.fetch_offsets()
    assert len(reading.effects.messages(OffsetFetch)) == 2


def test_a_partition_is_claimed_before_it_is_fetched(reading: Reading) -> None:
    reading.learn_offset(7)
    [claim] = reading.effects.messages(Claim)
    assert not reading.effects.messages(Fetch)
    reading.fetcher.on_claimed(Claimed(claim.request, 0, 20, 0))
    [fetch] = reading.effects.messages(Fetch)
    assert fetch.offset == 7
    assert reading.effects.kinds()[-1] == "assigned"


def test_a_group_without_a_committed_offset_starts_where_its_settings_say(reading: Reading) -> None:
    reading.learn_offset(None)
    [claim] = reading.effects.messages(Claim)
    reading.fetcher.on_claimed(Claimed(claim.request, 3, 20, 5))
    assert reading.assigned.position == 3
    assert reading.effects.kinds()[-2:] == ["offset_reset", "assigned"]


def test_an_answer_without_records_leads_to_the_next_fetch(reading: Reading) -> None:
    reading.learn_offset(0)
    [claim] = reading.effects.messages(Claim)
    reading.fetcher.on_claimed(Claimed(claim.request, 0, 0, 0))
    [fetch] = reading.effects.messages(Fetch)
    assert not reading.fetcher.on_fetched(Fetched(fetch.request, (), 0))
    assert len(reading.effects.messages(Fetch)) == 2


def test_records_in_processing_do_not_move_a_position_that_was_set_meanwhile(
    reading: Reading,
) -> None:
    reading.learn_offset(0)
    [claim] = reading.effects.messages(Claim)
    reading.fetcher.on_claimed(Claimed(claim.request, 0, 20, 0))
    [fetch] = reading.effects.messages(Fetch)
    batch = Batch.of("p", 0, [b""] * 3, timestamps_us=0, sizes=1).stamped(0, 0, 0)
    reading.fetcher.on_fetched(Fetched(fetch.request, (batch,), 3))
    reading.fetcher.take(3)
    reading.fetcher.seek(reading.assigned, 9)
    reading.fetcher.finish_taken()
    assert reading.assigned.done == 9


@pytest.mark.parametrize("status", ["rebalancing", "stale"])
def test_a_commit_that_a_rebalance_got_in_the_way_of_is_repeated_by_the_next_one(
    reading: Reading, status: str
) -> None:
    reading.assigned.claimed, reading.assigned.done = True, 9
    assert reading.committer.commit([ORDERS])
    assert not reading.committer.commit([ORDERS]), "it is on its way"
    [first] = reading.commits()
    if status == "stale":
        reading.committer._membership.generation += 1
    reading.committer.on_answer(OffsetCommitAnswer(first.request, status))
    assert reading.committer.commit([ORDERS])
    assert [each.offsets for each in reading.commits()] == [(CommittedOffset(ORDERS, 9),)] * 2


def test_a_commit_that_the_coordinator_did_not_answer_is_repeated(reading: Reading) -> None:
    reading.assigned.claimed, reading.assigned.done = True, 9
    reading.committer.commit([ORDERS])
    reading.committer.lose_coordinator(COORDINATOR)
    reading.committer.commit([ORDERS])
    assert len(reading.commits()) == 2


@pytest.mark.parametrize("status", ["stale", "unknown"])
def test_a_member_whose_commit_is_refused_gives_everything_up_and_joins_again(
    reading: Reading, status: str
) -> None:
    reading.assigned.claimed, reading.assigned.done = True, 9
    asker = FakeRef("user")
    reading.committer.commit_for(asker)
    [commit] = reading.commits()
    reading.committer.on_answer(OffsetCommitAnswer(commit.request, status))
    assert (asker, CommitDone((), (ORDERS,))) in reading.effects.sent
    membership = reading.committer._membership
    assert membership.state is MemberState.JOINING
    assert not membership.assigned


def test_a_partition_is_committed_only_when_the_answer_has_come(reading: Reading) -> None:
    reading.assigned.claimed, reading.assigned.done = True, 9
    assert not reading.committer.commit_all([ORDERS])
    [commit] = reading.commits()
    assert not reading.committer.commit_all([ORDERS])
    reading.committer.on_answer(OffsetCommitAnswer(commit.request, "ok"))
    assert reading.committer.commit_all([ORDERS])


def test_a_position_that_went_back_is_committed(reading: Reading) -> None:
    reading.assigned.claimed = True
    for offset in (9, 4):
        reading.assigned.done = offset
        assert reading.committer.commit([ORDERS])
        [*_, commit] = reading.commits()
        assert commit.offsets == (CommittedOffset(ORDERS, offset),)
        reading.committer.on_answer(OffsetCommitAnswer(commit.request, "ok"))


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_all_records_of_a_fetch_are_handed_out_before_those_of_the_next(
    effects: FakeEffects, client: str
) -> None:
    consumer = Consumer(effects, ConsumerSettings(client=client))
    consumer.membership.join()
    consumer.assign(OTHER, ORDERS)
    shared = (consumer.ids, consumer.settings, consumer.membership)
    fetcher = Fetcher(effects, consumer.cluster, *shared, begin=pytest.fail, fail=pytest.fail)
    for partition, sizes in ((ORDERS, [2, 1]), (OTHER, [2])):
        assigned = consumer.membership.assigned[partition]
        assigned.request = 0
        assigned.offset_known = True
        fetcher.advance(assigned)
        [*_, fetch] = effects.messages(Fetch)
        batches, offset = [], 0
        for size in sizes:
            batches.append(
                Batch.of("p", offset, [b""] * size, timestamps_us=0, sizes=1).stamped(offset, 0, 0)
            )
            offset += size
        fetcher.on_fetched(Fetched(fetch.request, tuple(batches), 3))
    taken = fetcher.take(10)
    counts = [(tp.partition, batch.count) for tp, batch, _ in taken]
    assert counts == [(0, 2), (0, 1), (1, 2)]


# Poll loop


@attrs.define(eq=False)
class Source:
    """Buffers of records, and what the poll loop said of them."""

    ready: bool = True
    said: list[str] = attrs.Factory(list)

    def user_returned(self) -> None:
        self.said.append("returned")

    def is_ready(self) -> bool:
        return self.ready

    def poll_waits(self) -> None:
        self.said.append("waits")

    def batch_done(self) -> None:
        self.said.append("done")

    def batch_failed(self, error: str) -> None:
        self.said.append(error)


@attrs.define(eq=False)
class Serving:
    """A poll loop over a list of pieces."""

    effects: FakeEffects
    loop: PollLoop
    source: Source
    consumer: Consumer
    pieces: list[Any]

    def take(self, max_records: int) -> tuple[Any, ...]:
        taken, self.pieces[:] = tuple(self.pieces), []
        return taken


def serving(effects: FakeEffects, job: Job | None = None) -> Serving:
    consumer, source = Consumer(effects), Source()
    consumer.membership.join()
    consumer.assign(ORDERS)
    loop = PollLoop(effects, consumer.settings, consumer.membership, job, source)
    made = Serving(effects, loop, source, consumer, [])
    loop.start(made.take)
    return made


def piece(records: int) -> Any:
    return (ORDERS, Batch.of("shop", 0, list(range(records)), timestamps_us=0, sizes=1), 0)


def test_a_poll_waits_until_there_are_records(effects: FakeEffects) -> None:
    made = serving(effects)
    made.loop.on_poll(Poll(None, 5_000))
    assert effects.messages(Polled) == []
    assert made.source.said == ["returned", "waits"]
    made.pieces.append(piece(3))
    made.loop.serve()
    [polled] = effects.messages(Polled)
    assert [batch.count for _, batch, _ in polled.pieces] == [3]
    assert made.loop.is_busy(), "the caller has records"


def test_a_poll_that_reaches_its_timeout_gets_nothing(effects: FakeEffects) -> None:
    made = serving(effects)
    made.loop.on_poll(Poll(None, 5_000))
    made.loop.on_poll_over(PollOver(1))
    assert effects.messages(Polled) == [Polled(())]
    assert not made.loop.is_busy()


def test_an_error_is_raised_by_the_next_poll_and_only_by_that(effects: FakeEffects) -> None:
    made = serving(effects)
    made.loop.error = ValueError("no position")
    made.loop.on_poll(Poll(None, 5_000))
    assert [type(failed.error) for failed in effects.messages(PollFailed)] == [ValueError]
    assert made.loop.error is None


def test_nothing_is_handed_out_while_an_eager_rebalance_waits(effects: FakeEffects) -> None:
    made = serving(effects)
    made.consumer.busy = True
    made.consumer.answer("rebalancing", "eager")
    made.pieces.append(piece(3))
    made.loop.on_poll(Poll(None, 5_000))
    assert effects.messages(Polled) == []


def test_a_running_consumer_works_on_one_poll_batch_at_a_time(effects: FakeEffects) -> None:
    made = serving(effects, Job(service=wt.load.ConstantService("2ms")))
    made.pieces.append(piece(3))
    made.loop.serve()
    [*_, timer] = effects.timers
    assert (timer.due_us, timer.message) == (6_000, WorkDone(1))
    made.pieces.append(piece(1))
    made.loop.serve()
    assert len(made.pieces) == 1, "the first batch is not done"
    made.loop.on_work_done(WorkDone(1))
    assert made.source.said == ["done"]
    assert made.pieces == []


# Acknowledger


@pytest.fixture
def acknowledging(effects: FakeEffects) -> tuple[Acknowledger, ShareFetchState]:
    consumer = Consumer(effects)
    consumer.make_partition = lambda tp: ShareFetchState(tp, LEADER, claimed=True)
    consumer.membership.join()
    consumer.assign(ORDERS)
    terms = SubscriptionConfig("billing", "shared", "earliest", 50, 3, 10, 10, None, 100, 1_000)
    made = Acknowledger(effects, consumer.ids, consumer.membership, terms)
    return made, consumer.membership.assigned[ORDERS]


def test_a_partition_is_told_one_thing_at_a_time(
    acknowledging: tuple[Acknowledger, ShareFetchState], effects: FakeEffects
) -> None:
    acknowledger, assigned = acknowledging
    assigned.acks.append((0, 3))
    acknowledger.flush(assigned)
    assigned.acks += [(3, 4), (4, 6)]
    acknowledger.flush(assigned)
    [first] = effects.messages(AcknowledgeRecords)
    assert first.acks == ((0, 3),)
    answered = acknowledger.on_settled(RecordsAcknowledged(first.request, (), 0))
    assert answered == [assigned]
    assert not acknowledger.commit_all([assigned])
    [_, second] = effects.messages(AcknowledgeRecords)
    assert second.acks == ((3, 6),)


def test_a_user_hears_which_acknowledgements_were_refused(
    acknowledging: tuple[Acknowledger, ShareFetchState], effects: FakeEffects
) -> None:
    acknowledger, _ = acknowledging
    acks = ((ORDERS, (0, 3)), (OTHER, (0, 1)))
    acknowledger.acknowledge(Acknowledgements(acks=acks), FakeRef("user"))
    assert effects.messages(AcknowledgementsDone) == []
    [told] = effects.messages(AcknowledgeRecords)
    acknowledger.on_settled(RecordsAcknowledged(told.request, ((1, 2),), 0))
    [done] = effects.messages(AcknowledgementsDone)
    assert sorted(done.refused) == [(ORDERS, (1, 2)), (OTHER, (0, 1))]


# Metadata


def test_the_controller_is_asked_again_until_nothing_is_missing(effects: FakeEffects) -> None:
    cache = MetadataCache(effects, ControllerFinder((CONTROLLER,)), ConsumerSettings())
    cache.start()
    assert effects.messages(GetMetadata) == [GetMetadata()]
    assert [type(timer.message) for timer in effects.timers[1:]] == [RetryMetadata]
    cache.refresh()
    assert len(effects.messages(GetMetadata)) == 1, "a request is under way"
    cache.update(METADATA)
    cache.complete()
    assert effects.timers[1].cancelled
    cache.refresh()
    assert len(effects.messages(GetMetadata)) == 2


def test_a_dead_leader_is_used_no_more_whatever_the_metadata_says(effects: FakeEffects) -> None:
    cache = MetadataCache(effects, ControllerFinder((CONTROLLER,)), ConsumerSettings())
    cache.update(METADATA)
    assert cache.leader(ORDERS) is LEADER
    assert effects.watched == [LEADER]
    cache.mark_dead(LEADER)
    assert cache.leader(ORDERS) is None


def test_older_metadata_is_ignored(effects: FakeEffects) -> None:
    cache = MetadataCache(effects, ControllerFinder((CONTROLLER,)), ConsumerSettings())
    assert cache.update(METADATA)
    assert not cache.update(attrs.evolve(METADATA, version=0))
    assert cache.current is METADATA
