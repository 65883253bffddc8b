"""Ranges of offsets, compared with plain lists and sets of offsets."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.log.offset_ranges import (
    OffsetRange,
    merge,
    offsets_in,
    ranges_of,
    row_count,
    row_indices,
    rows_where,
    subtract,
)

BEGINNINGS = st.sampled_from([0, 7, 2**40])
NUMBERS = st.lists(st.integers(0, 30), unique=True).map(sorted)
SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair)))
)
MASKS = st.lists(st.booleans(), max_size=40) | st.integers(0, 40).map(lambda count: [True] * count)


def offsets_of(spans: list[OffsetRange]) -> list[int]:
    """List every offset of some ranges, in the order of the ranges."""
    return [offset for start, end in spans for offset in range(start, end)]


def apart(spans: list[OffsetRange]) -> bool:
    """Whether ranges are sorted, not empty, and have a gap between any two."""
    edges = [edge for span in spans for edge in span]
    return all(a < b for a, b in pairwise(edges))


@given(BEGINNINGS, NUMBERS)
def test_ranges_of_offsets_hold_each_offset_once_and_are_as_long_as_possible(
    first: int, numbers: list[int]
) -> None:
    offsets = [first + number for number in numbers]
    found = ranges_of(np.array(offsets, np.int64))
    assert offsets_of(found) == offsets
    assert apart(found)
    assert all(type(edge) is int for span in found for edge in span)


@given(st.lists(st.integers(0, 5)))
def test_ranges_of_unsorted_offsets_keep_their_order(numbers: list[int]) -> None:
    assert offsets_of(ranges_of(np.array(numbers, np.int64))) == numbers


@given(BEGINNINGS, SPANS)
def test_merged_ranges_hold_the_same_offsets_and_are_as_few_as_possible(
    first: int, spans: list[OffsetRange]
) -> None:
    spans = [(first + start, first + end) for start, end in spans]
    found = merge(iter(spans))
    assert offsets_of(found) == sorted(set(offsets_of(spans)))
    assert apart(found)


@given(SPANS)
def test_merging_ignores_order_and_repetition(spans: list[OffsetRange]) -> None:
    assert merge(reversed(spans)) == merge(spans) == merge([*spans, *merge(spans)])


@given(SPANS)
def test_merging_equals_ranges_of_all_offsets(spans: list[OffsetRange]) -> None:
    assert ranges_of(np.unique(np.array(offsets_of(spans), np.int64))) == merge(spans)


@given(SPANS, SPANS)
def test_minus_is_the_difference_of_the_sets_of_offsets(
    spans: list[OffsetRange], others: list[OffsetRange]
) -> None:
    spans, others = merge(spans), merge(others)
    found = subtract(iter(spans), iter(others))
    left = set(offsets_of(spans)) - set(offsets_of(others))
    assert offsets_of(found) == sorted(left)
    assert all(start < end for start, end in found)


@given(BEGINNINGS, SPANS.filter(bool))
def test_offsets_in_ranges_are_listed_in_the_order_of_the_ranges(
    first: int, spans: list[OffsetRange]
) -> None:
    spans = [(first + start, first + end) for start, end in spans]
    assert offsets_in(spans).tolist() == offsets_of(spans)


@given(MASKS, st.integers(0, 99))
def test_rows_selected_by_a_mask_are_counted_and_listed(mask: list[bool], low: int) -> None:
    rows = rows_where(np.array(mask, np.bool_), low)
    expected = [low + index for index, wanted in enumerate(mask) if wanted]
    assert row_indices(rows).tolist() == expected
    assert row_count(rows) == len(expected)
    assert np.arange(low + len(mask))[rows].tolist() == expected
    assert isinstance(rows, slice) == all(mask)
