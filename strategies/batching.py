"""Cutting batches that are too large."""

import numpy as np

from ..model.log.batch import Batch


def cut(batch: Batch, max_bytes: int) -> list[Batch]:
    """Cut a batch into pieces of at most `max_bytes`, or of a single larger record."""
    if batch.bytes <= max_bytes or batch.count == 1:
        return [batch]
    sizes = batch.sizes
    if isinstance(sizes, int):
        step = max(1, max_bytes // max(1, sizes))
        return [batch[first : first + step] for first in range(0, batch.count, step)]
    pieces, first, ends = [], 0, np.cumsum(sizes)
    while first < batch.count:
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + max_bytes, side="right")))
        pieces.append(batch[first:last])
        first = last
    return pieces
