"""The sums behind the sticky assignors: how many partitions of each pool a member should hold.

A *pool* is all partitions whose topics have the same subscribers: which of them a member gets makes
no difference to anybody's load, so only counts matter here. Equal subscriptions make one pool, and
the answer is a division. Mixed ones make a minimum-cost flow:

- A member's n-th partition costs n, and a move, that is one partition beyond what a member owns of
  its pool, costs a little less than 1. So it pays to move a partition from a member to another
  that has two fewer, which is Kafka's law of balance. And a chain of k moves from member to member
  pays if the first has over k partitions more than the last: nobody turns a group upside down for
  the last bit of evenness.
- In the beginning all hold what they own, and nothing is at rest. Then, again and again, the
  cheapest way to rest is found for all at once (Bellman–Ford, on arrays): a member may keep what it
  holds, or pass it on through pools and other members to one whose next partition is cheaper. What
  fits goes that way (Dinic), until all is at rest.
- Taking only cheapest ways keeps the whole as cheap as it can be for what is at rest (successive
  shortest paths), so nothing is ever undone and the end is the optimum.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

_LEVEL: Final = 1 << 40
"""What a member's n-th partition costs more than the one before."""
_MOVE: Final = _LEVEL - (1 << 20)
"""What a move costs; a step costs 1, so that of equally cheap ways the shortest are taken."""
_NEVER: Final = 1 << 60
"""What a way costs that does not exist, and how much fits through one without limit."""


@attrs.frozen
class Pool:
    """Partitions that the same members subscribe to."""

    subscribers: Sequence[int]
    """The members' numbers, rising; at least one."""
    size: int
    """How many partitions there are."""
    owned: Sequence[int]
    """How many of them each subscriber owns now; together at most `size`."""


def shares(pools: Sequence[Pool]) -> list[list[int]]:
    """How many partitions each subscriber of each pool should hold.

    No other shares have a smaller sum of the members' loads, squared, and twice the number of
    moves; and none with the same sum are more even.
    """
    if len(pools) == 1:
        return [_even_shares(pools[0])]
    return _Flow(pools).run() if pools else []


def _even_shares(pool: Pool) -> list[int]:
    """In a single pool shares differ by one at most; who owns more keeps more, then the first."""
    base, extra = divmod(pool.size, len(pool.subscribers))
    result = [base] * len(pool.subscribers)
    for place in sorted(range(len(result)), key=lambda at: pool.owned[at] <= base)[:extra]:
        result[place] += 1
    return result


