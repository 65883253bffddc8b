"""The share fetcher without an engine: attaching, credit, buffers, and handing out."""

from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

import attrs
import pytest

import wavetank as wt
from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.client.acknowledger import Acknowledger, ShareFetchState
from wavetank.actors.client.membership import GroupMembership
from wavetank.actors.client.metadata import MetadataCache
from wavetank.actors.client.poll_loop import WaitingPoll
from wavetank.actors.client.share_fetcher import ShareFetcher
from wavetank.actors.controller_finder import ControllerFinder
from wavetank.model.events.schema import NULL_INT
from wavetank.model.log.batch import Batch
from wavetank.model.messages.cluster import GetMetadata, Leader, Metadata
from wavetank.model.messages.share import (
    Acknowledgements,
    AcknowledgementsDone,
    AcknowledgeRecords,
    Acquire,
    Acquired,
    Attach,
    Attached,
    Delivery,
    Nack,
    RecordsAcknowledged,
    SubscriptionConfig,
)
from wavetank.model.settings import ConsumerSettings
from wavetank.model.topics import Topic

FIRST, SECOND, THIRD = PARTITIONS = [wt.TopicPartition("orders", number) for number in range(3)]
ACK_TIMEOUT_US, OWN_US = 1_000, 900
GENERATION = 4


@attrs.define(eq=False)
class Loop:
    """A poll loop that hands nothing out."""

    runs: bool
    poll: WaitingPoll | None = None
    batch: tuple[Any, ...] = ()
    served: int = 0

    def serve(self) -> None:
        self.served += 1

    serve_soon = serve


class Acquiring:
    """A share fetcher, and the leaders of the partitions that it asks."""

    def __init__(self, limit: int, delivery: Delivery, *, runs: bool) -> None:
        self.effects = FakeEffects()
        self.leaders = {tp: FakeRef(f"leader-{tp.partition}") for tp in PARTITIONS}
        settings, ids = ConsumerSettings(max_in_flight=limit), count(1)
        self.terms = SubscriptionConfig(
            "billing", delivery, "earliest", ACK_TIMEOUT_US, 3, 10, 10, None, 100, 1_000
        )
        effects: Any = self.effects
        controller: Any = FakeRef("controller")
        owner: Any = None
        loop: Any = Loop(runs)
        self.loop: Loop = loop
        self.cluster = MetadataCache(effects, ControllerFinder((controller,)), settings)
        self.membership: GroupMembership[ShareFetchState] = GroupMembership(
            effects, self.cluster, ids, settings, "billing", ("orders",), owner
        )
        self.membership.generation = GENERATION
        self.acknowledger = Acknowledger(effects, ids, self.membership, self.terms)
        self.fetcher = ShareFetcher(
            effects, self.cluster, ids, settings, self.membership, loop, self.acknowledger,
            self.terms,
        )  # fmt: skip
        self.version = 0
        self.learn_leaders()

    def learn_leaders(self) -> None:
        self.version += 1
        leaders: Any = {tp: Leader(ref, "broker-0", 0) for tp, ref in self.leaders.items()}
        topics = {"orders": Topic("orders", len(PARTITIONS))}
        self.cluster.update(Metadata(self.version, topics, leaders, {}, ("broker-0",)))

    def move(self, partition: wt.TopicPartition) -> None:
        """Give a partition a new leader."""
        self.leaders[partition] = FakeRef("new leader")
        self.learn_leaders()

    def assign(self, partition: wt.TopicPartition) -> ShareFetchState:
        made = self.membership.assigned[partition] = ShareFetchState(partition)
        self.fetcher.advance(made)
        return made

    def attach(self, *partitions: wt.TopicPartition, position: int = 0) -> list[ShareFetchState]:
        """Assign partitions, and answer the requests to attach."""
        made = [self.assign(tp) for tp in partitions]
        for each in made:
            self.fetcher.on_attached(Attached(each.request, position))
        return made

    def hold(self, *partitions: wt.TopicPartition) -> list[ShareFetchState]:
        """Be attached to partitions from the beginning, and ask them all at once."""
        leaders: Any = self.leaders
        made = [ShareFetchState(tp, leaders[tp], claimed=True) for tp in partitions]
        self.membership.assigned.update(zip(partitions, made, strict=True))
        self.fetcher.give_credit()
        return made

    def poll(self, max_records: int) -> None:
        """Let a poll wait for records."""
        asker: Any = FakeRef("user")
        timer: Any = None
        self.loop.poll = WaitingPoll(1, asker, max_records, timer)
        self.fetcher.give_credit()

    def answer(
        self, assigned: ShareFetchState, *pieces: tuple[Batch, int], in_flight: int | None = None
    ) -> None:
        """Answer the request of a partition; all records are in flight unless it is said."""
        given = sum(batch.count for batch, _ in pieces)
        now = given if in_flight is None else in_flight
        self.fetcher.on_acquired(Acquired(assigned.request, pieces, now))

    def sent_to(self, partition: wt.TopicPartition, kind: type) -> list[Any]:
        """The messages of a type that were sent to the leader of a partition."""
        to = self.leaders[partition]
        return [each for ref, each in self.effects.sent if ref is to and type(each) is kind]

    def asked(self, *partitions: wt.TopicPartition) -> list[list[int]]:
        """The credits of the requests for records, by partition."""
        return [[each.credit for each in self.sent_to(tp, Acquire)] for tp in partitions]

    def take(self, max_records: int = 500) -> list[tuple[int, list[int], int]]:
        """Take records: the number of the partition, the offsets, and the retries of each piece."""
        return [
            (tp.partition, list(range(batch.base_offset, batch.base_offset + batch.count)), retries)
            for tp, batch, retries in self.fetcher.take(max_records)
        ]


