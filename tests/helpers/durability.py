"""Random runs of a cluster on disks that fail, and checks of what must be left after them.

A run is a list of steps drawn from a seed: records are sent, nodes crash or lose their power, disks
are slow, full or broken. In the end everything is repaired, and what clients were promised is
compared with what is there. The promises are read from the messages between nodes.
"""

import os
from collections import Counter, defaultdict
from random import Random
from typing import Any, Literal

import attrs

import wavetank as wt
from wavetank.model.disk import DiskModel
from wavetank.model.messages.group import OffsetCommit, OffsetCommitAnswer, OffsetFetched
from wavetank.model.messages.share import AcknowledgeRecords, Acquired, RecordsAcknowledged

MORE: int = int(os.environ.get("DURABILITY", "1"))
"""How many times as many random runs as usual: `make test-durability` sets it."""

Mode = Literal["commit", "crashes", "power"]
"""What a run promises. commit: each record is synced before it is acknowledged. crashes: it is
written, and only processes die. power: it is written, and may be lost with the power, but what is
lost is counted."""

STEPS = (
    *("send", "send", "send", "wait", "crash", "crash", "power", "power", "restart", "restart"),
    *("slow", "fill", "fail writes", "fail syncs", "heal", "heal", "add broker"),
    *("crash twice", "crash twice"),
)
GROUPS = ("readers", "workers")
SERVICE = wt.load.ConstantService("1ms")


@attrs.define
class Promises:
    """What clients were told, as the messages on the network say."""

    done: dict[Any, set[int]] = attrs.Factory(lambda: defaultdict(set))
    """Offsets of each partition whose acknowledgement was answered."""
    committed: dict[Any, int] = attrs.Factory(dict)
    """The highest committed offset of each partition that was answered."""
    broken: list[str] = attrs.Factory(list)
    """What contradicts an earlier promise."""
    _asked: dict[Any, Any] = attrs.Factory(dict)

    def watch(self, system: Any) -> None:
        """Look at every message that crosses a link from now on."""
        deliver = system.deliver

        def tapped(link: Any, due_us: int, item: Any) -> None:
            host, message, sender, _ = item
            self.look(message, sender, host)
            deliver(link, due_us, item)

        system.deliver = tapped

    def look(self, message: Any, sender: Any, receiver: Any) -> None:
        if isinstance(message, AcknowledgeRecords):
            place = receiver.actor.partition
            self._asked[place, sender.name, message.request] = message.acks
        elif isinstance(message, RecordsAcknowledged):
            place = sender.host.actor.partition
            acks = self._asked.get((place, receiver.ref.name, message.request), ())
            self.done[place] |= _offsets(acks) - _offsets(message.refused)
        elif isinstance(message, Acquired):
            place = sender.host.actor.partition
            for batch, _ in message.pieces:
                first = batch.base_offset
                again = self.done[place] & set(range(first, first + batch.count))
                if again:
                    self.broken.append(f"{place}: {sorted(again)} delivered after their answer")
        elif isinstance(message, OffsetCommit):
            self._asked[sender.name, message.request] = message.offsets
        elif isinstance(message, OffsetCommitAnswer) and message.status == "ok":
            for each in self._asked.get((receiver.ref.name, message.request), ()):
                before = self.committed.get(each.partition, 0)
                self.committed[each.partition] = max(before, each.offset)
        elif isinstance(message, OffsetFetched):
            for place, offset in message.offsets.items():
                self.compare(place, offset)

    def compare(self, place: Any, offset: int) -> None:
        """Note a committed offset that has gone back."""
        if offset < self.committed.get(place, 0):
            self.broken.append(f"{place}: {offset} after {self.committed[place]} was committed")


def _offsets(spans: Any) -> set[int]:
    return {offset for start, end in spans for offset in range(start, end)}


