"""A consumer's membership of its group, as a state machine.

Theory of operation. A member that subscribes asks the coordinator to be in the next generation
(JOINING). When that has begun, it asks for its assignment (SYNCING); the member that leads the
group divides the partitions before it asks. If partitions that a member owns are now assigned to
others, it gives them up once its user has finished with their records and their offsets are
committed (RECONCILING); a cooperative member then joins once more, so that they can be handed on
(KIP-429).
When the coordinator prepares a rebalance, the member hears of it with a heartbeat and joins again
as soon as its user and its commits allow (REJOINING): an eager member gives up all partitions
before it does, a cooperative one only those it was told to. A member whose user has not polled
within max.poll.interval.ms leaves, and joins again when the user is back (STALE, as in KIP-848).

The table below drives the machine: nothing else changes a member's state. The conversation, its
timers and the partitions themselves are in actors/client/membership.py.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from .errors import WavetankError


class MemberState(Enum):
    """Where a member stands."""

    UNSUBSCRIBED = auto()
    """Not in the group: not subscribed yet, or left."""
    JOINING = auto()
    """Has asked to join and waits for the generation to begin."""
    SYNCING = auto()
    """Is in a new generation and waits for its assignment."""
    STABLE = auto()
    """Owns exactly its assignment."""
    RECONCILING = auto()
    """Owns partitions that are assigned to others, and is about to give them up."""
    REJOINING = auto()
    """Has to join again, as soon as its user and its commits allow."""
    STALE = auto()
    """Left the group because its user did not poll in time."""


class MemberEvent(Enum):
    """What happens to a member."""

    SUBSCRIBED = auto()
    """The user wants to be in the group."""
    SUBSCRIPTION_CHANGED = auto()
    """The user wants other topics."""
    JOINED = auto()
    """The generation has begun."""
    ASSIGNED = auto()
    """The coordinator sent an assignment that contains everything the member owns."""
    ASSIGNED_LESS = auto()
    """The coordinator sent an assignment that lacks partitions the member owns."""
    REBALANCE = auto()
    """The coordinator prepares a rebalance."""
    RELEASED = auto()
    """Everything that had to be given up is given up, and the member has to join again."""
    RECONCILED = auto()
    """Everything that had to be given up is given up, and that was all."""
    FENCED = auto()
    """The group went on without the member."""
    SESSION_LOST = auto()
    """The coordinator was out of reach for the session timeout."""
    LEFT = auto()
    """The user wants to be out of the group."""
    CLOSED = auto()
    """A static member stops for a while: it is expected back."""
    POLL_TIMED_OUT = auto()
    """The user has not polled within max.poll.interval.ms."""


class MemberAction(Enum):
    """What the member does on a transition."""

    NOTHING = auto()
    JOIN = auto()
    """Send a new request to join, with what is owned now."""
    SYNC = auto()
    """Ask for the assignment; the leader divides the partitions first."""
    REPEAT_JOIN = auto()
    """Send the same request to join again: the coordinator does not know it."""
    REVOKE_ALL_AND_JOIN = auto()
    """Give up all partitions at once, and send a new request to join."""
    JOIN_AS_STRANGER = auto()
    """Give up all partitions at once, and join under another id."""
    CLOSE = auto()
    """Give up all partitions at once, without a word to the coordinator."""
    LEAVE = auto()
    """Tell the coordinator, and give up all partitions at once."""


_S, _E, _A = MemberState, MemberEvent, MemberAction

TABLE: Final[Mapping[MemberState, Mapping[MemberEvent, tuple[MemberState, MemberAction]]]] = {
    _S.UNSUBSCRIBED: {
        _E.SUBSCRIBED: (_S.JOINING, _A.JOIN),
    },
    _S.JOINING: {
        _E.SUBSCRIPTION_CHANGED: (_S.JOINING, _A.JOIN),
        _E.JOINED: (_S.SYNCING, _A.SYNC),
        _E.REBALANCE: (_S.JOINING, _A.JOIN),  # the answer to the join was lost
        _E.FENCED: (_S.JOINING, _A.REPEAT_JOIN),
        _E.SESSION_LOST: (_S.JOINING, _A.JOIN_AS_STRANGER),
        _E.CLOSED: (_S.UNSUBSCRIBED, _A.CLOSE),
        _E.LEFT: (_S.UNSUBSCRIBED, _A.LEAVE),
        _E.POLL_TIMED_OUT: (_S.STALE, _A.LEAVE),
    },
    _S.SYNCING: {
        _E.SUBSCRIPTION_CHANGED: (_S.JOINING, _A.JOIN),
        _E.JOINED: (_S.SYNCING, _A.SYNC),  # sent again, as the request to sync was lost
        _E.ASSIGNED: (_S.STABLE, _A.NOTHING),
        _E.ASSIGNED_LESS: (_S.RECONCILING, _A.NOTHING),
        _E.REBALANCE: (_S.JOINING, _A.JOIN),
        _E.FENCED: (_S.JOINING, _A.REVOKE_ALL_AND_JOIN),
        _E.SESSION_LOST: (_S.JOINING, _A.JOIN_AS_STRANGER),
        _E.CLOSED: (_S.UNSUBSCRIBED, _A.CLOSE),
        _E.LEFT: (_S.UNSUBSCRIBED, _A.LEAVE),
        _E.POLL_TIMED_OUT: (_S.STALE, _A.LEAVE),
    },
    _S.STABLE: {
        _E.SUBSCRIPTION_CHANGED: (_S.REJOINING, _A.NOTHING),
        _E.REBALANCE: (_S.REJOINING, _A.NOTHING),
        _E.FENCED: (_S.JOINING, _A.REVOKE_ALL_AND_JOIN),
        _E.SESSION_LOST: (_S.JOINING, _A.JOIN_AS_STRANGER),
        _E.CLOSED: (_S.UNSUBSCRIBED, _A.CLOSE),
        _E.LEFT: (_S.UNSUBSCRIBED, _A.LEAVE),
        _E.POLL_TIMED_OUT: (_S.STALE, _A.LEAVE),
    },
    _S.RECONCILING: {
        _E.SUBSCRIPTION_CHANGED: (_S.REJOINING, _A.NOTHING),
        _E.REBALANCE: (_S.REJOINING, _A.NOTHING),
        _E.RELEASED: (_S.JOINING, _A.JOIN),
        _E.RECONCILED: (_S.STABLE, _A.NOTHING),
        _E.FENCED: (_S.JOINING, _A.REVOKE_ALL_AND_JOIN),
        _E.SESSION_LOST: (_S.JOINING, _A.JOIN_AS_STRANGER),
        _E.CLOSED: (_S.UNSUBSCRIBED, _A.CLOSE),
        _E.LEFT: (_S.UNSUBSCRIBED, _A.LEAVE),
        _E.POLL_TIMED_OUT: (_S.STALE, _A.LEAVE),
    },
    _S.REJOINING: {
        _E.SUBSCRIPTION_CHANGED: (_S.REJOINING, _A.NOTHING),
        _E.REBALANCE: (_S.REJOINING, _A.NOTHING),
        _E.RELEASED: (_S.JOINING, _A.JOIN),
        _E.FENCED: (_S.JOINING, _A.REVOKE_ALL_AND_JOIN),
        _E.SESSION_LOST: (_S.JOINING, _A.JOIN_AS_STRANGER),
        _E.CLOSED: (_S.UNSUBSCRIBED, _A.CLOSE),
        _E.LEFT: (_S.UNSUBSCRIBED, _A.LEAVE),
        _E.POLL_TIMED_OUT: (_S.STALE, _A.LEAVE),
    },
    _S.STALE: {
        _E.SUBSCRIBED: (_S.JOINING, _A.JOIN),
    },
}
"""For each state, the events that can happen in it: the next state, and what the member does."""

IN_GROUP: Final = frozenset({_S.JOINING, _S.SYNCING, _S.STABLE, _S.RECONCILING, _S.REJOINING})
"""The states in which a member sends heartbeats."""


def step(state: MemberState, event: MemberEvent) -> tuple[MemberState, MemberAction]:
    """Look up what an event leads to; an event that a state does not allow is a bug."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise WavetankError(f"a member that is {state.name} cannot get {event.name}") from None
