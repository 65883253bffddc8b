"""A small simulated world of Raft nodes, random runs of it, and the invariants of each step.

Everything is drawn from one seed: a network that loses, repeats, delays, reorders and cuts off;
disks that are slow and lose what is not synced; nodes that crash, lose their power, stall and
restart; changes of the voters, transfers, snapshots, reads and proposals. After every step the
invariants are checked for the node that it has changed. In the end everything is repaired, and the
cluster must elect a leader and commit what was proposed within a bounded time.
"""

import heapq
import os
from collections import deque
from random import Random
from typing import Any

import attrs

from wavetank.model.consensus.effects import (
    Persist,
    Proposal,
    RaftSettings,
    Ready,
    StoredState,
)
from wavetank.model.consensus.messages import (
    EntryKind,
    RaftEntry,
    RaftMessage,
    RaftSnapshot,
    RequestVote,
    RequestVoteAnswer,
)
from wavetank.model.consensus.quorum import is_majority
from wavetank.model.consensus.raft import Raft, RaftState

MORE: int = int(os.environ.get("RAFT", "0"))
"""How many random runs to try instead of the usual number: `make test-raft` sets it."""

MS = 1_000
ELECTION_US = 100 * MS
BOUND_US = 30 * ELECTION_US
"""Within this time after the repair there is a leader, and again until all is committed."""
MOST_NODES = 7

PROFILES: dict[str, dict[str, int]] = {
    "general": {
        "propose": 8, "read": 4, "crash": 3, "power": 3, "restart": 6, "split": 3, "isolate": 2,
        "cut one way": 2, "join links": 5, "add": 2, "remove": 2, "transfer": 2, "compact": 3,
        "slow disk": 2, "stall": 2, "join": 1, "wait": 2, "blackout": 1,
    },
    "elections": {
        "propose": 10, "crash leader": 6, "power": 2, "restart": 9, "split": 2, "isolate leader": 4,
        "join links": 6, "transfer": 1, "slow disk": 1, "compact": 1, "wait": 4, "read": 1,
        "rival logs": 8,
    },
    "voters": {
        "propose": 5, "join": 3, "add": 5, "remove": 4, "change twice": 4, "split": 4,
        "isolate leader": 3, "join links": 6, "crash leader": 2, "restart": 4, "transfer": 1,
        "compact": 1, "wait": 3, "change in a split": 3,
    },
    "disks": {
        "propose": 10, "power": 5, "crash": 3, "restart": 9, "slow disk": 5, "blackout": 2,
        "compact": 3, "isolate": 2, "join links": 3, "transfer": 2, "wait": 2, "read": 2,
    },
    "reads": {
        "propose": 8, "read": 12, "stall leader": 4, "isolate leader": 4, "join links": 5,
        "transfer": 3, "read at all": 8, "wait": 2, "crash": 1, "restart": 2,
        "read after a stall": 4,
    },
}  # fmt: skip
"""How often a run takes each step, for several kinds of runs."""


class ViolationError(Exception):
    """An invariant does not hold. The text starts with its name."""


@attrs.define
class Disk:
    """What is synced, and the orders that are not."""

    snapshot: RaftSnapshot
    entries: list[RaftEntry] = attrs.Factory(list)
    term: int = 0
    vote: str | None = None
    pending: deque[Persist] = attrs.Factory(deque)
    busy_until_us: int = 0
    slowness: int = 1

    @property
    def last_index(self) -> int:
        return self.snapshot.index + len(self.entries)

    def term_at(self, index: int) -> int | None:
        position = index - self.snapshot.index
        if position == 0:
            return self.snapshot.term
        return self.entries[position - 1].term if 0 < position <= len(self.entries) else None

    def carry_out(self, order: Persist, most: int = 1_000_000) -> int:
        """Carry out an order, or only some parts of it; return how many more there might be."""
        parts: list[Any] = [("vote", (order.term, order.vote))]
        if order.truncate_from is not None:
            parts.append(("truncate", order.truncate_from))
        if order.snapshot is not None:
            parts.append(("snapshot", order.snapshot))
        parts += [("entry", entry) for entry in order.entries]
        for kind, what in parts[: max(most, 0)]:
            if kind == "vote":
                self.term, self.vote = what
            elif kind == "truncate":
                del self.entries[max(0, what - self.snapshot.index - 1) :]
            elif kind == "snapshot":
                del self.entries[: max(0, what.index - self.snapshot.index)]
                self.snapshot = what
            else:
                self.entries.append(what)
        return most - len(parts)

    def lose(self, parts: int) -> None:
        """Lose all orders but the first parts of them."""
        while self.pending and parts > 0:
            parts = self.carry_out(self.pending.popleft(), parts)
        self.pending.clear()


