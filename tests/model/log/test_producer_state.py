"""Producer state compared with a log that is searched record by record."""

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wavetank.model.log.batch import Batch
from wavetank.model.log.producer_state import (
    APPEND,
    EXPIRY_US,
    FENCED,
    MIN_PRODUCERS,
    OUT_OF_ORDER,
    RETAINED,
    ProducerStateManager,
    Stored,
)

NOWHERE = Stored(-1, -1)


def batch(sequence: int, count: int = 1, producer: str = "shop") -> Batch:
    return Batch(producer, sequence, count, timestamps_us=0, sizes=1)


@attrs.frozen
class Message:
    """A batch as it was sent. It may arrive never, once or several times, at any time."""

    epoch: int
    floor: int
    batch: Batch


@attrs.define
class Sender:
    """A producer in one epoch, with the batches that are neither acknowledged nor given up."""

    epoch: int
    sequence: int = 0
    unsettled: list[Batch] = attrs.Factory(list)

    @property
    def floor(self) -> int:
        return self.unsettled[0].sequence if self.unsettled else self.sequence


class StateAndLog(RuleBasedStateMachine):
    """Lets producers send, and checks each decision against the whole log."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerStateManager()
        self.log: list[tuple[str, int, int]] = []
        """Producer, epoch and sequence number of every record."""
        self.senders: dict[str, list[Sender]] = {name: [Sender(0)] for name in ("shop", "store")}
        self.messages: list[Message] = []
        self.last_floors: dict[str, int] = {}

    producers = st.sampled_from(["shop", "store"])

    @rule(name=producers, count=st.integers(1, 3), data=st.data())
    def make(self, name: str, count: int, data: st.DataObject) -> None:
        sender = data.draw(st.sampled_from(self.senders[name]))
        sender.unsettled.append(batch(sender.sequence, count, name))
        sender.sequence += count
        self.messages.append(Message(sender.epoch, sender.floor, sender.unsettled[-1]))

    @rule(name=producers, data=st.data())
    def send_again(self, name: str, data: st.DataObject) -> None:
        sender = data.draw(st.sampled_from(self.senders[name]))
        if sender.unsettled:
            chosen = data.draw(st.sampled_from(sender.unsettled))
            self.messages.append(Message(sender.epoch, sender.floor, chosen))

    @rule(name=producers, data=st.data(), give_up=st.booleans())
    def settle(self, name: str, data: st.DataObject, give_up: bool) -> None:
        sender = data.draw(st.sampled_from(self.senders[name]))
        for settled in list(sender.unsettled):
            if give_up or self.where(sender.epoch, settled) is not None:
                sender.unsettled.remove(settled)
                return

    @rule(name=producers)
    def begin_a_new_epoch(self, name: str) -> None:
        self.senders[name].append(Sender(len(self.senders[name])))

    @rule()
    def hand_over(self) -> None:
        self.state = ProducerStateManager(self.state.snapshot())

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(self.messages))
        verdict = self.state.check(message.epoch, message.floor, message.batch)
        self.check_verdict(message, verdict)
        if verdict is APPEND:
            self.append(message)

    def check_verdict(self, message: Message, verdict: object) -> None:
        sent, name = message.batch, message.batch.producer
        sender = self.senders[name][message.epoch]
        stored = self.numbers(name, message.epoch)
        there = self.where(message.epoch, sent)
        before = set(range(message.floor, sent.sequence))
        if any(who == name and epoch > message.epoch for who, epoch, _ in self.log):
            assert verdict is FENCED
        elif there is not None and sent in sender.unsettled:
            assert verdict == Stored(there, there * 10), "exactly where the first copy is"
        elif there is not None:
            assert verdict in (Stored(there, there * 10), NOWHERE)
        elif stored and max(stored) > sent.sequence:
            assert verdict == NOWHERE
            assert sent not in sender.unsettled, (
                "a batch that is still to be stored is never refused as a duplicate"
            )
        elif before <= set(stored):
            assert verdict is APPEND, "no record before it is missing"
        else:
            assert verdict is OUT_OF_ORDER

    def append(self, message: Message) -> None:
        sent, base = message.batch, len(self.log)
        self.log += [
            (sent.producer, message.epoch, sent.sequence + index) for index in range(sent.count)
        ]
        self.state.appended(message.floor, sent.stamped(base, base * 10, 0, message.epoch))
        self.last_floors[sent.producer] = message.floor

    def numbers(self, name: str, epoch: int) -> list[int]:
        return [number for who, when, number in self.log if (who, when) == (name, epoch)]

    def where(self, epoch: int, sent: Batch) -> int | None:
        """Return the offset of the first copy in the log."""
        key = (sent.producer, epoch, sent.sequence)
        return self.log.index(key) if key in self.log else None

    @invariant()
    def no_record_is_stored_twice_or_out_of_order(self) -> None:
        assert len(set(self.log)) == len(self.log)
        for name in self.senders:
            own = [(epoch, number) for who, epoch, number in self.log if who == name]
            assert own == sorted(own)

    @invariant()
    def settled_batches_are_forgotten(self) -> None:
        for entry in self.state.snapshot():
            assert entry.recent
            assert all(number >= self.last_floors[entry.producer] for number, *_ in entry.recent)


StateAndLog.TestCase.settings = settings(max_examples=80, stateful_step_count=60)
TestStateAgainstLog = StateAndLog.TestCase


def written(
    state: ProducerStateManager, sent: Batch, *, floor: int, epoch: int = 0, at: Any = 0
) -> None:
    assert state.check(epoch, floor, sent) is APPEND
    state.appended(floor, sent.stamped(sent.sequence + 100, at, 0, epoch))


def test_a_duplicate_is_answered_with_the_place_of_the_first_copy() -> None:
    state = ProducerStateManager()
    written(state, batch(0, 5), floor=0, at=7)
    written(state, batch(5, 2), floor=0, at=8)
    assert state.check(0, 0, batch(0, 5)) == Stored(100, 7)
    assert state.check(0, 0, batch(5, 2)) == Stored(105, 8)


def test_records_after_a_gap_are_refused_until_the_producer_gives_the_gap_up() -> None:
    state = ProducerStateManager()
    assert state.check(0, 0, batch(5)) is OUT_OF_ORDER, "a producer begins at its floor"
    written(state, batch(0), floor=0)
    assert state.check(0, 1, batch(2)) is OUT_OF_ORDER
    written(state, batch(2), floor=2)
    assert state.check(0, 1, batch(1)) == NOWHERE, "too late: it would be out of order"


def test_a_producer_continues_at_its_floor_after_the_log_was_lost() -> None:
    state = ProducerStateManager()
    assert state.check(0, 40, batch(41)) is OUT_OF_ORDER
    written(state, batch(40), floor=40)
    written(state, batch(41), floor=40)


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    state = ProducerStateManager()
    written(state, batch(0), floor=0)
    written(state, batch(1), floor=0)
    written(state, batch(0), floor=0, epoch=1)
    assert state.check(0, 2, batch(2)) is FENCED
    assert state.check(0, 0, batch(0)) is FENCED, "even batches that it had stored"


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_a_batch_that_overlaps_a_stored_one_is_never_stored_in_part(
    stored: int, start: int, more: int
) -> None:
    state = ProducerStateManager()
    written(state, batch(0, stored), floor=0)
    sequence = max(0, stored - start)
    assert state.check(0, 0, batch(sequence, stored - sequence + more)) is OUT_OF_ORDER


@pytest.mark.parametrize("width", [1, 5])
def test_only_batches_in_flight_are_remembered(width: int) -> None:
    state = ProducerStateManager()
    for sequence in range(1_000):
        written(state, batch(sequence), floor=max(0, sequence - width + 1))
        [entry] = state.snapshot()
        assert len(entry.recent) <= width


def test_producers_that_stored_nothing_for_long_are_forgotten_when_many_others_come() -> None:
    state = ProducerStateManager()
    written(state, batch(0, producer="old"), floor=0, at=0)
    written(state, batch(0, producer="steady"), floor=0, at=0)
    for number in range(20 * MIN_PRODUCERS):
        at = number * EXPIRY_US // MIN_PRODUCERS
        written(state, batch(0, producer=f"p{number}"), floor=0, at=at)
        written(state, batch(number + 1, producer="steady"), floor=number + 1, at=at)
        assert len(state) <= 3 * MIN_PRODUCERS
    assert state.check(0, 0, batch(0, producer="old")) is APPEND
    assert state.check(0, 9, batch(9, producer="steady")) == NOWHERE


def test_a_snapshot_does_not_change_with_the_state() -> None:
    state = ProducerStateManager()
    written(state, batch(0), floor=0)
    snapshot = state.snapshot()
    copy = ProducerStateManager(snapshot)
    written(state, batch(1), floor=1)
    assert copy.snapshot() == snapshot != state.snapshot()
    written(copy, batch(1), floor=0)


SENDS = st.lists(
    st.tuples(st.sampled_from(["shop", "store"]), st.integers(0, 1), st.integers(0, 6)),
    max_size=15,
)


def tried(state: ProducerStateManager, sends: list[tuple[str, int, int]]) -> list[object]:
    """Send batches of one record, append those that are new, and return all verdicts."""
    verdicts = []
    for producer, epoch, sequence in sends:
        sent = batch(sequence, producer=producer)
        verdicts.append(state.check(epoch, 0, sent))
        if verdicts[-1] is APPEND:
            state.appended(0, sent.stamped(len(verdicts), sequence, 0, epoch))
    return verdicts


@given(SENDS, SENDS)
def test_a_fork_changes_nothing(before: Any, forked: Any) -> None:
    state = ProducerStateManager()
    tried(state, before)
    snapshot = state.snapshot()
    tried(state.fork(), forked)
    assert state.snapshot() == snapshot


@given(SENDS, SENDS)
def test_a_fork_answers_as_the_state_itself_would(before: Any, forked: Any) -> None:
    state, plain = ProducerStateManager(), ProducerStateManager()
    assert tried(state, before) == tried(plain, before)
    assert tried(state.fork(), forked) == tried(plain, forked)


@given(st.integers(1, 20))
def test_a_restored_state_knows_the_last_five_batches_and_refuses_older_ones(count: int) -> None:
    state = ProducerStateManager()
    for sequence in range(count):
        state.restored(batch(sequence).stamped(sequence + 100, sequence, 0, 0))
    for sequence in range(count):
        known = sequence >= count - RETAINED
        expected = Stored(sequence + 100, sequence) if known else NOWHERE
        assert state.check(0, 0, batch(sequence)) == expected
    assert state.check(0, 0, batch(count)) is APPEND
    assert state.check(0, 0, batch(count + 1)) is OUT_OF_ORDER