class DurabilityRun:
    """One random run."""

    def __init__(self, seed: int, mode: Mode) -> None:
        self.seed = seed
        self.mode = mode
        self.log: list[str] = []
        """The steps that were taken, for the message of a failed test."""
        self.sent: dict[int, Any] = {}
        """The future of each value."""
        self.keys: dict[int, int] = {}
        """The key of each value."""
        self.promises = Promises()
        self.dice = dice = Random(seed)
        many = dice.choice([None, 5])
        self.cluster = cluster = wt.Cluster.simulated(
            seed, brokers=dice.randint(1, 3), storage="disk",
            flush="commit" if mode == "commit" else "interval",
            network=wt.network.uniform("100us", "1ms"),
            disk=DiskModel(
                write=dice.choice(["0us", "20us", "1ms"]), sync=dice.choice(["100us", "4ms"]),
                bandwidth=dice.choice([None, 1_000_000]), writeback=dice.choice(["300ms", "30s"]),
            ),
            log_segment_bytes=dice.choice([400, 2_000]), log_roll_ms=dice.choice([300, 60_000]),
            log_flush_interval_messages=many, log_flush_interval_ms=dice.choice([None, 200]),
            log_cache_bytes=dice.choice([None, 0, 300]), log_retention_check_interval_ms=500,
            broker_heartbeat_interval_ms=200, broker_session_timeout_ms=1_000,
        )  # fmt: skip
        self.promises.watch(cluster.system)
        self.topics = {"orders": dice.randint(1, 3), "bills": 1}
        cluster.create_topic("orders", self.topics["orders"])
        policy: dict[str, Any] = {"retention": "1500ms"}
        if mode != "power" and dice.random() < 0.5:
            policy = {"cleanup": "compact"}
        self.compacted = "cleanup" in policy
        cluster.create_topic("bills", retain_unconsumed=dice.random() < 0.5, **policy)
        options: dict[str, Any] = {
            "request_timeout_ms": 400,
            "delivery_timeout_ms": 60_000,
            "retry_backoff_ms": 10,
        }
        self.producers = [cluster.producer(f"producer-{n}", linger_ms=1, **options) for n in (0, 1)]
        quick = {"heartbeat_interval_ms": 100, "session_timeout_ms": 1_000}
        readers = cluster.group(
            "readers", list(self.topics), auto_commit_interval_ms=50, request_timeout_ms=400,
            **quick,
        )  # fmt: skip
        readers.consumer("reader", service=SERVICE)
        workers = cluster.group(
            "workers", ["orders"], delivery="shared", request_timeout_ms=400, max_deliveries=0,
            max_poll_records=5, **quick,
        )  # fmt: skip
        for number in range(2):
            workers.consumer(f"worker-{number}", service=SERVICE)
        self.down: list[str] = []
        self.faulty: list[str] = []

    def run(self) -> None:
        """Take all steps, repair everything, and wait until all is consumed."""
        self.send()
        for _ in range(self.dice.randint(8, 16)):
            longest_s = self.dice.choice([0.005, 0.05, 0.6])
            self.cluster.run(for_=self.dice.uniform(0, longest_s))
            self.step(self.dice.choice(STEPS))
        self.repair()
        self.cluster.run_until(self.is_stored, timeout=100)
        self.send_last()
        self.cluster.run_until(self.is_consumed, timeout=100)

    def step(self, kind: str) -> None:
        cluster, system, dice = self.cluster, self.cluster.system, self.dice
        node = dice.choice([*cluster.brokers, *cluster.brokers, "controller"])
        self.log.append(f"{cluster.now:.6f} {kind} {node}")
        if kind in ("crash", "power"):
            power = kind == "power" and self.mode != "crashes"
            (system.power_loss if power else system.crash)(node)
            if node not in self.down:
                self.down.append(node)
        elif kind == "restart" and self.down:
            self.restart(self.down.pop(0))
        elif kind == "slow":
            system.disks.slow(node, dice.choice([3, 30]))
            self.faulty.append(node)
        elif kind in ("fill", "fail writes"):
            getattr(system.disks, kind.replace(" ", "_"))(node)
            self.faulty.append(node)
        elif kind == "fail syncs" and node != "controller":
            system.disks.fail_syncs(node)
            self.faulty.append(node)
        elif kind == "heal" and self.faulty:
            system.disks.heal(self.faulty.pop(0))
        elif kind == "add broker" and len(cluster.brokers) < 4 and "controller" not in self.down:
            cluster._spawn_broker()
        elif kind == "send":
            self.send()
        elif kind == "crash twice" and node not in self.down:
            self.crash_twice(node)

    def crash_twice(self, node: str) -> None:
        """Crash a node while it writes, and once more soon after it has recovered."""
        cluster, system, dice = self.cluster, self.cluster.system, self.dice
        self.send(most=2)
        cluster.run(for_=dice.uniform(0, 0.01))
        system.crash(node)
        self.restart(node)
        cluster.run(for_=dice.uniform(0, 0.2))
        (system.crash if self.mode == "crashes" else system.power_loss)(node)
        self.down.append(node)

    def send(self, most: int = 12) -> None:
        """Send a few records, without waiting for them."""
        for _ in range(self.dice.randint(1, most)):
            value = len(self.sent)
            producer = self.dice.choice(self.producers)
            topic = self.dice.choice(["orders", "orders", "bills"])
            self.keys[value] = self.dice.randint(0, 5)
            self.sent[value] = producer.send(topic, value, key=self.keys[value])

    def restart(self, node: str) -> None:
        """Start a node that is down, or a broker that has stopped because its disk has failed."""
        system = self.cluster.system
        if system.node(node).state == "crashed":
            system.restart(node)
        if not system.ref(node).is_alive():
            self.cluster._start_broker(node)

    def repair(self) -> None:
        """Heal all disks, and start everything that is down."""
        for node in self.faulty:
            self.cluster.system.disks.heal(node)
        for node in ["controller", *self.cluster.brokers]:
            self.restart(node)

    def send_last(self) -> None:
        """Send one more record to each partition, so that groups commit once more.

        A leader that was down when a group committed is not told of it until the next commit.
        """
        closing = self.cluster.producer("closing", "manual")
        for topic, partitions in self.topics.items():
            for number in range(partitions):
                value = len(self.sent)
                self.keys[value] = 0
                self.sent[value] = closing.send(topic, value, key=0, partition=number)

    def is_stored(self) -> bool:
        """Whether everything that was sent is stored or given up.

        Brokers that stop because a sync has failed before the repair are started again.
        """
        for node in self.cluster.brokers:
            self.restart(node)
        return all(future._source.is_settled() for future in self.sent.values())

    def is_consumed(self) -> bool:
        """Whether everything is stored and consumed."""
        if not self.is_stored():
            return False
        if self.mode == "power":
            return True  # offsets that were lost are used again, and a group may be past them
        return not any(lag for name in GROUPS for lag in self.cluster.groups[name].lag().values())

    # What must hold afterwards

    def problems(self) -> list[str]:
        """List what contradicts a promise."""
        cluster, receipts = self.cluster, self.receipts()
        failed = cluster.events.of("failed", "unhandled")
        found = [f"an actor failed: {event.actor} {event.detail}" for event in failed]
        logs = {}
        for topic, partitions in self.topics.items():
            for number in range(partitions):
                place = wt.TopicPartition(topic, number)
                view = cluster.inspect(place)
                records = list(cluster.read(place, view.start_offset, view.end_offset))
                logs[place] = {record.offset: record for record in records}
                if self.mode != "power":
                    found += self.misplaced(view, logs[place], receipts)
                    self.promises.compare(place, view.committed.get("readers", 0))
        counts = Counter(record.value for log in logs.values() for record in log.values())
        found += [f"{value} is there {count} times" for value, count in counts.items() if count > 1]
        if self.mode == "power":
            return found + self.uncounted(logs, receipts)
        return found + self.promises.broken

    def receipts(self) -> dict[int, wt.RecordMetadata]:
        """Where each acknowledged value is."""
        found = {}
        for value, future in self.sent.items():
            try:
                found[value] = future.get()
            except TimeoutError:
                continue
        return found

    def misplaced(self, view: Any, log: dict[int, Any], receipts: dict[int, Any]) -> list[str]:
        """List the acknowledged records that are not where they were stored, and gaps."""
        place, found = view.partition, []
        compacts = self.compacted and place.topic == "bills"
        latest = {record.key: record.offset for record in log.values()}
        for value, receipt in receipts.items():
            if (receipt.topic, receipt.partition) != place or receipt.offset < view.start_offset:
                continue
            there = log.get(receipt.offset)
            if there is not None and there.value == value:
                continue
            if (
                not compacts
                or there is not None
                or latest.get(self.keys[value], -1) < receipt.offset
            ):
                found.append(f"{place}: {value} was stored at {receipt.offset}, there is {there}")
        if not compacts and len(log) != view.end_offset - view.start_offset:
            found.append(f"{place}: a gap in {sorted(log)}")
        return found

    def uncounted(self, logs: dict[Any, Any], receipts: dict[int, Any]) -> list[str]:
        """List the records that are lost and not counted, or counted and not lost."""
        counted = {
            (event.topic, event.partition, offset, event.append_time_us)
            for event in self.cluster.events.of("lost")
            if event.group is None
            for offset in range(event.base_offset, event.base_offset + event.count)
        }
        starts = {place: self.cluster.inspect(place).start_offset for place in logs}
        found = []
        for value, at in receipts.items():
            place = wt.TopicPartition(at.topic, at.partition)
            there = logs[place].get(at.offset)
            is_lost = (there is None or there.value != value) and at.offset >= starts[place]
            is_counted = (*place, at.offset, at.timestamp) in counted
            if is_lost != is_counted and at.offset >= starts[place]:
                found.append(f"{value} at {at}: lost {is_lost}, counted {is_counted}")
        return found
