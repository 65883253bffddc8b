"""The sums behind the sticky assignors: how many partitions of each pool a member should hold.

A *pool* is all partitions whose topics have the same subscribers: which of them a member gets makes
no difference to anybody's load, so only counts matter here. Equal subscriptions make one pool, and
the answer is a division. Mixed ones are a minimum-cost flow:

- Partitions flow from pools to members. A member's n-th partition costs more than any (n-1)st,
  which makes loads as even as they can be; and each one beyond what it owns of a pool costs a
  little, which lets as many stay as can.
- In the beginning all hold what they own, and nothing is settled. Then the water rises: at level n
  a member has room to settle its n-th partition. It may be one it holds already; those who hold
  more pass theirs on, through pools and other members, the cheapest way to one with room. Whom no
  way leads to has its final load: none will later either.
- Taking only cheapest ways keeps the whole as cheap as it can be for what is settled so far
  (successive shortest paths), so nothing needs to be undone. All cheapest ways are found together
  (Bellman–Ford, on arrays) and used up together (Dinic), so it takes few searches.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

_LEVEL: Final = 1 << 40
_MOVE: Final = _LEVEL - (1 << 20)
"""What a move costs. A step costs 1, so that of equally cheap ways the shortest are taken."""
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

    Loads are as even as subscriptions allow: no other assignment has a smaller sum of their
    squares. And of all assignments as even, none leaves more partitions where they are.
    """
    if len(pools) == 1:
        return [_even_shares(pools[0])]
    return _Tide(pools).settle() if pools else []


def _even_shares(pool: Pool) -> list[int]:
    """In a single pool shares differ by one at most; who owns more keeps more, then the first."""
    base, extra = divmod(pool.size, len(pool.subscribers))
    result = [base] * len(pool.subscribers)
    for place in sorted(range(len(result)), key=lambda at: pool.owned[at] <= base)[:extra]:
        result[place] += 1
    return result


class _Tide:
    """The flow: its nodes are the pools and then the members, an *edge* is one subscription."""

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
        loads = np.bincount(self.member_of, weights=self.held).astype(np.int64)
        loads[: self.pools] = [pool.size - sum(pool.owned) for pool in pools]
        self.unsettled: Ints = loads
        """What a pool has that nobody holds, and what a member holds beyond what it settled."""
        self.settled = np.full_like(loads, loads[self.pools :].min())
        """How many of a member's partitions have come to rest: first, what all can keep."""
        self.unsettled[self.pools :] -= self.settled[self.pools :]

    def settle(self) -> list[list[int]]:
        """Let everything flow until it has come to rest."""
        while self.unsettled.any():
            onto, off = self._prices()
            cost, away = self._cheapest(onto, off)
            if not self._settle_own(away):
                self._pass_on(cost, onto, off)
        return [part.tolist() for part in np.split(self.held, self.pool_starts[1:])]

    def _prices(self) -> tuple[Ints, Ints]:
        """What it costs to put one more partition onto each edge, and to take one off it."""
        onto = np.where(self.held < self.owned, 1, 1 + _MOVE)
        off = np.where(self.held > self.owned, 1 - _MOVE, 1)
        return onto, np.where(self.held > 0, off, _NEVER)

    def _cheapest(self, onto: Ints, off: Ints) -> tuple[Ints, Ints]:
        """What the cheapest way to rest costs from each node, and from a member to another one."""
        off, pool_of = off[self.by_member], self.pool_of[self.by_member]
        rest = self.settled[self.pools :] * _LEVEL
        cost = np.concatenate([np.full(self.pools, _NEVER), rest])
        while True:
            to_pools = np.minimum.reduceat(cost[self.member_of] + onto, self.pool_starts)
            away = np.minimum.reduceat(to_pools[pool_of] + off, self.member_starts)
            cheaper = np.concatenate([to_pools, np.minimum(rest, away)])
            if np.array_equal(cheaper, cost):
                return cost, away
            cost = cheaper

    def _settle_own(self, away: Ints) -> bool:
        """Members keep what they hold while nothing else is cheaper; whether anybody did."""
        settled, unsettled = self.settled[self.pools :], self.unsettled[self.pools :]
        keeps = np.clip(away // _LEVEL - settled + 1, 0, unsettled)
        settled += keeps
        unsettled -= keeps
        return bool(keeps.any())

    def _pass_on(self, cost: Ints, onto: Ints, off: Ints) -> None:
        """Send what fits along the cheapest ways, and let it rest there."""
        pool_cost, member_cost = cost[self.pool_of], cost[self.member_of]
        puts = np.flatnonzero(member_cost + onto == pool_cost)
        takes = self.by_member[(pool_cost + off == member_cost)[self.by_member]]
        spare = self.owned - self.held
        sent, came, used = _flood(
            np.concatenate([self.pool_of[puts], self.member_of[takes]]),
            np.concatenate([self.member_of[puts], self.pool_of[takes]]),
            np.concatenate(
                [
                    np.where(spare > 0, spare, _NEVER)[puts],
                    np.where(spare < 0, -spare, self.held)[takes],
                ]
            ),
            self.unsettled,
            np.append(
                np.zeros(self.pools, bool),
                cost[self.pools :] == self.settled[self.pools :] * _LEVEL,
            ),
        )
        self.held[puts] += used[: len(puts)]
        self.held[takes] -= used[len(puts) :]
        self.unsettled -= sent
        self.settled += came


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
    tail, head, room = memoryview(tails), memoryview(heads), memoryview(unused)
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
