"""Arithmetic of majorities: small, pure, and tested against a brute-force version."""

from collections.abc import Collection, Iterable


def majority(voters: int) -> int:
    """Return how many of the voters are needed to decide."""
    return voters // 2 + 1


def is_majority(some: Iterable[str], voters: Collection[str]) -> bool:
    """Tell whether enough of the voters are among some nodes. Without voters nobody decides."""
    return bool(voters) and sum(node in voters for node in set(some)) >= majority(len(voters))


def quorum_value(values: Collection[int]) -> int:
    """Return the highest number that a majority of the voters has reached.

    It is given one number for each voter: the index up to which the voter holds the log, the time
    when it was last heard, or the round of messages that it has answered.
    """
    return sorted(values, reverse=True)[majority(len(values)) - 1]
