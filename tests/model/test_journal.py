"""The entries of a journal: they come back as they were, or not at all."""

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.disk import FileContents
from wavetank.model.journal import encode_entry, scan_entries

NAMES = st.text(max_size=8).filter(lambda name: not name.startswith("$"))
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False), NAMES,
    st.binary(max_size=20),
)  # fmt: skip
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=8,
)
ENTRIES = st.lists(st.tuples(NAMES, VALUES), max_size=5)


def scan(data: bytes) -> FileContents:
    def read(position: int, count: int) -> bytes:
        return data[position : position + count]

    return scan_entries("state.journal", read, len(data))


def written(entries: list[tuple[Any, ...]]) -> tuple[bytes, list[int]]:
    """The bytes of a journal, and where each entry ends."""
    frames = [encode_entry(entry) for entry in entries]
    return b"".join(frames), list(accumulate(map(len, frames)))


@given(ENTRIES)
def test_entries_come_back_as_they_were(entries: list[tuple[Any, ...]]) -> None:
    data, ends = written(entries)
    assert scan(data) == FileContents(tuple(entries), tuple(ends), len(data))


@given(st.lists(st.integers(0, 2**16 - 1)), st.sampled_from(["u2", "i8", "u4"]))
def test_arrays_come_back_with_their_type(numbers: list[int], dtype: str) -> None:
    [(_, found)] = scan(encode_entry(("slots", np.array(numbers, dtype)))).frames  # type: ignore[misc]
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == numbers


def test_numbers_of_numpy_come_back_as_numbers_and_lists_as_tuples() -> None:
    assert scan(encode_entry(("start", np.int64(3), [1, [2]]))).frames == (("start", 3, (1, (2,))),)


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(TypeError, match=r"object .* cannot be part of a journal"):
        encode_entry(("odd", object()))


SOME = [("topic", 1), ("cursor", "a", {"columns": (b"\x00\x01", b"")}), ("commit", "ä", 5, -1)]


def check_prefix(data: bytes, position: int) -> None:
    """Check that a journal damaged at a position gives exactly the entries before it."""
    _, ends = written(SOME)
    whole = sum(end <= position for end in ends)
    found = scan(data)
    assert found.frames == tuple(SOME[:whole])
    assert found.ends == tuple(ends[:whole])
    if found.valid_size < len(data):
        assert found.damage is not None
        assert found.damage.file == "state.journal"
        assert found.damage.position == found.valid_size


def test_a_journal_that_is_cut_anywhere_gives_the_entries_before_the_cut() -> None:
    data, _ = written(SOME)
    for size in range(len(data) + 1):
        check_prefix(data[:size], size)


def test_a_journal_with_any_flipped_bit_gives_the_entries_before_it() -> None:
    data, _ = written(SOME)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        check_prefix(bytes(damaged), bit // 8)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_journal_give_no_entries_and_no_error(data: bytes) -> None:
    assert scan(data).frames == ()
