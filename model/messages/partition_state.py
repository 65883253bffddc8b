"""What the leader of a partition hands over to the next one, as part of `Lead`.

Everything in it is immutable: the old leader may change its own log, cursors and groups after the
hand-over, and the message may be sent again or delivered twice.
"""

import attrs

from ..log.cursor import CursorSnapshot
from ..log.log import LogSnapshot
from ..log.offset_ranges import OffsetRange
from ..log.producer_state import ProducerStateEntry
from .share import SubscriptionConfig


@attrs.frozen
class SharePartitionState:
    """A group that acknowledges record by record, beside its cursor."""

    name: str
    """Name of its cursor: the group's, or with broadcast delivery the member's own."""
    terms: SubscriptionConfig
    """The settings of the group."""
    last_acquired: tuple[tuple[str, int, tuple[OffsetRange, ...]], ...]
    """Per member: its name, the request answered last with records, and their offsets."""


@attrs.frozen
class PartitionState:
    """The state of a partition."""

    log: LogSnapshot
    """The log with all its records."""
    cursors: tuple[tuple[str, CursorSnapshot], ...]
    """The cursors of all groups, by name."""
    share_partitions: tuple[SharePartitionState, ...]
    """The groups that acknowledge record by record."""
    leases: tuple[tuple[str, int, int], ...]
    """The groups that commit offsets, each with the time of its last request and its time to
    live."""
    producers: tuple[ProducerStateEntry, ...]
    """The state of each producer, to detect duplicates."""
    reservations: tuple[tuple[str, int, int, int], ...]
    """The groups without a consumer so far, each with the first offset to keep for it, the time
    from which it is kept, and for how long."""
    lost_before: int
    """Offset at which the log began anew after a broker was lost; 0 if none was."""