Make: TypeAlias = Callable[..., Acquiring]


@pytest.fixture
def running() -> Make:
    """Makes the fetcher of a consumer that runs by itself, with short poll batches so far."""

    def make(limit: int = 10, delivery: Delivery = "shared") -> Acquiring:
        made = Acquiring(limit, delivery, runs=True)
        made.fetcher.batch_done()
        return made

    return make


@pytest.fixture
def called() -> Make:
    """Makes the fetcher of a consumer that is called."""
    return lambda limit=10, delivery="shared": Acquiring(limit, delivery, runs=False)


def records(offset: int, number: int, producer: str = "shop") -> Batch:
    batch = Batch.of(producer, 0, list(range(number)), timestamps_us=0, sizes=1)
    return batch.stamped(offset, 0, 0)


# Attaching


def test_a_consumer_attaches_to_a_partition_before_it_asks_for_records(running: Make) -> None:
    made = running()
    assigned = made.assign(FIRST)
    expected = Attach(assigned.request, "billing", "me", GENERATION, made.terms)
    assert made.sent_to(FIRST, Attach) == [expected]
    assert made.effects.messages(Acquire) == []
    made.fetcher.on_attached(Attached(assigned.request, 7))
    [acquire] = made.sent_to(FIRST, Acquire)
    assert acquire == Acquire(assigned.request, "billing", "me", 10, 0, wait=True)


def test_the_partition_says_where_the_group_is(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST, position=7)
    assert assigned.done == 7
    [(kind, fields)] = made.effects.events
    assert (kind, fields["base_offset"], fields["partition"]) == ("assigned", 7, 0)


def test_the_controller_is_asked_for_a_leader_that_is_unknown(running: Make) -> None:
    made = running()
    del made.leaders[FIRST]
    made.learn_leaders()
    assigned = made.assign(FIRST)
    assert [type(message) for _, message in made.effects.sent] == [GetMetadata]
    assert not assigned.request


def test_a_request_to_attach_is_not_repeated_while_it_waits_for_an_answer(running: Make) -> None:
    made = running()
    made.fetcher.advance(made.assign(FIRST))
    assert len(made.effects.messages(Attach)) == 1


def test_a_consumer_attaches_to_a_new_leader_without_the_answer_of_the_old_one(
    running: Make,
) -> None:
    made = running()
    assigned = made.assign(FIRST)
    late = assigned.request
    made.move(FIRST)
    made.fetcher.advance(assigned)
    assert len(made.sent_to(FIRST, Attach)) == 1
    made.fetcher.on_attached(Attached(late, 7))
    assert not assigned.claimed


