"""The book of producers against a log that is searched record by record."""

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wavetank.model.batch import Batch
from wavetank.model.sequences import (
    APPEND,
    CROWD,
    EXPIRY_US,
    FENCED,
    OUT_OF_ORDER,
    ProducerBook,
    Stored,
)

NOWHERE = Stored(-1, -1)


def batch(sequence: int, count: int = 1, producer: str = "shop") -> Batch:
    return Batch(producer, sequence, count, timestamps_us=0, sizes=1)


@attrs.frozen
class Message:
    """A batch as it was sent; on this network it may arrive never, once or often, at any time."""

    epoch: int
    floor: int
    batch: Batch


@attrs.define
class Sender:
    """A producer in one epoch: what it has sent, and what it has not settled yet."""

    epoch: int
    sequence: int = 0
    unsettled: list[Batch] = attrs.Factory(list)

    @property
    def floor(self) -> int:
        return self.unsettled[0].sequence if self.unsettled else self.sequence


class BookAndLog(RuleBasedStateMachine):
    """Lets producers send, and looks at each answer of the book with all there is to know."""

    def __init__(self) -> None:
        super().__init__()
        self.book = ProducerBook()
        self.log: list[tuple[str, int, int]] = []
        """The producer, epoch and sequence number of every record."""
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
    def begin_anew(self, name: str) -> None:
        self.senders[name].append(Sender(len(self.senders[name])))

    @rule()
    def hand_over(self) -> None:
        self.book = ProducerBook(self.book.snapshot())

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(self.messages))
        verdict = self.book.check(message.epoch, message.floor, message.batch)
        self.judge(message, verdict)
        if verdict is APPEND:
            self.append(message)

    def judge(self, message: Message, verdict: object) -> None:
        sent, name = message.batch, message.batch.producer
        sender = self.senders[name][message.epoch]
        stored = self.numbers(name, message.epoch)
        there = self.where(message.epoch, sent)
        before = set(range(message.floor, sent.sequence))
        if any(who == name and epoch > message.epoch for who, epoch, _ in self.log):
            assert verdict is FENCED
        elif there is not None and sent in sender.unsettled:
            assert verdict == Stored(there, there * 10), "the first copy's receipt, exactly"
        elif there is not None:
            assert verdict in (Stored(there, there * 10), NOWHERE)
        elif stored and max(stored) > sent.sequence:
            assert verdict == NOWHERE
            assert sent not in sender.unsettled, "nobody is told so of what is still to be stored"
        elif before <= set(stored):
            assert verdict is APPEND, "nothing before it is missing"
        else:
            assert verdict is OUT_OF_ORDER

    def append(self, message: Message) -> None:
        sent, base = message.batch, len(self.log)
        self.log += [
            (sent.producer, message.epoch, sent.sequence + index) for index in range(sent.count)
        ]
        self.book.appended(message.epoch, message.floor, sent.stamped(base, base * 10, 0))
        self.last_floors[sent.producer] = message.floor

    def numbers(self, name: str, epoch: int) -> list[int]:
        return [number for who, when, number in self.log if (who, when) == (name, epoch)]

    def where(self, epoch: int, sent: Batch) -> int | None:
        """The offset of the first copy in the log."""
        key = (sent.producer, epoch, sent.sequence)
        return self.log.index(key) if key in self.log else None

    @invariant()
    def nothing_is_stored_twice_or_out_of_order(self) -> None:
        assert len(set(self.log)) == len(self.log)
        for name in self.senders:
            own = [(epoch, number) for who, epoch, number in self.log if who == name]
            assert own == sorted(own)

    @invariant()
    def what_was_settled_is_forgotten(self) -> None:
        for entry in self.book.snapshot():
            assert entry.recent
            assert all(number >= self.last_floors[entry.producer] for number, *_ in entry.recent)


BookAndLog.TestCase.settings = settings(max_examples=80, stateful_step_count=60)
TestBookAgainstLog = BookAndLog.TestCase


def written(book: ProducerBook, sent: Batch, *, floor: int, epoch: int = 0, at: Any = 0) -> None:
    assert book.check(epoch, floor, sent) is APPEND
    book.appended(epoch, floor, sent.stamped(sent.sequence + 100, at, 0))


def test_a_batch_that_comes_again_is_answered_with_where_the_first_copy_is() -> None:
    book = ProducerBook()
    written(book, batch(0, 5), floor=0, at=7)
    written(book, batch(5, 2), floor=0, at=8)
    assert book.check(0, 0, batch(0, 5)) == Stored(100, 7)
    assert book.check(0, 0, batch(5, 2)) == Stored(105, 8)


def test_a_gap_is_waited_for_until_its_producer_has_given_it_up() -> None:
    book = ProducerBook()
    assert book.check(0, 0, batch(5)) is OUT_OF_ORDER, "no producer begins in the middle"
    written(book, batch(0), floor=0)
    assert book.check(0, 1, batch(2)) is OUT_OF_ORDER
    written(book, batch(2), floor=2)
    assert book.check(0, 1, batch(1)) == NOWHERE, "too late: it would be out of order"


def test_after_a_log_was_lost_a_producer_goes_on_where_it_is() -> None:
    book = ProducerBook()
    assert book.check(0, 40, batch(41)) is OUT_OF_ORDER
    written(book, batch(40), floor=40)
    written(book, batch(41), floor=40)


def test_a_new_epoch_begins_anew_and_the_old_one_is_fenced() -> None:
    book = ProducerBook()
    written(book, batch(0), floor=0)
    written(book, batch(1), floor=0)
    written(book, batch(0), floor=0, epoch=1)
    assert book.check(0, 2, batch(2)) is FENCED
    assert book.check(0, 0, batch(0)) is FENCED, "even what it had stored"


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_a_batch_that_was_cut_anew_is_never_stored_in_part(
    stored: int, start: int, more: int
) -> None:
    book = ProducerBook()
    written(book, batch(0, stored), floor=0)
    sequence = max(0, stored - start)
    assert book.check(0, 0, batch(sequence, stored - sequence + more)) is OUT_OF_ORDER


@pytest.mark.parametrize("width", [1, 5])
def test_no_more_is_remembered_than_is_on_its_way(width: int) -> None:
    book = ProducerBook()
    for sequence in range(1_000):
        written(book, batch(sequence), floor=max(0, sequence - width + 1))
        [entry] = book.snapshot()
        assert len(entry.recent) <= width


def test_producers_that_are_long_silent_are_forgotten_when_many_more_come() -> None:
    book = ProducerBook()
    written(book, batch(0, producer="old"), floor=0, at=0)
    written(book, batch(0, producer="steady"), floor=0, at=0)
    for number in range(20 * CROWD):
        at = number * EXPIRY_US // CROWD
        written(book, batch(0, producer=f"p{number}"), floor=0, at=at)
        written(book, batch(number + 1, producer="steady"), floor=number + 1, at=at)
        assert len(book) <= 3 * CROWD
    assert book.check(0, 0, batch(0, producer="old")) is APPEND
    assert book.check(0, 9, batch(9, producer="steady")) == NOWHERE


def test_a_snapshot_does_not_change_with_the_book() -> None:
    book = ProducerBook()
    written(book, batch(0), floor=0)
    snapshot = book.snapshot()
    copy = ProducerBook(snapshot)
    written(book, batch(1), floor=1)
    assert copy.snapshot() == snapshot != book.snapshot()
    written(copy, batch(1), floor=0)
