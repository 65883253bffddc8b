"""The log of a Raft node in memory."""

from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.consensus.messages import EntryKind, RaftEntry, RaftSnapshot
from wavetank.model.consensus.raft_log import RaftLog


def log_of(terms, base=0, voters=("a",)):
    entries = [RaftEntry(base + n, term, EntryKind.DATA) for n, term in enumerate(terms, 1)]
    return RaftLog(RaftSnapshot(base, terms[0] if base else 0, voters), entries)


def voters_entry(index, *names):
    return RaftEntry(index, 1, EntryKind.VOTERS, names)


@given(st.lists(st.integers(1, 5), min_size=1).map(sorted), st.integers(0, 30), st.integers(0, 6))
def test_the_hint_is_the_last_index_with_at_most_that_term(terms, index, term):
    log = log_of(terms)
    expected = [n for n, t in enumerate([0, *terms]) if n <= index and t <= term]
    assert log.last_at_most(index, term) == max(expected)


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=10), st.integers(1, 12), st.integers(0, 40)
)
def test_a_batch_keeps_both_limits_but_has_at_least_one_entry(sizes, most, most_bytes):
    log = RaftLog(RaftSnapshot(0, 0, ("a",)))
    log.append([RaftEntry(n, 1, EntryKind.DATA, None, size) for n, size in enumerate(sizes, 1)])
    batch = log.batch(1, most, most_bytes)
    count = len(batch)
    assert 1 <= count <= most
    assert count == 1 or sum(sizes[:count]) <= most_bytes
    assert count in (most, len(sizes)) or sum(sizes[: count + 1]) > most_bytes


def test_voters_count_from_their_entry_on_until_it_is_truncated():
    log = log_of([1, 1])
    log.append([voters_entry(3, "a", "b")])
    assert (log.voters, log.voters_index) == (("a", "b"), 3)
    assert log.voters_at(2) == ("a",)
    log.truncate_from(3)
    assert (log.voters, log.voters_index) == (("a",), 0)


def test_compaction_keeps_later_entries_and_later_voters():
    log = log_of([1, 1, 2])
    log.append([voters_entry(4, "a", "b")])
    log.compact(RaftSnapshot(2, 1, ("a",)))
    assert (log.base_index, log.last_index) == (2, 4)
    assert [log.term_at(index) for index in (1, 2, 3, 5)] == [None, 1, 2, None]
    assert log.voters_since(2) == {"a", "b"}


def test_there_is_no_hint_below_the_snapshot():
    log = log_of([5, 5], base=10)
    assert log.last_at_most(12, 4) == 9
    assert log.last_at_most(3, 4) == 3
