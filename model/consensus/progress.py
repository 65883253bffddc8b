"""How far a leader has come with another node.

A leader that does not know where the logs part sends one message at a time (PROBE). Once a message
is accepted it sends ahead, several messages before the first is answered (REPLICATE); a refused one
brings it back to probing. A node that needs entries which the leader no longer has is sent the
snapshot, one piece at a time (SNAPSHOT).
"""

from collections import deque
from enum import Enum, auto

import attrs

from .messages import RaftSnapshot


class ProgressState(Enum):
    """How a leader sends to a node."""

    PROBE = auto()
    """One message at a time, until one is accepted."""
    REPLICATE = auto()
    """Several messages in flight."""
    SNAPSHOT = auto()
    """Pieces of a snapshot, one at a time."""


@attrs.define
class Progress:
    """What the leader knows of one node."""

    next_index: int
    """The first entry to send next."""
    heard_us: int
    """When the node last answered."""
    state: ProgressState = ProgressState.PROBE
    match_index: int = 0
    """The last entry up to which the node is known to hold the leader's log."""
    round: int = 0
    """The last round of messages that the node has answered."""
    is_waiting: bool = False
    """PROBE: whether the message sent last may still be answered."""
    in_flight: deque[int] = attrs.Factory(deque)
    """REPLICATE: the last entry of each message that is not answered yet."""
    snapshot: RaftSnapshot | None = None
    """SNAPSHOT: the one that is sent, even if there is a newer one meanwhile."""
    position: int = 0
    """SNAPSHOT: how many of its parts the node has."""

    def accepted(self, index: int, base_index: int) -> None:
        """Note that the node holds the log up to an index. `base_index`: of the leader's log."""
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.in_flight and self.in_flight[0] <= self.match_index:
            self.in_flight.popleft()
        if self.state is not ProgressState.REPLICATE and self.match_index >= base_index:
            self.next_index = self.match_index + 1
            self._change(ProgressState.REPLICATE)

    def is_outdated(self, refused_index: int) -> bool:
        """Tell whether a refusal says nothing new: it is late, or for another message."""
        if self.state is ProgressState.PROBE:
            return refused_index != self.next_index - 1
        return self.state is ProgressState.SNAPSHOT or refused_index <= self.match_index

    def refused(self, next_index: int) -> None:
        """Probe from another index."""
        self.next_index = max(self.match_index + 1, next_index)
        self._change(ProgressState.PROBE)

    def sent(self, last_index: int) -> None:
        """Note that entries up to an index are on their way."""
        self.next_index = last_index + 1
        self.in_flight.append(last_index)

    def start_snapshot(self, snapshot: RaftSnapshot) -> None:
        """Send a snapshot from its first part on."""
        self._change(ProgressState.SNAPSHOT)
        self.snapshot = snapshot

    def _change(self, state: ProgressState) -> None:
        self.state = state
        self.is_waiting = False
        self.in_flight.clear()
        self.snapshot = None
        self.position = 0
