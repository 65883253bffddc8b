"""Cutting batches that are too large."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.log.batch import Batch
from wavetank.strategies.batching import cut

sizes = st.one_of(
    st.integers(0, 50),
    st.lists(st.integers(0, 50), min_size=1, max_size=30).map(np.array),
)


@given(sizes, st.integers(1, 30), st.integers(1, 120))
def test_pieces_hold_all_records_in_order_and_are_as_large_as_allowed(
    column: int | np.ndarray, count: int, max_bytes: int
) -> None:
    count = count if isinstance(column, int) else len(column)
    batch = Batch("p", 7, count, values=range(count), timestamps_us=0, sizes=column)
    pieces = cut(batch, max_bytes)
    assert [v for piece in pieces for v in piece.values] == list(range(count))
    assert [piece.sequence for piece in pieces] == [7 + piece.values[0] for piece in pieces]
    for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
        assert piece.bytes <= max_bytes or piece.count == 1
        if following is not None:
            assert piece.bytes + following[:1].bytes > max_bytes