def test_a_new_leader_gets_the_credit_of_the_old_one(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    assert assigned.credit == 10
    made.move(FIRST)
    made.fetcher.advance(assigned)
    assert assigned.credit == 0
    made.fetcher.on_attached(Attached(assigned.request, 0))
    assert made.asked(FIRST) == [[10]]


def test_a_partition_is_assigned_once_whatever_its_leaders_do(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST, position=7)
    made.move(FIRST)
    made.fetcher.advance(assigned)
    made.fetcher.on_attached(Attached(assigned.request, 3))
    assert made.effects.kinds() == ["assigned"]
    assert assigned.done == 7


def test_a_new_leader_gets_the_acknowledgements_that_were_not_answered(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    assigned.acks.append((0, 3))
    made.fetcher.advance(assigned)
    [told] = made.sent_to(FIRST, AcknowledgeRecords)
    made.move(FIRST)
    made.fetcher.advance(assigned)
    assert made.sent_to(FIRST, AcknowledgeRecords) == []
    made.fetcher.on_attached(Attached(assigned.request, 0))
    assert made.sent_to(FIRST, AcknowledgeRecords) == [told]


def test_an_attached_partition_hears_what_became_of_its_records(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    assigned.acks.append((0, 3))
    made.fetcher.advance(assigned)
    [told] = made.sent_to(FIRST, AcknowledgeRecords)
    assert told.acks == ((0, 3),)


def test_a_partition_that_may_have_records_again_is_asked_once_it_is_attached(
    called: Make,
) -> None:
    made = called()
    assigned = made.assign(FIRST)
    assigned.ready = False
    made.poll(5)
    made.fetcher.on_attached(Attached(assigned.request, 0))
    assert made.asked(FIRST) == [[5]]


# Credit of a consumer that runs by itself


def test_each_partition_keeps_an_equal_part_of_the_limit(running: Make) -> None:
    made = running(11)
    made.hold(*PARTITIONS)
    assert made.asked(*PARTITIONS) == [[3], [3], [3]]
    assert all(acquire.wait for acquire in made.effects.messages(Acquire))


def test_a_partition_that_keeps_its_credit_is_not_asked_again(running: Make) -> None:
    made = running()
    made.attach(FIRST)
    made.fetcher.give_credit()
    assert made.asked(FIRST) == [[10]]


def test_records_in_flight_are_taken_off_the_credit(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 4), 0))
    assert made.asked(FIRST) == [[10, 6]]


def test_the_partition_knows_best_how_many_records_are_in_flight(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 4), 0), in_flight=7)
    assert made.asked(FIRST) == [[10, 3]]


def test_a_consumer_asks_for_nothing_at_its_limit(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 10), 0))
    assert made.asked(FIRST) == [[10]]


def test_credit_is_taken_back_for_a_partition_that_joins(running: Make) -> None:
    made = running()
    [first] = made.attach(FIRST)
    late = first.request
    made.attach(SECOND)
    assert made.asked(FIRST, SECOND) == [[10, 5], [5]]
    made.fetcher.on_acquired(Acquired(late, ((records(0, 10), 0),), 10))
    assert not first.buffer, "the new request has replaced it"


def test_a_partition_beyond_its_quota_loses_all_its_credit(running: Make) -> None:
    made = running()
    [first] = made.attach(FIRST)
    made.answer(first, (records(0, 8), 0))
    made.attach(SECOND)
    assert made.asked(FIRST) == [[10, 2, 0]]
    assert not first.waits


def test_a_partition_gets_only_what_the_others_leave_of_the_limit(running: Make) -> None:
    made = running()
    [first] = made.hold(FIRST)
    made.answer(first, (records(0, 8), 0))
    made.hold(SECOND, THIRD)
    assert made.asked(SECOND, THIRD) == [[2], []]


def test_no_partition_gets_more_than_its_quota(running: Make) -> None:
    made = running()
    partitions = first, _ = made.hold(FIRST, SECOND)
    for each in partitions:
        each.request = each.credit = 0
    first.in_flight = 4
    made.fetcher.give_credit()
    assert made.asked(FIRST, SECOND) == [[5, 1], [5, 5]]


def test_a_partition_that_has_not_answered_attach_has_no_quota(running: Make) -> None:
    made = running()
    made.assign(SECOND)
    made.attach(FIRST)
    assert made.asked(FIRST, SECOND) == [[10], []]


@pytest.mark.parametrize("runs", [True, False])
def test_a_paused_partition_gets_no_credit(runs: bool) -> None:
    made = Acquiring(10, "shared", runs=runs)
    assigned = made.assign(FIRST)
    assigned.paused = True
    made.fetcher.on_attached(Attached(assigned.request, 0))
    made.poll(5)
    assert made.asked(FIRST) == [[]]


