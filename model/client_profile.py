"""What differs between Kafka's own Java client and librdkafka, as far as it shows in a run.

Both speak the same protocol. They differ in when they commit, in how often they look for the new
leader of a partition, and in what they do when their coordinator is out of reach.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

ClientName: TypeAlias = Literal["java", "librdkafka"]


@attrs.frozen
class ClientProfile:
    """The habits of a client library."""

    commits_in_background: bool
    """Whether automatic commits happen at their interval even while the user is busy. The Java
    consumer commits only within `poll`."""
    stores_on_delivery: bool
    """Whether a record counts as processed as soon as it is handed out. With the Java consumer it
    does at the next poll."""
    leader_query_us: int | None
    """How often a client that misses a leader asks for the metadata. `None`: after the retry
    backoff, which grows. librdkafka looks once a second."""
    leaves_unreachable_coordinator: bool
    """Whether a member whose coordinator was out of reach for the session timeout gives up its
    partitions and joins as a stranger. The Java consumer keeps them and goes on trying."""
    assignment_us: int
    """Time that the library takes from a new assignment to the first request for offsets: for the
    callbacks of a rebalance and its own loop. Measured with Kafka 4.3.1 on one machine."""


PROFILES: Final[Mapping[ClientName, ClientProfile]] = {
    "java": ClientProfile(
        commits_in_background=False,
        stores_on_delivery=False,
        leader_query_us=None,
        leaves_unreachable_coordinator=False,
        assignment_us=94_000,
    ),
    "librdkafka": ClientProfile(
        commits_in_background=True,
        stores_on_delivery=True,
        leader_query_us=1_000_000,
        leaves_unreachable_coordinator=True,
        assignment_us=21_000,
    ),
}