@attrs.define(eq=False)
class Node:
    """One node: its disk, and while it is up its machine and its state."""

    name: str
    disk: Disk
    raft: Raft | None = None
    state: list[Any] = attrs.Factory(list)
    """What was applied, by index."""
    life: int = 0
    """Counts starts, so that events of an earlier life are ignored."""
    timer_us: int = -1
    stalled_until_us: int = 0
    term: int = 0
    """The highest term that it has shown to others, or had in this life."""
    commit_index: int = 0
    held_index: int = 0
    """Its disk holds all committed entries up to here."""
    led_term: int = -1


class RaftCluster:
    """One world of nodes."""

    def __init__(self, seed: int, voters: int | None = None, profile: str | None = None) -> None:
        self.dice = dice = Random(seed)
        self.seed = seed
        self.profile = profile or sorted(PROFILES)[seed % len(PROFILES)]
        self.now_us = 0
        self.log: list[str] = []
        """The steps that were taken, for the message of a failed test."""
        self.heap: list[Any] = []
        self.sequence = 0
        self.steps = 0
        self.settings = RaftSettings(
            election_timeout_us=ELECTION_US, leader_timeout_us=ELECTION_US,
            heartbeat_us=dice.choice([20, 30]) * MS,
            max_append_entries=dice.choice([1, 2, 5, 100]),
            max_append_bytes=dice.choice([1, 100, 10_000]), max_in_flight=dice.choice([1, 2, 4]),
            snapshot_parts=dice.choice([1, 2, 10]),
        )  # fmt: skip
        self.loss = dice.choice([0.0, 0.02, 0.1, 0.2])
        self.repeats = dice.choice([0.0, 0.05])
        self.long_delays = dice.choice([0.0, 0.02, 0.1])
        self.constant_delay_us: int | None = None
        self.disk_us = dice.choice([100, 1 * MS, 5 * MS])
        self.cuts: set[tuple[str, str]] = set()
        self.nodes: dict[str, Node] = {}
        # What all nodes together have shown.
        self.committed: list[RaftEntry] = []
        self.committed_in: list[int] = []
        """The term in which each of them was committed."""
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.entries: dict[tuple[int, int], Any] = {}
        self.values: list[int] = []
        self.read_floors: list[int] = []
        self.reads_done = 0
        counts = {"voters": [3, 4, 4, 5], "elections": [3, 5, 5], "reads": [2, 3, 5]}
        count = voters or dice.choice(counts.get(self.profile, [1, 2, 3, 3, 4, 5]))
        names = tuple(f"n{number}" for number in range(count))
        for name in names:
            self.add_node(name, StoredState.first(names).snapshot)

    # Nodes

    def add_node(self, name: str, snapshot: RaftSnapshot) -> None:
        self.nodes[name] = node = Node(name, Disk(snapshot))
        self.start(node)

    def start(self, node: Node) -> None:
        """Start a node from its disk, which is synced first."""
        disk = node.disk
        stored = StoredState(disk.snapshot, tuple(disk.entries), disk.term, disk.vote)
        if disk.term < node.term:
            raise ViolationError(
                f"monotonic term: {node.name} had {node.term}, and starts with {disk.term}"
            )
        node.life += 1
        dice = Random(f"{self.seed}/{node.name}/{node.life}")
        others = tuple(name for name in self.nodes if name != node.name)
        node.raft = Raft(node.name, stored, self.settings, dice, self.now_us, others)
        node.state = [item for part in disk.snapshot.parts for item in part]
        node.commit_index = disk.snapshot.index
        node.stalled_until_us = 0
        node.led_term = -1
        node.timer_us = -1
        self.set_timer(node)

    def stop(self, node: Node, power: bool) -> None:
        """Crash a node: what is written and not synced survives in part, or with power is lost."""
        if node.raft is None:
            return
        node.raft = None
        parts = self.dice.randint(0, 8)
        if power and self.dice.random() < 0.7:
            parts = 0
        node.disk.lose(parts)
        node.disk.busy_until_us = 0
        self.check_held(node)

    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.raft is not None]

    def leading(self) -> list[Node]:
        return [n for n in self.running() if n.raft and n.raft.state is RaftState.LEADER]

    def leader(self) -> Node | None:
        """The leader of the highest term."""
        return max(
            self.leading(), key=lambda node: node.raft.term if node.raft else 0, default=None
        )

    # Events

    def push(self, at_us: int, kind: str, node: Node, what: Any = None) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (at_us, self.sequence, kind, node, node.life, what))

    def set_timer(self, node: Node) -> None:
        assert node.raft is not None
        deadline_us = max(node.raft.deadline_us, self.now_us)
        if node.timer_us < 0 or deadline_us < node.timer_us:
            node.timer_us = deadline_us
            self.push(deadline_us, "timer", node)

    def run_until(self, until_us: int, done: Any = None) -> bool:
        """Let events happen until a time, or until something holds."""
        while self.heap and self.heap[0][0] <= until_us:
            at_us, _, kind, node, life, what = heapq.heappop(self.heap)
            self.now_us = max(self.now_us, at_us)
            if node.raft is None or (life != node.life and kind != "message"):
                continue
            if self.now_us < node.stalled_until_us:
                late_us = node.stalled_until_us + self.dice.randrange(2 * MS)
                if kind == "timer":
                    node.timer_us = late_us
                self.push(late_us, kind, node, what)
                continue
            self.happen(kind, node, what)
            if done is not None and done():
                return True
        self.now_us = max(self.now_us, until_us)
        return False

    def happen(self, kind: str, node: Node, what: Any) -> None:
        raft, now_us = node.raft, self.now_us
        assert raft is not None
        if kind == "message":
            if (what.sender, node.name) in self.cuts:
                return
            ready = raft.receive(what, now_us)
        elif kind == "timer":
            if now_us != node.timer_us:
                return
            node.timer_us = -1
            if raft.deadline_us > now_us:
                self.set_timer(node)
                return
            ready = raft.tick(now_us)
            if raft.deadline_us <= now_us:
                raise ViolationError(f"liveness: {node.name} has a deadline in the past")
        elif kind == "disk":
            while node.disk.pending and node.disk.pending[0].number <= what:
                node.disk.carry_out(node.disk.pending.popleft())
            self.check_held(node)
            ready = raft.persisted(what, now_us)
        elif kind == "propose":
            ready = raft.propose(what, now_us)
        elif kind == "read":
            ready = raft.read(what, now_us)
        else:
            ready = getattr(raft, kind)(*what, now_us)
        self.perform(node, ready)

    def perform(self, node: Node, ready: Ready) -> None:
        """Do what a node wants done, and check the invariants."""
        self.steps += 1
        if ready.persist is not None:
            disk = node.disk
            disk.pending.append(ready.persist)
            took_us = self.disk_us * disk.slowness
            if self.constant_delay_us is None:
                took_us = self.dice.randint(1, took_us)
            disk.busy_until_us = max(disk.busy_until_us, self.now_us) + took_us
            self.push(disk.busy_until_us, "disk", node, ready.persist.number)
            self.check_entries(node, ready.persist)
        self.check(node)
        if ready.restore is not None:
            node.state = [item for part in ready.restore.parts for item in part]
            self.check_state(node)
        for entry in ready.committed:
            if entry.index != len(node.state) + 1:
                raise ViolationError(
                    f"state machine safety: {node.name} applies {entry.index} late"
                )
            node.state.append((entry.term, entry.payload))
        for message in ready.messages:
            self.check_message(node, message)
            self.send(message)
        for read in ready.reads:
            self.reads_done += 1
            if len(node.state) < self.read_floors[read.request]:
                raise ViolationError(
                    f"linearizable reads: {node.name} read at {len(node.state)}, "
                    f"and {self.read_floors[read.request]} was committed before"
                )
        self.set_timer(node)

    def send(self, message: RaftMessage) -> None:
        if (message.sender, message.to) in self.cuts or message.to not in self.nodes:
            return
        node, dice = self.nodes[message.to], self.dice
        if self.constant_delay_us is not None:
            self.push(self.now_us + self.constant_delay_us, "message", node, message)
            return
        for _ in range(2 if dice.random() < self.repeats else 1):
            if dice.random() < self.loss:
                continue
            longest_us = 90 * MS if dice.random() < self.long_delays else 4 * MS
            self.push(self.now_us + dice.randint(200, longest_us), "message", node, message)

    # Invariants

    def check(self, node: Node) -> None:
        raft = node.raft
        assert raft is not None
        if raft.term < node.term:
            raise ViolationError(
                f"monotonic term: {node.name} goes from {node.term} to {raft.term}"
            )
        if raft.commit_index < node.commit_index:
            raise ViolationError(f"monotonic commit index: {node.name} goes back")
        if raft.state is RaftState.LEADER and node.led_term != raft.term:
            node.led_term = raft.term
            self.check_leader(node, raft)
        if raft.commit_index > node.commit_index:
            self.check_commit(node, raft)

    def check_leader(self, node: Node, raft: Raft) -> None:
        if self.leaders.setdefault(raft.term, node.name) != node.name:
            raise ViolationError(
                f"election safety: {node.name} and {self.leaders[raft.term]} lead {raft.term}"
            )
        for entry, term in zip(self.committed, self.committed_in, strict=True):
            if term >= raft.term or entry.index < raft.log.base_index:
                continue
            if raft.log.term_at(entry.index) != entry.term:
                raise ViolationError(f"leader completeness: {node.name} lacks {entry}")

    def check_commit(self, node: Node, raft: Raft) -> None:
        first = max(node.commit_index, raft.log.base_index)
        for entry in raft.log.between(first, raft.commit_index):
            if entry.index > len(self.committed):
                self.check_new_commit(node, raft, entry)
                self.committed.append(entry)
                self.committed_in.append(raft.term)
            elif self.committed[entry.index - 1] != entry:
                raise ViolationError(
                    f"state machine safety: {node.name} commits {entry}, "
                    f"and another one {self.committed[entry.index - 1]}"
                )
        node.commit_index = raft.commit_index

    def check_new_commit(self, node: Node, raft: Raft, entry: RaftEntry) -> None:
        if raft.state not in (RaftState.LEADER, RaftState.RESIGNED):
            raise ViolationError(f"commit: {node.name} commits {entry}, and no leader has")
        holders = [n.name for n in self.nodes.values() if n.disk.term_at(entry.index) == entry.term]
        covers = [n.name for n in self.nodes.values() if n.disk.snapshot.index > entry.index]
        if not is_majority([*holders, *covers], raft.voters):
            raise ViolationError(f"durability: {entry} is committed, and only {holders} hold it")

    def check_held(self, node: Node) -> None:
        """What is committed and synced on a disk stays there."""
        disk, held = node.disk, node.held_index
        if held > disk.snapshot.index and disk.term_at(held) != self.committed[held - 1].term:
            raise ViolationError(f"durability: {node.name} loses the committed entry {held}")
        held = max(held, disk.snapshot.index)
        while held < len(self.committed) and disk.term_at(held + 1) == self.committed[held].term:
            held += 1
        node.held_index = held

    def check_entries(self, node: Node, order: Persist) -> None:
        """Two logs with the same entry at an index are equal up to there."""
        assert node.raft is not None
        log = node.raft.log
        for entry in order.entries:
            known = (entry, log.term_at(entry.index - 1))
            first = self.entries.setdefault((entry.index, entry.term), known)
            if first != known or log.term_at(entry.index) != entry.term:
                raise ViolationError(f"log matching: {node.name} has {known}, another one {first}")

    def check_state(self, node: Node) -> None:
        expected = [(entry.term, entry.payload) for entry in self.committed[: len(node.state)]]
        if node.state != expected:
            raise ViolationError(f"state machine safety: {node.name} gets a wrong snapshot")

    def check_message(self, node: Node, message: RaftMessage) -> None:
        """A term that others were shown is never forgotten, and has one vote."""
        node.term = max(node.term, message.term)
        if isinstance(message, RequestVote) and not message.pre_vote:
            candidate = message.sender
        elif isinstance(message, RequestVoteAnswer) and message.granted and not message.pre_vote:
            candidate = message.to
        else:
            return
        first = self.votes.setdefault((node.name, message.term), candidate)
        if first != candidate:
            raise ViolationError(
                f"one vote: {node.name} votes for {first} and {candidate} in term {message.term}"
            )

    # Random runs

    def run(self) -> None:
        """Take random steps, then repair everything and see that the cluster works."""
        weights = PROFILES[self.profile]
        kinds, shares = list(weights), list(weights.values())
        self.run_until(self.dice.randint(0, 4) * ELECTION_US)
        for _ in range(self.dice.randint(40, 100)):
            self.step(self.dice.choices(kinds, shares)[0])
            longest_us = self.dice.choice([2, 10, 60, 250]) * MS
            self.run_until(self.now_us + self.dice.randint(0, longest_us))
        self.settle()

    def step(self, kind: str) -> None:
        dice = self.dice
        node = dice.choice(list(self.nodes.values()))
        leader = self.leader() or node
        self.log.append(f"{self.now_us} {kind} {node.name} (leader {leader.name})")
        getattr(self, "do_" + kind.replace(" ", "_"))(node, leader)

    def target(self, leader: Node) -> Node:
        """Mostly the leader; sometimes another node that thinks it leads."""
        return self.dice.choice([leader, leader, *self.leading()])

    def do_wait(self, node: Node, leader: Node) -> None:
        pass

    def do_propose(self, node: Node, leader: Node) -> None:
        proposals = []
        for _ in range(self.dice.randint(1, 4)):
            self.values.append(len(self.values))
            proposals.append(Proposal(self.values[-1], self.dice.randint(1, 60)))
        self.push(self.now_us, "propose", self.target(leader), proposals)

    def do_read(self, node: Node, leader: Node) -> None:
        self.read_floors.append(len(self.committed))
        self.push(self.now_us, "read", self.target(leader), len(self.read_floors) - 1)

    def do_read_at_all(self, node: Node, leader: Node) -> None:
        for each in self.leading():
            self.do_read(node, each)

    def do_read_after_a_stall(self, node: Node, leader: Node) -> None:
        """Stall a leader until there is another one, and read at the old one when it wakes up."""
        leader.stalled_until_us = self.now_us + 3 * ELECTION_US
        new = self.wait_for_leader()
        if new is None:
            return
        self.do_propose(node, new)
        self.run_until(self.now_us + self.dice.randint(5, 40) * MS)
        for _ in range(5):
            self.do_read(node, leader)

    def do_crash(self, node: Node, leader: Node) -> None:
        self.stop(node, power=False)

    def do_crash_leader(self, node: Node, leader: Node) -> None:
        self.do_propose(node, leader)
        self.run_until(self.now_us + self.dice.randint(0, 8 * MS))
        self.stop(leader, power=self.dice.random() < 0.5)

    def do_power(self, node: Node, leader: Node) -> None:
        self.stop(node, power=True)
        if self.dice.random() < 0.5:
            self.start(node)

    def do_blackout(self, node: Node, leader: Node) -> None:
        for each in self.running():
            self.stop(each, power=True)
        for each in self.nodes.values():
            self.start(each)

    def do_restart(self, node: Node, leader: Node) -> None:
        down = [each for each in self.nodes.values() if each.raft is None]
        for each in down if self.dice.random() < 0.3 else down[:1]:
            self.start(each)

    def do_split(self, node: Node, leader: Node) -> None:
        names = list(self.nodes)
        self.dice.shuffle(names)
        self.cut_off(set(names[: self.dice.randint(1, len(names))]))

    def do_isolate(self, node: Node, leader: Node) -> None:
        self.cut_off({node.name})

    def do_isolate_leader(self, node: Node, leader: Node) -> None:
        self.cut_off({leader.name})

    def cut_off(self, some: set[str]) -> None:
        for one in self.nodes:
            for other in self.nodes:
                if (one in some) != (other in some):
                    self.cuts.add((one, other))

    def do_cut_one_way(self, node: Node, leader: Node) -> None:
        self.cuts |= {(other, node.name) for other in self.nodes}

    def do_join_links(self, node: Node, leader: Node) -> None:
        self.cuts = set()

    def do_join(self, node: Node, leader: Node) -> None:
        if len(self.nodes) < MOST_NODES:
            self.add_node(f"n{len(self.nodes)}", StoredState.first().snapshot)

    def do_add(self, node: Node, leader: Node) -> None:
        voters = leader.raft.voters if leader.raft else ()
        others = [name for name in self.nodes if name not in voters]
        if others:
            self.push(self.now_us, "add_voter", self.target(leader), (self.dice.choice(others),))

    def do_remove(self, node: Node, leader: Node) -> None:
        self.push(self.now_us, "remove_voter", self.target(leader), (node.name,))

    def do_change_twice(self, node: Node, leader: Node) -> None:
        """Ask for two changes at once, on a side of a split that would be a majority after both."""
        outside = self.outsiders(leader, 2)
        if leader.raft is None:
            return
        others = [name for name in leader.raft.voters if name != leader.name]
        self.dice.shuffle(others)
        self.cuts = set()
        if len(outside) == 2 and self.dice.random() < 0.7:
            self.cut_off({leader.name, *outside})
            changes = [("add_voter", name) for name in outside]
        else:
            self.cut_off({leader.name, *others[2 : 2 + len(others) // 4]})
            changes = [("remove_voter", name) for name in others[:2]]
        for kind, name in changes:
            self.push(self.now_us, kind, leader, (name,))
        self.do_propose(node, leader)
        self.run_until(self.now_us + self.dice.randint(1, 4) * ELECTION_US)

    def do_change_in_a_split(self, node: Node, leader: Node) -> None:
        """Ask leaders on both sides of a split for changes, the new one as soon as it leads."""
        outside = self.outsiders(leader, 1)
        if leader.raft is None or not leader.raft.voters:
            return
        third = self.nodes[self.dice.choice(leader.raft.voters)]
        self.cuts = set()
        self.cut_off({leader.name, *outside})
        for name in outside:
            self.push(self.now_us, "add_voter", leader, (name,))
        new = self.wait_for_leader()
        if new is None or third in (new, leader):
            return
        self.cut_off({third.name})
        self.push(self.now_us, "remove_voter", new, (leader.name,))
        self.run_until(self.now_us + self.dice.randint(5, 60) * MS)
        self.cuts = set()
        self.cut_off({leader.name, third.name, *outside})
        self.run_until(self.now_us + self.dice.randint(1, 5) * ELECTION_US)

    def outsiders(self, leader: Node, count: int) -> list[str]:
        """Some nodes that are no voters. Lets one join, if there are not enough."""
        voters = leader.raft.voters if leader.raft else ()
        outside = [name for name in self.nodes if name not in voters]
        if len(outside) < count:
            self.do_join(leader, leader)
        return outside[:count]

    def wait_for_leader(self) -> Node | None:
        """Wait for an election, and return who has won it."""
        terms = set(self.leaders)
        self.run_until(self.now_us + 4 * ELECTION_US, lambda: set(self.leaders) != terms)
        won = set(self.leaders) - terms
        return self.nodes[self.leaders[max(won)]] if won else None

    def do_rival_logs(self, node: Node, leader: Node) -> None:
        """Leave different entries on two sides, and crash a leader as it commits the older ones.

        Figure 8 of the Raft paper has such a schedule.
        """
        if leader is node:
            return
        self.do_restart(node, leader)
        self.cuts = set()
        self.cut_off({leader.name, node.name})
        self.do_propose(node, leader)
        self.run_until(self.now_us + self.dice.randint(5, 30) * MS)
        self.stop(leader, power=False)
        rival = self.wait_for_leader()
        if rival is None or rival.raft is None:
            return
        self.cut_off({rival.name})
        self.run_until(self.now_us + self.dice.randint(5, 30) * MS)
        self.stop(rival, power=False)
        self.cuts = set()
        if leader.raft is None:
            self.start(leader)
        count = len(self.committed)
        self.run_until(self.now_us + 5 * ELECTION_US, lambda: len(self.committed) > count)
        last = self.leader()
        if last is not None:
            self.stop(last, power=False)
        self.cut_off({node.name})
        if rival.raft is None:
            self.start(rival)
        self.run_until(self.now_us + self.dice.randint(1, 5) * ELECTION_US)

    def do_transfer(self, node: Node, leader: Node) -> None:
        self.push(self.now_us, "transfer", self.target(leader), (node.name,))

    def do_compact(self, node: Node, leader: Node) -> None:
        raft = node.raft
        if raft is not None and raft.log.base_index < raft.applied_index:
            up_to = self.dice.randint(raft.log.base_index + 1, raft.applied_index)
            parts = tuple(tuple(node.state[at : at + 4]) for at in range(0, up_to, 4))
            parts = (*parts[:-1], parts[-1][: up_to - 4 * (len(parts) - 1)])
            self.perform(node, raft.compact(up_to, parts, self.now_us))

    def do_slow_disk(self, node: Node, leader: Node) -> None:
        node.disk.slowness = self.dice.choice([1, 10, 40])

    def do_stall(self, node: Node, leader: Node) -> None:
        node.stalled_until_us = self.now_us + self.dice.randint(10, 300) * MS

    def do_stall_leader(self, node: Node, leader: Node) -> None:
        leader.stalled_until_us = self.now_us + self.dice.randint(10, 300) * MS

    # After the repair

    def settle(self) -> None:
        """Repair everything; then there is a leader, and what was proposed is committed."""
        self.log.append(f"{self.now_us} settle")
        self.repair()
        self.demand("a leader", self.has_leader)
        self.values.append(len(self.values))
        self.demand("commits", self.is_done)
        voters = self.voters()
        if len(voters) >= 3 and self.dice.random() < 0.3:
            # The leader is heard and hears nobody: another one must take over.
            deaf = self.leader()
            assert deaf is not None
            self.cuts = {(other, deaf.name) for other in self.nodes}
            self.values.append(len(self.values))
            self.demand("commits without the leader", lambda: self.is_done(but=deaf))
            self.cuts = set()
            self.demand("commits", self.is_done)
        self.check_all()

    def repair(self) -> None:
        self.cuts = set()
        self.loss = self.repeats = self.long_delays = 0.0
        if self.dice.random() < 0.3:
            # Everything starts in lockstep: only chance can tell the nodes apart.
            self.constant_delay_us = self.disk_us = 2 * MS
            for node in self.running():
                self.stop(node, power=True)
        for node in self.nodes.values():
            node.disk.slowness = 1
            node.stalled_until_us = 0
            if node.raft is None:
                self.start(node)

    def demand(self, what: str, done: Any) -> None:
        """Propose what is missing now and then, until something holds."""
        end_us = self.now_us + BOUND_US
        while self.now_us < end_us:
            if done() or self.run_until(self.now_us + ELECTION_US, done):
                return
            self.propose_missing()
        raise ViolationError(f"liveness: no {what} after the repair")

    def propose_missing(self) -> None:
        leader = self.leader()
        if leader is None or leader.raft is None:
            return
        there = {entry.payload for entry in self.committed}
        there |= {e.payload for e in leader.raft.log.between(leader.raft.log.base_index, 10**9)}
        missing = [Proposal(value) for value in self.values if value not in there]
        if missing:
            self.push(self.now_us, "propose", leader, missing)

    def has_leader(self) -> bool:
        leader = self.leader()
        if leader is None or leader.raft is None:
            return False
        return bool(self.committed_in) and self.committed_in[-1] == leader.raft.term

    def voters(self) -> tuple[str, ...]:
        leader = self.leader()
        return leader.raft.voters if leader and leader.raft else ()

    def is_done(self, but: Node | None = None) -> bool:
        """Whether every value is committed, and applied by all voters."""
        if not self.has_leader():
            return False
        voters = [self.nodes[name] for name in self.voters() if but is None or name != but.name]
        if any(len(node.state) < len(self.committed) for node in voters):
            return False
        return {e.payload for e in self.committed if e.kind is EntryKind.DATA} == set(self.values)

    def check_all(self) -> None:
        """Compare the states of all nodes."""
        for node in self.running():
            self.check_state(node)

    def digest(self) -> tuple[Any, ...]:
        """What two runs of one seed must have in common."""
        return (self.now_us, self.steps, self.reads_done, tuple(self.committed), *self.log)
