"""Random runs of a small cluster, and the invariants of their event logs.

A storm is a list of steps drawn from a seed. The invariants are checked on the event log alone, as
a user would check them. As a script, this prints the digest of one storm:
`python tests/helpers/storms.py SEED`.
"""

import os
import sys
from collections import defaultdict
from random import Random
from typing import Any

import attrs

import wavetank as wt

MORE: int = int(os.environ.get("STORMS", "1"))
"""How many times as many random runs as usual: `make test-storms` sets it."""

STORM_SETTINGS = {
    "session_timeout_ms": 2_000,
    "heartbeat_interval_ms": 400,
    "max_poll_interval_ms": 6_000,
    "max_poll_records": 40,
    "auto_commit_interval_ms": 700,
    "request_timeout_ms": 1_500,
}
GENTLE = ("join", "leave", "switch", "add partitions", "wait", "wait")
ROUGH = (*GENTLE, "crash", "pause", "cut", "stuck")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")


@attrs.define(slots=False)
class Storm:
    """One random run."""

    seed: int
    rough: bool
    """Whether there are faults: crashes, pauses, cut links and consumers that do not poll."""
    steps: int = 12
    log: list[str] = attrs.Factory(list)
    """The steps that were taken, for the message of a failed test."""

    def run(self) -> wt.Cluster:
        """Run all steps, then wait until the group has caught up."""
        dice = Random(self.seed)
        cluster = wt.Cluster.simulated(
            self.seed, brokers=2, storage="memory", network=wt.network.uniform("100us", "3ms")
        )
        cluster.create_topic("orders", partitions=dice.randint(1, 6))
        load = wt.load.Load(
            "orders", wt.load.Poisson(dice.choice([20, 150])), keys=wt.load.UniformKeys(50)
        )
        producers = [cluster.producer(f"producer-{n}", load=load) for n in range(2)]
        self.group = cluster.group(
            "readers", ["orders"], assignor=dice.choice(ASSIGNORS), **STORM_SETTINGS,
            enable_auto_commit=dice.random() < 0.5, client=dice.choice(["java", "librdkafka"]),
        )  # fmt: skip
        self.names = 0
        self.alive: list[Any] = []
        self.stuck: list[Any] = []
        for _ in range(dice.randint(1, 3)):
            self.join(dice)
        for _ in range(self.steps):
            cluster.run(for_=dice.uniform(0.2, 3))
            self.step(cluster, dice)
        cluster.run(for_=1)
        for producer in producers:
            producer.close()
        for consumer in self.stuck:
            consumer.close()
        while len(self.alive) < 1:
            self.join(dice)
        cluster.run(for_=40)
        return cluster

    def join(self, dice: Random, per_batch: str = "2ms") -> Any:
        self.names += 1
        service = wt.load.ExponentialService("1ms", per_batch)
        consumer = self.group.consumer(f"consumer-{self.names}", service=service)
        self.alive.append(consumer)
        return consumer

    def step(self, cluster: wt.Cluster, dice: Random) -> None:
        kind = dice.choice(ROUGH if self.rough else GENTLE)
        victim = dice.choice(self.alive) if self.alive else None
        self.log.append(f"{cluster.now:.1f} {kind} {victim.name if victim else ''}")
        if kind == "join" and len(self.alive) < 6:
            self.join(dice)
        elif kind == "leave" and victim:
            self.alive.remove(victim)
            victim.close()
        elif kind == "switch":
            self.group.set_assignor(dice.choice(ASSIGNORS))
        elif kind == "add partitions":
            count = cluster.metadata().partitions("orders")
            if count < 9:
                cluster.add_partitions("orders", count + dice.randint(1, 2))
        elif kind == "stuck":
            # Processing takes longer than max_poll_interval_ms.
            self.stuck.append(self.join(dice, per_batch="7s"))
            self.alive.pop()
        elif victim:
            harm(cluster, dice, kind, victim, self.alive)


def harm(cluster: wt.Cluster, dice: Random, kind: str, victim: Any, alive: list[Any]) -> None:
    """Crash a consumer, pause it, or cut its link to a broker; a crash can be for good."""
    system = cluster.system
    if kind == "crash":
        system.crash(victim.name)
        if dice.random() < 0.7:
            cluster.run(for_=dice.uniform(0, 4))
            system.restart(victim.name)
        else:
            alive.remove(victim)
    elif kind == "pause":
        system.pause(victim.name)
        cluster.run(for_=dice.uniform(0, 5))
        system.resume(victim.name)
    elif kind == "cut":
        broker = dice.choice(cluster.brokers)
        system.network.cut(victim.name, broker, one_way=dice.random() < 0.5)
        cluster.run(for_=dice.uniform(0, 4))
        system.network.heal(victim.name, broker)


def owners_overlap(events: list[wt.Event]) -> list[str]:
    """List the assignments of a partition whose owner had neither given it up nor been removed."""
    found, owner, consumers = [], {}, {}
    removed: set[str] = set()
    for event in events:
        where = (event.group, event.topic, event.partition)
        if event.kind == "member_left" and event.member:
            removed.add(event.member)
        elif event.kind == "node_crashed":
            removed |= {member for member in owner.values() if consumers[member] == event.node}
        elif event.kind == "assigned":
            removed.discard(event.member)
            consumers[event.member] = event.consumer
            before = owner.get(where)
            if before not in (None, event.member) and before not in removed:
                found.append(f"{event} while {before} owns it")
            owner[where] = event.member
        elif event.kind == "revoked" and owner.get(where) == event.member:
            del owner[where]
    return found


def unfenced(events: list[wt.Event]) -> list[str]:
    """List the claims of an old generation, and acknowledgements of consumers without a claim."""
    found = []
    claims: dict[Any, tuple[str | None, int]] = {}
    for event in events:
        where = (event.group, event.topic, event.partition, event.node)
        if event.kind == "claimed":
            before = claims.get(where, (None, -1))
            if event.epoch < before[1]:
                found.append(f"{event} after generation {before[1]}")
            claims[where] = (event.consumer, event.epoch)
        elif event.kind == "acknowledged" and claims[where][0] != event.consumer:
            found.append(f"{event} while {claims[where][0]} is the owner")
    return found


def out_of_order(events: list[wt.Event]) -> list[str]:
    """List the deliveries that do not continue the previous one to the same owner."""
    found, position = [], {}
    for event in events:
        where = (event.group, event.topic, event.partition, event.member)
        if event.kind in ("assigned", "handler_failed"):
            position[where] = event.base_offset
        elif event.kind == "delivered":
            if position.get(where) != event.base_offset:
                found.append(f"{event}, expected offset {position.get(where)}")
            position[where] = event.base_offset + event.count
    return found


def deliveries(events: list[wt.Event]) -> dict[Any, list[int]]:
    """How often each offset was delivered, by partition."""
    ends: dict[Any, int] = defaultdict(int)
    for event in events:
        if event.kind == "appended":
            ends[event.topic, event.partition] += event.count
    times: dict[Any, list[int]] = {where: [0] * end for where, end in ends.items()}
    for event in events:
        if event.kind == "delivered":
            for offset in range(event.base_offset, event.base_offset + event.count):
                times[event.topic, event.partition][offset] += 1
    return times


if __name__ == "__main__":
    with Storm(int(sys.argv[1]), rough=True).run() as cluster:
        pass
    print(cluster.events.digest)