def test_a_paused_partition_leaves_its_quota_to_the_others(running: Make) -> None:
    made = running()
    assigned = made.assign(FIRST)
    assigned.paused = True
    made.fetcher.on_attached(Attached(assigned.request, 0))
    made.attach(SECOND)
    assert made.asked(SECOND) == [[10]]


def test_records_are_handed_back_before_more_are_asked_for(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    assigned.acks.append((0, 1))
    made.acknowledger.flush(assigned)
    assigned.nacks.append(Nack((1, 2), None, "broken"))
    made.answer(assigned, (records(2, 1), 0))
    assert made.asked(FIRST) == [[10]], "the acknowledgement was not answered"
    [told] = made.sent_to(FIRST, AcknowledgeRecords)
    made.acknowledger.on_settled(RecordsAcknowledged(told.request, (), 1))
    made.fetcher.advance(assigned)
    [*_, nacked, acquire] = [message for _, message in made.effects.sent]
    assert nacked.nacks == (Nack((1, 2), None, "broken"),)
    assert acquire.credit == 9


def test_credit_is_taken_back_only_after_records_were_handed_back(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    assigned.acks.append((0, 1))
    made.acknowledger.flush(assigned)
    assigned.nacks.append(Nack((1, 2), None, "broken"))
    made.attach(SECOND)
    assert made.asked(FIRST, SECOND) == [[10], []]


def test_with_more_partitions_than_records_they_are_asked_in_turn(running: Make) -> None:
    made = running(1)
    partitions = made.hold(*PARTITIONS)
    for _ in partitions:
        [asked] = [each for each in partitions if each.credit]
        assert (asked.credit, asked.waits) == (1, False)
        made.answer(asked)
    assert made.asked(*PARTITIONS) == [[1], [1], [1]]
    assert not any(each.credit for each in partitions), "none of them has records"


# Credit of a consumer that is called


def test_a_consumer_that_is_called_asks_for_records_only_while_a_poll_waits(called: Make) -> None:
    made = called()
    made.attach(FIRST)
    assert made.asked(FIRST) == [[]]
    made.poll(5)
    assert made.asked(FIRST) == [[5]]
    assert [acquire.wait for acquire in made.effects.messages(Acquire)] == [False]


def test_a_poll_is_divided_by_the_partitions_to_the_last_record(called: Make) -> None:
    made = called(20)
    made.attach(*PARTITIONS)
    made.poll(8)
    assert sorted(made.asked(*PARTITIONS)) == [[2], [3], [3]]


def test_a_poll_for_fewer_records_than_partitions_asks_some_of_them(called: Make) -> None:
    made = called()
    made.attach(*PARTITIONS)
    made.poll(2)
    assert sorted(made.asked(*PARTITIONS)) == [[], [1], [1]]


def test_each_poll_starts_with_another_partition(called: Make) -> None:
    made = called()
    partitions = made.attach(*PARTITIONS)
    for offset in range(len(PARTITIONS)):
        made.poll(1)
        made.loop.poll = None
        [asked] = [each for each in partitions if each.credit]
        made.answer(asked, (records(offset, 1), 0))
    assert made.asked(*PARTITIONS) == [[1], [1], [1]]


def test_a_partition_that_has_not_answered_a_poll_is_not_asked_again(called: Make) -> None:
    made = called()
    made.attach(FIRST)
    made.poll(5)
    made.poll(8)
    assert made.asked(FIRST) == [[5]]


def test_a_poll_gets_no_more_than_the_limit_in_flight(called: Make) -> None:
    made = called(10)
    [assigned] = made.attach(FIRST)
    assigned.in_flight = 7
    made.poll(500)
    assert made.asked(FIRST) == [[3]]


def test_a_poll_asks_for_no_records_that_are_buffered(called: Make) -> None:
    made = called(20)
    [assigned] = made.attach(FIRST)
    made.poll(5)
    made.answer(assigned, (records(0, 5), 0))
    made.poll(7)
    assert made.asked(FIRST) == [[5, 2]]


def test_a_partition_that_had_too_few_records_is_asked_again_when_it_may_have_more(
    called: Make,
) -> None:
    made = called()
    [assigned] = made.attach(FIRST)
    made.poll(5)
    made.answer(assigned, (records(0, 2), 0))
    made.fetcher.give_credit()
    assert made.asked(FIRST) == [[5]]
    assigned.ready = True
    made.fetcher.give_credit()
    assert made.asked(FIRST) == [[5, 3]]


# Acquired records


def test_acquired_records_are_served_and_confirmed_with_the_next_request(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    request = assigned.request
    made.answer(assigned, (records(0, 4), 0), (records(4, 2), 1))
    assert made.loop.served == 1
    assert (assigned.buffered, [retries for _, retries, _ in assigned.buffer]) == (6, [0, 1])
    assert made.sent_to(FIRST, Acquire)[-1].received == request


def test_an_answer_to_an_older_request_is_ignored(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    late = assigned.request
    made.fetcher.acquire(assigned, 5, wait=True)
    made.fetcher.on_acquired(Acquired(late, ((records(0, 10), 0),), 10))
    assert not assigned.buffer
    assert (assigned.credit, assigned.received, made.loop.served) == (5, 0, 0)


def released(made: Acquiring) -> list[Any]:
    return [told.releases for told in made.sent_to(FIRST, AcknowledgeRecords)]


def test_records_that_arrive_after_the_poll_are_handed_back(called: Make) -> None:
    made = called()
    [assigned] = made.attach(FIRST)
    made.poll(5)
    made.loop.poll = None
    made.answer(assigned, (records(3, 5), 0))
    assert released(made) == [((3, 8),)]
    assert (list(assigned.buffer), assigned.buffered) == ([], 0)


def test_records_of_a_partition_that_is_paused_meanwhile_are_handed_back(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    assigned.paused = True
    made.answer(assigned, (records(3, 5), 0))
    assert released(made) == [((3, 8),)]


def test_records_that_may_follow_others_that_were_handed_back_are_handed_back(
    running: Make,
) -> None:
    made = running(delivery="exclusive")
    [assigned] = made.attach(FIRST)
    made.acknowledger.reject(assigned, Nack((0, 3), None, "broken"))
    made.answer(assigned, (records(3, 5), 0))
    assert not assigned.buffer
    [told] = made.sent_to(FIRST, AcknowledgeRecords)
    made.acknowledger.on_settled(RecordsAcknowledged(told.request, (), 5))
    made.fetcher.advance(assigned)
    assert released(made) == [(), ((3, 8),)]


def test_a_poll_waits_for_all_partitions_that_were_asked(called: Make) -> None:
    made = called()
    first, second = made.attach(FIRST, SECOND)
    made.poll(4)
    made.answer(first, (records(0, 2), 0))
    assert not made.fetcher.is_ready()
    made.answer(second, (records(0, 2), 0))
    assert made.fetcher.is_ready()


def test_a_consumer_that_runs_by_itself_waits_for_no_partition(running: Make) -> None:
    made = running()
    made.attach(FIRST)
    assert made.fetcher.is_ready()


# Handing out


def test_a_poll_batch_has_no_more_records_than_were_asked_for(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 3), 0), (records(5, 2), 0))
    assert made.take(4) == [(0, [0, 1, 2], 0), (0, [5], 0)]
    assert assigned.buffered == 1
    assert made.take(4) == [(0, [6], 0)]
    assert (made.take(4), assigned.buffered) == ([], 0)


def test_each_poll_batch_starts_with_another_partition(running: Make) -> None:
    made = running(30)
    for each in made.attach(*PARTITIONS):
        made.answer(each, (records(0, 3), 0))
    taken = [made.take(1)[0][0] for _ in PARTITIONS]
    assert sorted(taken) == [0, 1, 2]


def test_a_poll_batch_has_records_of_several_partitions(running: Make) -> None:
    made = running(30)
    for each in made.attach(*PARTITIONS):
        made.answer(each, (records(0, 2), 0))
    assert sorted(made.take()) == [(0, [0, 1], 0), (1, [0, 1], 0), (2, [0, 1], 0)]


def test_the_partitions_of_a_poll_batch_are_known(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 3), 0))
    made.take(2)
    [(partition, batch)] = made.fetcher.taken
    assert (partition, batch.base_offset, batch.count) == (assigned, 0, 2)
    made.take(2)
    assert [batch.base_offset for _, batch in made.fetcher.taken] == [2]


def test_a_handler_gets_redelivered_records_one_at_a_time(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 2), 0), (records(2, 2), 1), (records(4, 2), 0))
    polls = [made.take() for _ in range(4)]
    assert polls == [[(0, [0, 1], 0)], [(0, [2], 1)], [(0, [3], 1)], [(0, [4, 5], 0)]]


