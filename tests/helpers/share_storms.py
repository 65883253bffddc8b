"""Random runs of groups that acknowledge, and checks of what must hold in each of them.

As in storms.py, the steps are drawn from a seed and the checks read only the event log. The handler
fails for some records at their first delivery, and for a few at every one.
"""

from collections import defaultdict
from random import Random
from typing import Any

import attrs

import wavetank as wt
from helpers.storms import harm

SHARE_STORM_SETTINGS = {
    "session_timeout_ms": 2_000,
    "heartbeat_interval_ms": 400,
    "max_poll_records": 20,
    "max_in_flight": 40,
    "ack_timeout_ms": 3_000,
    "request_timeout_ms": 1_500,
    "max_deliveries": 4,
    "retry_backoff_ms": 50,
    "dead_letter_topic": "dead",
}
STEPS = ("join", "leave", "crash", "pause", "cut", "move", "wait", "wait")


@attrs.define(slots=False)
class Delivering:
    """One random run."""

    seed: int
    delivery: str
    steps: int = 5
    rough: bool = True
    fails: bool = True

    def run(self) -> wt.Cluster:
        """Run it until the group has consumed everything."""
        self.dice = dice = Random(self.seed)
        cluster = wt.Cluster.simulated(
            self.seed, brokers=2, storage="memory", network=wt.network.uniform("100us", "3ms")
        )
        self.cluster = cluster
        cluster.create_topic("orders", partitions=dice.randint(1, 3))
        keys: Any = wt.load.ZipfKeys(12, 1.1) if dice.random() < 0.5 else wt.load.UniformKeys(12)
        load = wt.load.Load(
            "orders", wt.load.Poisson(dice.choice([8, 25])), keys=keys, resolution="50ms"
        )
        producers = [cluster.producer(f"producer-{n}", load=load) for n in range(2)]
        self.group = cluster.group(
            "readers", ["orders"], delivery=self.delivery, acks=True, **SHARE_STORM_SETTINGS
        )  # type: ignore[arg-type]
        self.failed: set[Any] = set()
        self.poison = dice.randint(50, 200)
        self.names = 0
        self.alive: list[Any] = []
        for _ in range(dice.randint(1, 3)):
            self.join()
        for _ in range(self.steps):
            cluster.run(for_=dice.uniform(0.2, 2.5))
            self.step(dice.choice(STEPS if self.rough else ("join", "leave", "wait")))
        for producer in producers:
            producer.close()
        if not self.alive:
            self.join()
        for _ in range(60):
            cluster.run(for_=5)
            if self.has_caught_up():
                return cluster
        raise AssertionError(f"seed {self.seed}: the group does not catch up")

    def has_caught_up(self) -> bool:
        """Whether everything is consumed; in a broadcast, by the members that are left."""
        if self.delivery != "broadcast":
            return not any(self.group.lag().values())
        names = [f"readers/{consumer.name}" for consumer in self.alive]
        partitions = range(self.cluster.metadata().partitions("orders"))
        views = [self.cluster.inspect(wt.TopicPartition("orders", n)) for n in partitions]
        return not any(view.lags.get(name, 1) for view in views for name in names)

    def join(self) -> None:
        self.names += 1
        consumer = self.group.consumer(
            f"consumer-{self.names}", self.handle, service=wt.load.ExponentialService("1ms", "2ms")
        )
        self.alive.append(consumer)

    def handle(self, records: wt.Records) -> None:
        """Fail for some records once, and for a few always."""
        for record in records:
            place = (record.topic, record.partition, record.offset)
            if not self.fails:
                continue
            if record.offset % self.poison == 7:
                raise ValueError(f"poison at {record.offset}")
            if record.offset % 23 == 5 and place not in self.failed:
                self.failed.add(place)
                raise ValueError(f"trouble at {record.offset}")

    def step(self, kind: str) -> None:
        cluster, dice = self.cluster, self.dice
        victim = dice.choice(self.alive) if self.alive else None
        if kind == "join" and len(self.alive) < 5:
            self.join()
        elif kind == "leave" and victim:
            self.alive.remove(victim)
            victim.close()
        elif kind == "move":
            if len(cluster.brokers) < 4:
                cluster.add_broker()
        elif victim:
            harm(cluster, dice, kind, victim, self.alive)


ENDS = ("acknowledged", "dead_lettered", "archived")


def ends(events: list[wt.Event]) -> dict[int, dict[int, int]]:
    """How often each offset of each partition was acknowledged or archived."""
    times: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for event in events:
        if event.kind in ENDS and event.group:
            for offset in range(event.base_offset, event.base_offset + event.count):
                times[event.partition][offset] += 1
    return times


def appended(events: list[wt.Event]) -> dict[int, int]:
    """How many records each partition of the topic has."""
    counts: dict[int, int] = defaultdict(int)
    for event in events:
        if event.kind == "appended" and event.topic == "orders":
            counts[event.partition] += event.count
    return dict(counts)


@attrs.define
class Holding:
    """Which member has which records, as the partition sees it."""

    held: dict[tuple[Any, str | None], set[int]] = attrs.Factory(lambda: defaultdict(set))
    out: set[tuple[Any, str | None]] = attrs.Factory(set)
    """Members that a partition has deactivated or removed."""

    def follow(self, event: wt.Event) -> set[int] | None:
        """Apply an event; return the offsets if it is a delivery to a member that is not out."""
        place = (event.partition, event.member)
        first, count = event.base_offset or 0, event.count or 0
        offsets = set(range(first, first + count))
        if event.kind == "claimed":
            self.out.discard(place)
            self.held[place].clear()
        elif event.kind in ("subscriber_inactive", "subscriber_removed"):
            self.out.add(place)
            self.held[place].clear()
        elif event.kind in ("acknowledged", "nacked", "ack_timed_out"):
            self.held[place] -= offsets
        elif event.kind == "delivered" and place not in self.out:
            self.held[place] |= offsets
            return offsets
        return None


def shared_keys(cluster: wt.Cluster) -> list[str]:
    """List the deliveries at which two members had records of one key."""
    keys = keys_of(cluster)
    holding, found = Holding(), []
    for event in cluster.events:
        offsets = holding.follow(event)
        if offsets is None:
            continue
        mine = {keys[event.partition][offset] for offset in offsets}
        for (partition, member), held in holding.held.items():
            if partition == event.partition and member != event.member:
                both = mine & {keys[partition][offset] for offset in held}
                if both:
                    found.append(f"{event} while {member} has records of {sorted(both)}")
    return found


def out_of_order(cluster: wt.Cluster) -> list[str]:
    """List the first deliveries of records after a later record of the same key."""
    keys = keys_of(cluster)
    latest: dict[Any, int] = {}
    seen: set[Any] = set()
    found = []
    holding = Holding()
    for event in cluster.events:
        for offset in sorted(holding.follow(event) or ()):
            if (event.partition, offset) in seen:
                continue
            seen.add((event.partition, offset))
            place = (event.partition, keys[event.partition][offset])
            if offset < latest.get(place, -1):
                found.append(f"{event}: {offset} after {latest[place]}")
            latest[place] = max(offset, latest.get(place, -1))
    return found


def keys_of(cluster: wt.Cluster) -> dict[int, list[Any]]:
    """The key of each offset, by partition."""
    topic = cluster.topic("orders", limit=10**9)
    return {
        view.partition.partition: [record.key for record in contents]
        for view, contents in zip(topic.partitions, topic.contents, strict=True)
    }
