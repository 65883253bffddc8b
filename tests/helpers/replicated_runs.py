"""Random runs of a whole cluster with replicas and faults, and the invariants that must hold.

A run is a list of steps drawn from a seed. Brokers and controllers crash, lose their power, are
paused, cut off, told to stop, or get a bad disk, while producers with acks = all, a group that
commits and groups that acknowledge work. A broker loses what it has not synced (or all, in memory)
only while the loss is tolerated: `min_insync_replicas` is two, so one broker at a time, and the
next when nobody counts on the first any more. Everything else may happen to all at once.

The invariants have names. They are checked on every message between nodes, after every step on all
replicas, and in the end on the event log. What clients were told is read from the messages.
"""

import os
from collections import Counter, defaultdict
from random import Random
from typing import Any

import attrs
from pykka import Timeout

import wavetank as wt
from helpers.durability import Promises
from wavetank.actors.broker.broker import Broker
from wavetank.actors.broker.controller import Controller
from wavetank.actors.broker.partition import Partition
from wavetank.model.disk import DiskModel
from wavetank.model.messages.client import Claimed, FoundOffset
from wavetank.model.messages.cluster import ShutDown
from wavetank.model.messages.replication import ReplicaFetched, ReplicaLeads
from wavetank.model.messages.share import Acquire, Acquired
from wavetank.model.network import Verdict

MORE: int = int(os.environ.get("REPLICATION", "0"))
"""Number of random runs, if it is not the usual one: `make test-replication` sets it."""

SERVICE = wt.load.ConstantService("1ms")
HEAL_S = 60
"""Time in which the cluster is whole again once everything is repaired, and has no work left."""

STEPS = (
    *("send", "send", "send", "wait", "crash", "crash", "power", "power", "power", "restart"),
    *("restart", "restart", "restart", "pause", "resume", "resume", "cut", "cut", "disturb"),
    *("heal", "heal", "strand", "strand", "strand", "isolate", "fail over", "fail over"),
    *("slow", "fill", "fail writes", "fail syncs", "heal disk", "heal disk"),
    *("shut down", "add partitions", "add broker", "crash twice", "crash twice"),
)
DISK_FAULTS = ("fill", "fail writes", "fail syncs", "slow")