def test_a_caller_gets_redelivered_records_together(called: Make) -> None:
    made = called()
    [assigned] = made.attach(FIRST)
    made.poll(6)
    made.answer(assigned, (records(0, 2), 0), (records(2, 2), 1))
    assert made.take() == [(0, [0, 1], 0), (0, [2, 3], 1)]


def test_records_that_may_belong_to_others_are_not_handed_out(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 2), 0))
    made.effects.now = OWN_US - 1
    assert made.take(1) == [(0, [0], 0)]
    made.answer(assigned, (records(2, 2), 0))
    made.effects.now = OWN_US
    assert made.take() == [(0, [2, 3], 0)]
    assert assigned.buffered == 0
    assert released(made) == [], "the partition knows that they timed out"


def test_an_ordered_group_hands_back_the_records_behind_late_ones(running: Make) -> None:
    made = running(delivery="exclusive")
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 2), 0))
    made.effects.now = OWN_US
    made.answer(assigned, (records(2, 2), 0))
    assert made.take() == []
    assert released(made) == [((2, 4),)]


def test_records_of_partitions_that_are_paused_or_given_up_stay_in_the_buffer(
    running: Make,
) -> None:
    made = running(30)
    partitions = first, second, third = made.attach(*PARTITIONS)
    for each in partitions:
        made.answer(each, (records(0, 2), 0))
    first.paused = True
    made.membership.to_revoke[SECOND] = None
    assert made.take() == [(2, [0, 1], 0)]
    assert [each.buffered for each in (first, second, third)] == [2, 2, 0]


