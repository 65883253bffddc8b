"""The optimisation behind the sticky assignors: how many partitions of each pool a member gets.

A *pool* is all partitions whose topics have the same subscribers. Which of them a member gets makes
no difference to any load, so only counts matter here. With equal subscriptions there is one pool,
and the result is a division. Otherwise it is a minimum-cost flow:

- The n-th partition of a member costs n. A move, that is a partition beyond those that a member
  owns in the pool, costs slightly less than 1. Moving a partition to a member with two fewer
  therefore reduces the cost, which is Kafka's rule of balance. A chain of k moves over several
  members reduces it only if the first has more than k partitions more than the last, so that a
  small imbalance never causes many moves.
- At first every member holds what it owns, and no partition is settled. In each step the cheapest
  path to a settled position is computed for all at once (Bellman–Ford, on arrays): a member may
  keep a partition, or pass it on through pools and other members to one whose next partition is
  cheaper. As many partitions as fit follow these paths (Dinic), until all are settled.
- As only cheapest paths are used, the cost is always minimal for the partitions settled so far
  (successive shortest paths). No step is undone, and the end result is the optimum.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

_LEVEL: Final = 1 << 40
"""Difference between the costs of a member's n-th partition and the one before."""
_MOVE: Final = _LEVEL - (1 << 20)
"""Cost of a move. A step of a path costs 1, so that of equal paths the shortest is used."""
_NEVER: Final = 1 << 60
"""Cost of a path that does not exist, and capacity of an edge without a limit."""


@attrs.frozen
class Pool:
    """Partitions that the same members subscribe to."""

    subscribers: Sequence[int]
    """Numbers of the members, ascending; at least one."""
    size: int
    """Number of partitions."""
    owned: Sequence[int]
    """Number of partitions that each subscriber owns; together at most `size`."""


def shares(pools: Sequence[Pool]) -> list[list[int]]:
    """Return how many partitions each subscriber of each pool gets.

    The result minimises the sum of the squared loads plus twice the number of moves. Among equal
    sums it is the most even.
    """
    if len(pools) == 1:
        return [_even_shares(pools[0])]
    return _Flow(pools).run() if pools else []


def _even_shares(pool: Pool) -> list[int]:
    """Divide a single pool. Members that own more get the remainder, then the first members."""
    base, extra = divmod(pool.size, len(pool.subscribers))
    result = [base] * len(pool.subscribers)
    for member in sorted(range(len(result)), key=lambda at: pool.owned[at] <= base)[:extra]:
        result[member] += 1
    return result


class _Flow:
    """The flow network. Nodes are the pools, then the members; an edge is a subscription."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        sizes = [len(pool.subscribers) for pool in pools]
        members = np.concatenate([np.asarray(pool.subscribers) for pool in pools])
        self.pools = len(pools)
        self.pool_of = np.repeat(np.arange(self.pools), sizes)
        self.member_of = self.pools + np.unique(members, return_inverse=True)[1]
        self.pool_starts = np.cumsum([0, *sizes[:-1]])
        self.by_member = np.argsort(self.member_of, kind="stable")
        self.member_starts = np.flatnonzero(np.diff(self.member_of[self.by_member], prepend=-1))

        self.owned: Ints = np.concatenate([np.asarray(pool.owned) for pool in pools])
        self.held = self.owned.copy()
        """Number of partitions on each edge."""
        loads = np.bincount(self.member_of, weights=self.held).astype(np.int64)[self.pools :]
        self.settled = np.full_like(loads, loads.min())
        """Number of settled partitions of each member; at first, as many as every member keeps."""
        unowned = [pool.size - sum(pool.owned) for pool in pools]
        self.unsettled: Ints = np.concatenate([unowned, loads - self.settled])
        """Partitions of each pool that no member holds, and those of each member not settled."""

    def run(self) -> list[list[int]]:
        """Settle all partitions. Return the number on each edge, by pool."""
        while self.unsettled.any():
            onto, off = self._prices()
            cost, away = self._cheapest(onto, off)
            if not self._keep(away):
                self._pass_on(cost, onto, off)
        return [part.tolist() for part in np.split(self.held, self.pool_starts[1:])]

    def _prices(self) -> tuple[Ints, Ints]:
        """Return the costs of adding a partition to each edge, and of removing one."""
        onto = np.where(self.held < self.owned, 1, 1 + _MOVE)
        off = np.where(self.held > self.owned, 1 - _MOVE, 1)
        return onto, np.where(self.held > 0, off, _NEVER)

    def _cheapest(self, onto: Ints, off: Ints) -> tuple[Ints, Ints]:
        """Return the cost of the cheapest path from each node, and from each member to others."""
        off, pool_of = off[self.by_member], self.pool_of[self.by_member]
        here = self.settled * _LEVEL
        cost = np.concatenate([np.full(self.pools, _NEVER), here])
        while True:
            to_pools = np.minimum.reduceat(cost[self.member_of] + onto, self.pool_starts)
            away = np.minimum.reduceat(to_pools[pool_of] + off, self.member_starts)
            cheaper = np.concatenate([to_pools, np.minimum(here, away)])
            if np.array_equal(cheaper, cost):
                return cost, away
            cost = cheaper

    def _keep(self, away: Ints) -> bool:
        """Settle partitions that are not cheaper elsewhere. Return whether there were any."""
        unsettled = self.unsettled[self.pools :]
        kept = np.clip(away // _LEVEL - self.settled + 1, 0, unsettled)
        self.settled += kept
        unsettled -= kept
        return bool(kept.any())

    def _pass_on(self, cost: Ints, onto: Ints, off: Ints) -> None:
        """Move as many partitions as fit along the cheapest paths, and settle them."""
        pool_cost, member_cost = cost[self.pool_of], cost[self.member_of]
        puts = np.flatnonzero(member_cost + onto == pool_cost)
        takes = self.by_member[(pool_cost + off == member_cost)[self.by_member]]
        spare = self.owned - self.held
        capacity = (
            np.where(spare > 0, spare, _NEVER)[puts],
            np.where(spare < 0, -spare, self.held)[takes],
        )
        sent, taken, used = _max_flow(
            np.concatenate([self.pool_of[puts], self.member_of[takes]]),
            np.concatenate([self.member_of[puts], self.pool_of[takes]]),
            np.concatenate(capacity),
            self.unsettled,
            np.append(np.full(self.pools, False), cost[self.pools :] == self.settled * _LEVEL),
        )
        self.held[puts] += used[: len(puts)]
        self.held[takes] -= used[len(puts) :]
        self.unsettled -= sent
        self.settled += taken[self.pools :]


def _max_flow(
    tails: Ints, heads: Ints, rooms: Ints, supply: Ints, sinks: NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints]:
    """Send as much of the nodes' supply as fits along arcs to sinks, each of which takes one unit.

    Arcs are sorted by their tails and form no cycle. Return what each node sent, what each took,
    and the flow through each arc.
    """
    first = np.searchsorted(tails, np.arange(len(supply) + 1)).tolist()
    arcs, ends = first[:-1], first[1:]
    unused = rooms.copy()
    tail, head, room = tails.data, heads.data, unused.data
    left, wants = supply.tolist(), sinks.tolist()
    open_sinks = np.count_nonzero(sinks & (np.bincount(heads, minlength=len(sinks)) > 0))
    for source in np.flatnonzero(supply).tolist():
        node, path = source, list[int]()
        while left[source] and open_sinks:
            if wants[node]:
                wants[node] = False
                open_sinks -= 1
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