class _Flow:
    """Nodes are the pools and, after them, the members; an edge is one subscription."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        sizes = [len(pool.subscribers) for pool in pools]
        everyone = np.concatenate([np.asarray(pool.subscribers) for pool in pools])
        self.pools = len(pools)
        self.pool_of = np.repeat(np.arange(self.pools), sizes)
        self.member_of = self.pools + np.unique(everyone, return_inverse=True)[1]
        self.pool_starts = np.cumsum([0, *sizes[:-1]])
        self.by_member = np.argsort(self.member_of, kind="stable")
        self.member_starts = np.flatnonzero(np.diff(self.member_of[self.by_member], prepend=-1))

        self.owned: Ints = np.concatenate([np.asarray(pool.owned) for pool in pools])
        self.held = self.owned.copy()
        """How many partitions each edge carries."""
        loads = np.bincount(self.member_of, weights=self.held).astype(np.int64)[self.pools :]
        self.rested = np.full_like(loads, loads.min())
        """How many of a member's partitions are at rest: to begin with, what everybody keeps."""
        unowned = [pool.size - sum(pool.owned) for pool in pools]
        self.restless: Ints = np.concatenate([unowned, loads - self.rested])
        """What of a pool nobody holds, and what a member holds beyond what is at rest."""

    def run(self) -> list[list[int]]:
        """Let everything come to rest; how many partitions each edge carries then, by pool."""
        while self.restless.any():
            onto, off = self._prices()
            cost, away = self._cheapest(onto, off)
            if not self._keep(away):
                self._pass_on(cost, onto, off)
        return [part.tolist() for part in np.split(self.held, self.pool_starts[1:])]

    def _prices(self) -> tuple[Ints, Ints]:
        """What it costs to put one more partition onto each edge, and to take one off it."""
        onto = np.where(self.held < self.owned, 1, 1 + _MOVE)
        off = np.where(self.held > self.owned, 1 - _MOVE, 1)
        return onto, np.where(self.held > 0, off, _NEVER)

    def _cheapest(self, onto: Ints, off: Ints) -> tuple[Ints, Ints]:
        """What the cheapest way to rest costs from each node, and from each member to others."""
        off, pool_of = off[self.by_member], self.pool_of[self.by_member]
        here = self.rested * _LEVEL
        cost = np.concatenate([np.full(self.pools, _NEVER), here])
        while True:
            to_pools = np.minimum.reduceat(cost[self.member_of] + onto, self.pool_starts)
            away = np.minimum.reduceat(to_pools[pool_of] + off, self.member_starts)
            cheaper = np.concatenate([to_pools, np.minimum(here, away)])
            if np.array_equal(cheaper, cost):
                return cost, away
            cost = cheaper

    def _keep(self, away: Ints) -> bool:
        """Members keep what is not cheaper elsewhere; whether there was anything."""
        restless = self.restless[self.pools :]
        kept = np.clip(away // _LEVEL - self.rested + 1, 0, restless)
        self.rested += kept
        restless -= kept
        return bool(kept.any())

    def _pass_on(self, cost: Ints, onto: Ints, off: Ints) -> None:
        """Send what fits along the cheapest ways to members, where it comes to rest."""
        pool_cost, member_cost = cost[self.pool_of], cost[self.member_of]
        puts = np.flatnonzero(member_cost + onto == pool_cost)
        takes = self.by_member[(pool_cost + off == member_cost)[self.by_member]]
        spare = self.owned - self.held
        until_dearer = (
            np.where(spare > 0, spare, _NEVER)[puts],
            np.where(spare < 0, -spare, self.held)[takes],
        )
        sent, came, used = _flood(
            np.concatenate([self.pool_of[puts], self.member_of[takes]]),
            np.concatenate([self.member_of[puts], self.pool_of[takes]]),
            np.concatenate(until_dearer),
            self.restless,
            np.append(np.full(self.pools, False), cost[self.pools :] == self.rested * _LEVEL),
        )
        self.held[puts] += used[: len(puts)]
        self.held[takes] -= used[len(puts) :]
        self.restless -= sent
        self.rested += came[self.pools :]


def _flood(
    tails: Ints, heads: Ints, rooms: Ints, supply: Ints, sinks: NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints]:
    """Send as much of the nodes' supply as fits along arcs to sinks, each of which takes one.

    Arcs are in the order of their tails and make no circle. Gives what each node sent, what each
    took, and what went through each arc.
    """
    first = np.searchsorted(tails, np.arange(len(supply) + 1)).tolist()
    arcs, ends = first[:-1], first[1:]
    unused = rooms.copy()
    tail, head, room = tails.data, heads.data, unused.data
    left, wants = supply.tolist(), sinks.tolist()
    hungry = np.count_nonzero(sinks & (np.bincount(heads, minlength=len(sinks)) > 0))
    for source in np.flatnonzero(supply).tolist():
        node, path = source, list[int]()
        while left[source] and hungry:
            if wants[node]:
                wants[node] = False
                hungry -= 1
                left[source] -= 1
                for arc in path:
                    room[arc] -= 1
                node, path = source, []
            elif (arc := arcs[node]) < ends[node]:
                onward = head[arc]
                if room[arc] and (wants[onward] or arcs[onward] < ends[onward]):
                    path.append(arc)
                    node = onward
                else:
                    arcs[node] += 1
            elif path:
                node = tail[path.pop()]
            else:
                break
    return supply - left, sinks.astype(np.int64) - wants, rooms - unused