def test_deliveries_are_recorded_by_producer_with_their_retries(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 2), 0), (records(2, 1, "till"), 0), (records(3, 1), 2))
    made.effects.events.clear()
    made.take()
    made.take()
    columns = "producer", "base_offset", "count", "epoch", "retries"
    found = [tuple(fields[name] for name in columns) for _, fields in made.effects.events]
    assert made.effects.kinds() == ["delivered"] * 3
    assert found == [
        ("shop", 0, 2, GENERATION, NULL_INT),
        ("till", 2, 1, GENERATION, NULL_INT),
        ("shop", 3, 1, GENERATION, 2),
    ]


def test_a_poll_batch_is_late_when_the_first_of_its_records_is(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    made.answer(assigned, (records(0, 2), 0))
    made.effects.now = 100
    made.answer(assigned, (records(2, 2), 0))
    assert len(made.take()) == 2
    made.effects.now = OWN_US - 1
    assert not made.fetcher.taken_is_late()
    made.effects.now = OWN_US
    assert made.fetcher.taken_is_late()


# Heartbeats and refusals


def test_the_load_is_a_moving_average_of_the_records_a_second(running: Make) -> None:
    made = running(600)
    [assigned] = made.attach(FIRST)
    interval_ms = ConsumerSettings().heartbeat_interval_ms
    made.answer(assigned, (records(0, 600), 0))
    made.fetcher.measure_load()
    rate = 600 * 1_000 / interval_ms
    assert made.fetcher.load == rate / 2
    made.fetcher.measure_load()
    assert made.fetcher.load == rate / 4


def test_a_consumer_that_a_partition_has_forgotten_attaches_anew(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    late = assigned.request
    made.answer(assigned, (records(0, 2), 0))
    made.fetcher.start_anew(assigned)
    anew = made.membership.assigned[FIRST]
    assert (anew.buffered, anew.in_flight, anew.claimed) == (0, 0, False)
    assert made.sent_to(FIRST, Attach)[-1].request == anew.request
    made.fetcher.on_acquired(Acquired(late, ((records(0, 2), 0),), 2))
    assert not anew.buffer


def test_a_partition_stays_paused_when_the_consumer_attaches_anew(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    assigned.paused = True
    made.fetcher.start_anew(assigned)
    assert made.membership.assigned[FIRST].paused


def test_a_user_hears_that_the_partition_has_forgotten_its_records(running: Make) -> None:
    made = running()
    [assigned] = made.attach(FIRST)
    user: Any = FakeRef("user")
    made.acknowledger.acknowledge(Acknowledgements(acks=((FIRST, (0, 3)),)), user)
    made.fetcher.start_anew(assigned)
    assert made.effects.messages(AcknowledgementsDone) == [AcknowledgementsDone(((FIRST, (0, 3)),))]