class Unreliable:
    """A network that loses, duplicates and delays a share of all messages."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.usual = wt.network.uniform("100us", "1ms")

    def __call__(
        self, source: str, target: str, message: object, now_us: int, random: Random
    ) -> Any:
        delay_us = self.usual(source, target, message, now_us, random)
        if not self.share or random.random() >= self.share:
            return delay_us
        assert isinstance(delay_us, int)
        late_us = delay_us + random.randint(0, 20_000)
        fates = [(), (delay_us, late_us), (late_us,)]
        return Verdict(random.choice(fates), ordered=False)


class ViolationError(AssertionError):
    """An invariant does not hold. The text starts with its name."""


@attrs.define
class Watch(Promises):
    """What the messages between nodes say, and what contradicts what was said before."""

    leaders: dict[Any, str] = attrs.Factory(dict)
    """Who leads, by partition and epoch."""
    acquires: dict[Any, int] = attrs.Factory(dict)
    """The last request of each member of a group that acknowledges, by partition and member."""
    ends: dict[Any, list[tuple[int, int]]] = attrs.Factory(lambda: defaultdict(list))
    """The high watermarks that consumers of each partition were told, with their epochs."""
    agreed: dict[Any, list[Any]] = attrs.Factory(lambda: defaultdict(list))
    """What is committed at each offset, by partition."""

    def look(self, message: Any, sender: Any, receiver: Any) -> None:
        if isinstance(message, Acquire):
            self.acquires[receiver.actor.partition, sender.name] = message.request
        elif isinstance(message, Acquired):
            place = sender.host.actor.partition, receiver.ref.name
            if message.request < self.acquires.get(place, 0):
                return  # the member has given up on this answer
        super().look(message, sender, receiver)
        if isinstance(message, Claimed | FoundOffset):
            self.note_end(sender.host.actor, message.end_offset)
        elif isinstance(message, ReplicaLeads):
            self.note_leader(message.partition, message.leader_epoch, message.ref)
        elif isinstance(message, ReplicaFetched):
            self.note_leader(sender.host.actor.partition, message.leader_epoch, sender)

    def note_leader(self, place: Any, epoch: int, ref: Any) -> None:
        """Note who leads in an epoch."""
        name = f"{ref.name} (life {ref.host.life})"
        known = self.leaders.setdefault((place, epoch), name)
        if known != name:
            self.broken.append(f"one leader: {place} is led by {known} and {name} in {epoch}")

    def note_end(self, replica: Any, end: int) -> None:
        """Note where the log ends, as a consumer is told in some epoch."""
        known = self.ends[replica.partition]
        for epoch, told in known:
            if epoch <= replica.epoch and end < told:
                self.broken.append(f"visible end: {replica.partition}: {end} after {told}")
        known[:] = [(epoch, told) for epoch, told in known if epoch != replica.epoch]
        known.append((replica.epoch, end))

    def check_replica(self, name: str, replica: Any) -> None:
        """Compare what a replica says is committed with what others have said."""
        log = replica.log
        known = self.agreed[replica.partition]
        for batch in log.pieces(log.start_offset, log.high_watermark):
            mark = (batch.epoch, batch.append_time_us, batch.producer)
            for offset in range(batch.base_offset, batch.base_offset + batch.count):
                if offset < len(known):
                    if known[offset] not in (None, mark):
                        self.broken.append(
                            f"same commits: {name} has {mark} at {offset}, not {known[offset]}"
                        )
                        return
                else:
                    known.extend([None] * (offset - len(known) + 1))
                known[offset] = mark


class ReplicatedRun:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.log: list[str] = []
        """The steps that were taken, for the message of a failed test."""
        self.dice = dice = Random(seed)
        self.storage = dice.choice(["disk", "disk", "disk", "memory"])
        self.flush = dice.choice(["interval", "interval", "commit"])
        self.outages = self.storage == "disk" and dice.random() < 0.25
        """Whether only processes die, and as many at once as the dice say."""
        count = dice.randint(3, 5)
        self.controllers = dice.choice([1, 3])
        self.network = Unreliable(dice.choice([0.0, 0.0, 0.02, 0.1]))
        options: dict[str, Any] = {}
        if self.storage == "disk":
            options = {
                "flush": self.flush,
                "disk": DiskModel(
                    write=dice.choice(["0us", "20us", "1ms"]), sync=dice.choice(["100us", "4ms"]),
                    bandwidth=dice.choice([None, 1_000_000]),
                    writeback=dice.choice(["300ms", "30s"]),
                ),
                "log_segment_bytes": dice.choice([400, 2_000, 1_000_000]),
                "log_flush_interval_ms": dice.choice([None, 200]),
                "log_cache_bytes": dice.choice([None, 0, 300]),
            }  # fmt: skip
        self.cluster = cluster = wt.Cluster.simulated(
            seed, brokers=count, controllers=self.controllers, storage=self.storage,
            network=self.network, min_insync_replicas=2,
            broker_heartbeat_interval_ms=150, broker_session_timeout_ms=600,
            controller_quorum_election_timeout_ms=200, controller_quorum_fetch_timeout_ms=400,
            replica_lag_time_max_ms=dice.choice([300, 1_000]),
            replica_fetch_wait_max_ms=dice.choice([50, 200]),
            replica_fetch_max_bytes=dice.choice([300, 1_000_000]),
            leader_imbalance_check_interval_seconds=dice.choice([1, 300]),
            **options,
        )  # fmt: skip
        self.watch = Watch()
        self.watch.watch(cluster.system)
        self.sent: dict[int, Any] = {}
        """The future of each value."""
        self.senders: dict[int, str] = {}
        """Which producer has sent each value."""
        self.read: dict[str, dict[Any, Any]] = defaultdict(dict)
        """What each group has read, by partition and offset."""
        self.topics = {"orders": dice.randint(1, 3), "bills": 1}
        for name, partitions in self.topics.items():
            cluster.create_topic(name, partitions, replication_factor=3)
        self.producers = [
            cluster.producer(
                f"producer-{number}", linger_ms=dice.choice([0, 5]), acks="all",
                request_timeout_ms=400, delivery_timeout_ms=600_000, retry_backoff_ms=10,
                max_block_ms=600_000,
            )
            for number in (0, 1)
        ]  # fmt: skip
        quick = {
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 1_000,
            "request_timeout_ms": 400,
            "fetch_max_wait_ms": 200,
        }
        readers = cluster.group("readers", list(self.topics), auto_commit_interval_ms=50, **quick)
        self.join(readers, "reader-0")
        workers = cluster.group(
            "workers", ["orders"], delivery=dice.choice(["shared", "shared", "key_shared"]),
            max_deliveries=0, max_poll_records=5, **quick,
        )  # fmt: skip
        for number in range(2):
            self.join(workers, f"worker-{number}")
        self.groups = [readers, workers]
        self.faulty_links: dict[tuple[str, str], None] = {}
        self.faulty_disks: dict[str, None] = {}
        self.doomed: dict[str, None] = {}
        """Brokers that will stop, as syncs fail or they were told to."""

    def join(self, group: Any, name: str) -> None:
        """Start a consumer that remembers what it reads."""
        read = self.read[group.name]

        def remember(records: Any) -> None:
            for record in records:
                place = (record.topic, record.partition, record.offset)
                known = read.setdefault(place, record.value)
                if known != record.value:
                    self.watch.broken.append(f"read twice: {place} is {known} and {record.value}")

        group.consumer(name, remember, service=SERVICE)

    def run(self) -> None:
        """Take all steps, repair everything, and check what must hold."""
        self.send()
        for _ in range(self.dice.randint(15, 30)):
            longest_s = self.dice.choice([0.005, 0.05, 0.6, 2])
            self.cluster.run(for_=self.dice.uniform(0, longest_s))
            self.send(most=3)
            self.step(self.dice.choice(STEPS))
            self.check()
        self.repair()
        self.wait(self.whole, "whole again")
        self.wait(self.is_stored, "all stored")
        self.send_last()
        self.wait(self.is_stored, "all stored")
        self.wait(self.is_consumed, "all consumed")
        self.cluster.run(for_=1)
        self.check()
        self.check_logs()

    def step(self, kind: str) -> None:
        """Take a step, if it is possible now."""
        cluster, system, dice = self.cluster, self.cluster.system, self.dice
        broker = dice.choice(cluster.brokers)
        controller = dice.choice(self.controller_names)
        node = dice.choice([broker, broker, controller])
        self.log.append(f"{cluster.now:.6f} {kind} {node}")
        if kind == "send":
            self.send()
        elif kind in ("crash", "power"):
            self.fall(node, kind)
        elif kind == "crash twice":
            self.crash_twice(node)
        elif kind == "restart":
            self.restart(node)
        elif kind == "pause" and system.node(node).state == "up":
            system.pause(node)
        elif kind == "resume":
            self.resume()
        elif kind in ("cut", "disturb"):
            self.change_link(node, kind)
        elif kind == "isolate":
            self.cut_off(node, [*cluster.brokers, *self.controller_names])
        elif kind == "strand":
            self.strand()
        elif kind == "fail over":
            self.send()
            cluster.run(for_=dice.uniform(0, 0.003))
            self.fall(self.any_leader(), dice.choice(["crash", "power"]))
        elif kind == "heal":
            self.heal_links()
        elif kind in DISK_FAULTS:
            self.harm_disk(node, kind)
        elif kind == "heal disk":
            self.heal_disks()
        elif kind == "shut down":
            if self.may_fall(broker) and system.ref(broker).is_alive():
                self.doomed[broker] = None
                system.ref(broker).tell(ShutDown())
        elif kind == "add partitions":
            if self.topics["orders"] < 5:
                self.topics["orders"] += 1
                cluster._begin_to_add_partitions("orders", self.topics["orders"])
        elif kind == "add broker" and len(cluster.brokers) < 6:
            cluster._spawn_broker()

    # What may happen

    @property
    def controller_names(self) -> list[str]:
        return [ref.name for ref in self.cluster.controllers]

    def active_controller(self) -> Controller | None:
        """The active controller of the highest term, if all that it knows is committed."""
        found: Controller | None = None
        for ref in self.cluster.controllers:
            actor: Any = ref.host.actor
            is_active = not ref.host.ended and hasattr(actor, "log") and actor.log.is_active
            if is_active and (found is None or actor.log.term > found.log.term):
                found = actor
        return found if found is not None and found.log.is_committed else None

    def is_sound(self, broker: str, life: int) -> bool:
        """Whether a broker is the process that the controllers know."""
        system = self.cluster.system
        up = system.node(broker).state != "crashed" and system.ref(broker).is_alive()
        return up and system.ref(broker).host.life == life and broker not in self.doomed

    def may_fall(self, broker: str) -> bool:
        """Whether a broker may lose data: all others that the controllers count on have them."""
        controller = self.active_controller()
        if controller is None:
            return False
        control = controller.image.replication
        for registration in control.partitions.values():
            others = [each for each in (*registration.isr, *registration.elr) if each != broker]
            if not all(self.is_sound(each, control.brokers[each].life) for each in others):
                return False
            if not [each for each in registration.isr if each != broker]:
                return False
        return True

    def fall(self, node: str, kind: str) -> None:
        """Crash a node, or let it lose its power, if that is tolerated."""
        system = self.cluster.system
        is_broker = node in self.cluster.brokers
        tolerated = not is_broker or self.may_fall(node)
        if self.outages and is_broker:
            system.crash(node)
        elif tolerated:
            (system.power_loss if kind == "power" else system.crash)(node)
        else:
            self.log[-1] += " (not tolerated)"

    def crash_twice(self, node: str) -> None:
        """Crash a node, and once more soon after it has begun to recover."""
        self.fall(node, "crash")
        self.restart(node)
        self.cluster.run(for_=self.dice.uniform(0, 0.2))
        self.fall(node, "power")

    def restart(self, node: str) -> None:
        """Start a node that is down, or a broker that has stopped."""
        system = self.cluster.system
        if system.node(node).state == "crashed":
            system.restart(node)
        if system.node(node).state == "up" and not system.ref(node).is_alive():
            if node in self.cluster.brokers:
                self.cluster._start_broker(node)
            else:
                system.crash(node)
                system.restart(node)
        if system.ref(node).is_alive() and node not in self.faulty_disks:
            broker: Any = system.ref(node).host.actor
            if not (isinstance(broker, Broker) and broker.stopping):
                self.doomed.pop(node, None)

    def any_leader(self) -> str:
        """The broker that leads some partition, as the controllers know."""
        controller = self.active_controller()
        led = sorted(controller.image.replication.index.led) if controller is not None else []
        return self.dice.choice(led or self.cluster.brokers)

    def cut_off(self, node: str, others: list[str]) -> None:
        """Cut the links of a node to others."""
        one_way = self.dice.random() < 0.3
        for other in others:
            if other != node:
                self.faulty_links[node, other] = None
                self.cluster.system.network.cut(node, other, one_way=one_way)

    def strand(self) -> None:
        """Cut a leader off while producers write to it, and let it come back after a while."""
        cluster, dice = self.cluster, self.dice
        leader = self.any_leader()
        self.log[-1] += f" {leader}"
        self.send()
        with_controllers = self.controller_names if dice.random() < 0.7 else []
        self.cut_off(leader, [*cluster.brokers, *with_controllers])
        self.send()
        cluster.run(for_=dice.choice([0.01, 0.4, 1.5]))
        self.send()
        if dice.random() < 0.7:
            self.heal_links()

    def resume(self) -> None:
        for node in [*self.cluster.brokers, *self.controller_names]:
            if self.cluster.system.node(node).state == "paused":
                self.cluster.system.resume(node)

    def change_link(self, node: str, kind: str) -> None:
        """Cut or disturb the link between a node and another one."""
        dice, network = self.dice, self.cluster.system.network
        nodes = [*self.cluster.brokers, *self.controller_names]
        nodes += [producer.name for producer in self.producers]
        nodes += ["reader-0", "worker-0", "worker-1"]
        other = dice.choice([each for each in nodes if each != node])
        self.log[-1] += f" {other}"
        one_way = dice.random() < 0.3
        self.faulty_links[node, other] = None
        if kind == "cut":
            network.cut(node, other, one_way=one_way, hold=dice.random() < 0.3)
        else:
            network.disturb(
                node, other, one_way=one_way, drop=dice.choice([0.0, 0.2]),
                duplicate=dice.choice([0.0, 0.3]), reorder=dice.choice([0.0, 0.3]),
            )  # fmt: skip
            network.delay(node, other, dice.choice(["0us", "5ms", "100ms"]), one_way=one_way)

    def heal_links(self) -> None:
        for source, target in self.faulty_links:
            self.cluster.system.network.heal(source, target)
        self.faulty_links.clear()

    def harm_disk(self, node: str, kind: str) -> None:
        disks = self.cluster.system.disks
        if self.storage == "memory":
            return
        self.faulty_disks[node] = None
        if kind == "slow":
            disks.slow(node, self.dice.choice([3, 30]))
        elif kind == "fail syncs":
            if node in self.cluster.brokers and self.may_fall(node):
                self.doomed[node] = None
                disks.fail_syncs(node)
        else:
            getattr(disks, kind.replace(" ", "_"))(node)

    def heal_disks(self) -> None:
        for node in self.faulty_disks:
            self.cluster.system.disks.heal(node)
        self.faulty_disks.clear()

    def send(self, most: int = 12) -> None:
        """Send a few records, without waiting for them."""
        for _ in range(self.dice.randint(1, most)):
            value = len(self.sent)
            producer = self.dice.choice(self.producers)
            topic = self.dice.choice(["orders", "orders", "bills"])
            self.senders[value] = producer.name
            self.sent[value] = producer.send(topic, value, key=self.dice.randint(0, 8))

    def send_last(self) -> None:
        """Send one more record to each partition, so that groups commit once more.

        A leader that was down when a group committed is not told of it until the next commit.
        """
        closing = self.cluster.producer("closing", "manual", acks="all")
        for topic in self.topics:
            for number in range(self.cluster.metadata().partitions(topic)):
                value = len(self.sent)
                self.senders[value] = "closing"
                self.sent[value] = closing.send(topic, value, key=0, partition=number)

    def repair(self) -> None:
        """End all faults, and start everything that is down."""
        self.log.append(f"{self.cluster.now:.6f} repair")
        self.network.share = 0.0
        self.heal_links()
        self.heal_disks()
        self.resume()
        for node in [*self.controller_names, *self.cluster.brokers]:
            self.restart(node)

    def wait(self, condition: Any, name: str) -> None:
        """Wait until a condition holds that must hold soon."""
        left = ""

        def holds() -> bool:
            nonlocal left
            for node in self.cluster.brokers:
                self.restart(node)
            left = condition()
            return not left

        try:
            self.cluster.run_until(holds, timeout=HEAL_S)
        except Timeout:
            raise ViolationError(f"{name}: not within {HEAL_S} s: {left}") from None

    def whole(self) -> str:
        """Say which partition has no leader, or replicas that are not in sync."""
        controller = self.active_controller()
        if controller is None:
            return "there is no active controller"
        for partition, known in controller.image.replication.partitions.items():
            if known.is_reassigning or set(known.isr) != set(known.replicas):
                return f"{partition}: {known}"
            if partition in controller.director.beginning:
                return f"{partition}: the leader has not begun: {known}"
        return ""

    def is_stored(self) -> str:
        waiting = [value for value, each in self.sent.items() if not each._source.is_settled()]
        return f"{waiting} are not stored" if waiting else ""

    def is_consumed(self) -> str:
        for group in self.groups:
            lag = {str(partition): lag for partition, lag in group.lag().items() if lag}
            if lag:
                return f"{group.name} has a lag: {lag}"
        return ""

    # Invariants

    def check(self) -> None:
        """Check what can be seen at any time."""
        for name, ref in self.cluster.system.refs.items():
            replica: Any = ref.host.actor
            if not isinstance(replica, Partition) or ref.host.ended or not replica.is_ready:
                continue
            self.watch.check_replica(name, replica)
            if not replica.resigned:
                self.watch.note_leader(replica.partition, replica.epoch, ref)
        for event in self.cluster.events.of("failed", "unhandled"):
            self.watch.broken.append(f"no failures: {event.actor}: {event.detail}")
        for event in self.cluster.events.of("lost", "tail_lost"):
            if event.group is None:
                self.watch.broken.append(f"nothing lost: {event}")
        if self.watch.broken:
            raise ViolationError(self.watch.broken[0])

    def check_logs(self) -> None:
        """Compare what is stored in the end with what clients were told and have read."""
        cluster = self.cluster
        logs: dict[Any, dict[int, Any]] = {}
        for place in cluster.metadata().leaders:
            view = cluster.inspect(place)
            records = cluster.read(place, view.start_offset, view.end_offset)
            logs[place] = {record.offset: record.value for record in records}
            self.watch.compare(place, view.committed.get("readers", 0))
            if len(logs[place]) != view.end_offset - view.start_offset:
                raise ViolationError(f"no gaps: {place}: {sorted(logs[place])}")
        counts = Counter(value for log in logs.values() for value in log.values())
        twice = [value for value, count in counts.items() if count > 1]
        if twice:
            raise ViolationError(f"stored once: {twice} are there twice")
        for value, future in self.sent.items():
            try:
                at = future.get()
            except TimeoutError:
                continue
            there = logs[wt.TopicPartition(at.topic, at.partition)].get(at.offset)
            if there != value:
                raise ViolationError(f"lost write: {value} was stored at {at}, there is {there}")
        for place, log in logs.items():
            latest: dict[str, int] = {}
            for _, value in sorted(log.items()):
                sender = self.senders[value]
                if value < latest.get(sender, -1):
                    raise ViolationError(f"order: {place}: {value} after {latest[sender]}")
                latest[sender] = value
            for group in self.groups:
                for offset, value in log.items():
                    if place.topic not in group.topics:
                        continue
                    got = self.read[group.name].get((*place, offset))
                    if got != value:
                        raise ViolationError(
                            f"read all: {group.name} has read {got} at {place} {offset}: {value}"
                        )
        if self.watch.broken:
            raise ViolationError(self.watch.broken[0])


def problem_of(seed: int) -> str:
    """Run a seed, and return what is wrong with it; nothing, if all is well."""
    run = ReplicatedRun(seed)
    with run.cluster:
        try:
            run.run()
        except ViolationError as problem:
            return str(problem)
    return ""
