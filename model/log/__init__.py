"""A partition's log: records, batches, offsets, cursors, compaction, producer state."""
