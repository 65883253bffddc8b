"""Ranges of offsets against plain sets of numbers."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.spans import Span, count_of, each, merged, minus, numbers_in, runs, selected

BEGINNINGS = st.sampled_from([0, 7, 2**40])
NUMBERS = st.lists(st.integers(0, 30), unique=True).map(sorted)
SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair)))
)
MASKS = st.lists(st.booleans(), max_size=40) | st.integers(0, 40).map(lambda count: [True] * count)


def offsets_of(spans: list[Span]) -> list[int]:
    """All that is in some ranges, one by one, in their order."""
    return [offset for start, end in spans for offset in range(start, end)]


def apart(spans: list[Span]) -> bool:
    """Whether ranges are in order, each of something, with a gap between any two."""
    edges = [edge for span in spans for edge in span]
    return all(a < b for a, b in pairwise(edges))


@given(BEGINNINGS, NUMBERS)
def test_runs_name_each_number_once_and_are_as_long_as_can_be(
    first: int, numbers: list[int]
) -> None:
    offsets = [first + number for number in numbers]
    found = runs(np.array(offsets, np.int64))
    assert offsets_of(found) == offsets
    assert apart(found)
    assert all(type(edge) is int for span in found for edge in span)


@given(st.lists(st.integers(0, 5)))
def test_runs_of_numbers_in_any_order_keep_that_order(numbers: list[int]) -> None:
    assert offsets_of(runs(np.array(numbers, np.int64))) == numbers


@given(BEGINNINGS, SPANS)
def test_merged_ranges_hold_the_same_offsets_and_are_as_few_as_can_be(
    first: int, spans: list[Span]
) -> None:
    spans = [(first + start, first + end) for start, end in spans]
    found = merged(iter(spans))
    assert offsets_of(found) == sorted(set(offsets_of(spans)))
    assert apart(found)


@given(SPANS)
def test_merging_does_not_ask_in_which_order_ranges_come_nor_how_often(spans: list[Span]) -> None:
    assert merged(reversed(spans)) == merged(spans) == merged([*spans, *merged(spans)])


@given(SPANS)
def test_the_runs_of_all_offsets_are_the_merged_ranges(spans: list[Span]) -> None:
    assert runs(np.unique(np.array(offsets_of(spans), np.int64))) == merged(spans)


@given(SPANS, SPANS)
def test_ranges_without_parts_of_them_are_what_is_in_the_one_and_not_in_the_other(
    spans: list[Span], others: list[Span]
) -> None:
    spans, others = merged(spans), merged(others)
    found = minus(iter(spans), iter(others))
    left = set(offsets_of(spans)) - set(offsets_of(others))
    assert offsets_of(found) == sorted(left)
    assert all(start < end for start, end in found)


@given(BEGINNINGS, SPANS.filter(bool))
def test_the_numbers_in_ranges_come_one_by_one_in_their_order(
    first: int, spans: list[Span]
) -> None:
    spans = [(first + start, first + end) for start, end in spans]
    assert numbers_in(spans).tolist() == offsets_of(spans)


@given(MASKS, st.integers(0, 99))
def test_what_a_mask_selects_is_counted_and_listed(mask: list[bool], low: int) -> None:
    places = selected(np.array(mask, np.bool_), low)
    expected = [low + index for index, wanted in enumerate(mask) if wanted]
    assert each(places).tolist() == expected
    assert count_of(places) == len(expected)
    assert np.arange(low + len(mask))[places].tolist() == expected
    assert isinstance(places, slice) == all(mask)
