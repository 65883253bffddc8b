"""Delivery with acknowledgements: the cursor alone, all routings end to end, and hot keys.

The cursor: only what settles records is timed, not what gives them out; whatever is said of a range
should cost about the same however long it is. End to end: as in streaming.py, batches of 500 with
keys, against the group that commits; timed from the first record to the last acknowledgement, and
for a broadcast every consumer's records count. Hot keys: how even the load of a key-shared group
is, as what its consumers have on average by what one of them has at most, before and after slots
move.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from measure import Figure, best

import wavetank as wt
from wavetank.model.log.cursor import Cursor
from wavetank.model.messages.share import DELIVERIES, Delivery

LANES = 8
PER_BATCH = 500
BATCHES = 100
RATE = PER_BATCH * 1_000
"""Records a second and producer: a batch in each millisecond."""
WINDOW = 10_000


def flying(count: int) -> Cursor:
    """A cursor with so many records in flight."""
    cursor = Cursor()
    cursor.begin(0)
    cursor.extend(count)
    cursor.acquire("c", np.arange(count), 10**12)
    return cursor


def acks(per_batch: int, batches: int) -> float:
    """Batches acknowledged in order, a second."""
    cursor = flying(per_batch * batches)
    began = time.perf_counter()
    for start in range(0, per_batch * batches, per_batch):
        cursor.ack("c", start, start + per_batch)
    seconds = time.perf_counter() - began
    assert cursor.committed == per_batch * batches
    return batches / seconds


def singles(order: Iterable[int], nack_every: int = WINDOW + 1) -> float:
    """Records settled one by one, a second; some are nacked first, and then come again."""
    cursor = flying(WINDOW)
    said = 0
    began = time.perf_counter()
    for offset in order:
        said += 1
        if said % nack_every:
            cursor.ack("c", offset, offset + 1)
        else:
            cursor.nack("c", offset, offset + 1, 1, 0)
            cursor.expire(1)
    if cursor.available:
        again = cursor.available_offsets()
        cursor.acquire("c", again, 10**12)
        for offset in again.tolist():
            said += 1
            cursor.ack("c", offset, offset + 1)
    seconds = time.perf_counter() - began
    assert cursor.committed == WINDOW
    return said / seconds


def cursor_figures() -> list[Figure]:
    """What settling costs a cursor."""
    shuffled: list[int] = np.random.default_rng(1).permutation(WINDOW).tolist()
    rates = best(
        {
            "batches of 10": lambda: acks(10, 1_000),
            "batches of 10,000": lambda: acks(10_000, 100),
            "one by one in order": lambda: singles(range(WINDOW)),
            "one by one at random": lambda: singles(shuffled),
            "at random, a tenth nacked": lambda: singles(shuffled, nack_every=10),
        }
    )
    names = list(rates)

    def figure(ours: str, theirs: str, target: float | None = None) -> Figure:
        return Figure(f"cursor, {ours}", rates[ours], theirs, rates[theirs], "acks/s", target)

    return [
        figure(names[1], names[0], target=0.1),
        *(figure(ours, theirs) for theirs, ours in pairwise((names[0], *names[2:]))),
    ]


def end_to_end(delivery: Delivery, *, acks: bool = True) -> float:
    """Records handled and acknowledged, or committed, a second."""
    with wt.Cluster.simulated(seed=1, brokers=3, storage="memory") as cluster:
        cluster.create_topic("orders", partitions=LANES)
        group = cluster.group(
            "g", ["orders"], delivery=delivery, acks=acks, auto_commit_interval_ms=0,
            max_poll_records=100_000, max_in_flight=100_000,
        )  # fmt: skip
        for lane in range(LANES):
            group.consumer(f"c{lane}", service=wt.load.ConstantService("1us"))
        group.assignment()
        began = time.perf_counter()
        load_all(cluster, wt.load.UniformKeys(10_000))
        seconds = time.perf_counter() - began
        stored, done = (
            pc.sum(cluster.events.table(kind)["count"]).as_py()
            for kind in ("appended", "acknowledged" if acks else "delivered")
        )
        assert done == stored * (LANES if delivery == "broadcast" else 1)
        assert stored >= 0.9 * LANES * PER_BATCH * BATCHES
    return float(done / seconds)


def load_all(cluster: wt.Cluster, keys: wt.load.UniformKeys) -> None:
    """Send to every partition for a while, and let everything be handled."""
    producers = []
    for lane in range(LANES):
        load = wt.load.Load(
            "orders", wt.load.Constant(RATE), keys, partition=lane, resolution="1ms"
        )
        producers.append(
            cluster.producer(
                f"p{lane}", "manual", load=load, linger_ms=0, batch_size=100 * PER_BATCH,
                max_in_flight=10_000,
            )
        )  # fmt: skip
    cluster.run(for_=BATCHES / 1_000)
    for producer in producers:
        producer.close()
    cluster.run(for_="1s")


def routing_figures() -> list[Figure]:
    """What each way of delivering costs."""
    jobs: dict[str, Callable[[], float]] = {
        delivery: partial(end_to_end, delivery) for delivery in DELIVERIES
    }
    jobs["commits"] = partial(end_to_end, "exclusive", acks=False)
    rates = best(jobs, rounds=3)
    peer = "exclusive, commits each poll batch"
    return [
        Figure(
            f"simulated, {name}, batches of 500", rates[name], peer, rates["commits"], "records/s"
        )
        for name in DELIVERIES
    ]


def hot_keys() -> Figure:
    """How evenly Zipf's keys are spread over eight consumers, and how much balancing helps."""
    with wt.Cluster.simulated(seed=1, storage="memory") as cluster:
        cluster.create_topic("orders")
        group = cluster.group("g", ["orders"], delivery="key_shared")
        for lane in range(LANES):
            group.consumer(f"c{lane}", service=wt.load.ConstantService("1us"))
        group.assignment()
        load = wt.load.Load("orders", wt.load.Poisson(1_000), wt.load.ZipfKeys(10_000))
        cluster.producer("p", load=load)
        cluster.run(for_="40s")
        moves = cluster.events.of("slots_moved")
        delivered = cluster.events.table("delivered")
    before = delivered.filter(pc.less(delivered["time_us"], moves[0].time_us))
    after = delivered.filter(pc.greater_equal(delivered["time_us"], moves[-1].time_us))
    peer = "before balancing"
    return Figure("key_shared, Zipf keys", evenness(after), peer, evenness(before), "mean/max")


def evenness(delivered: pa.Table) -> float:
    """The mean of what consumers had by the most that one of them had."""
    members = delivered.unify_dictionaries().group_by("member")
    had = members.aggregate([("count", "sum")])["count_sum"]
    return float(pc.sum(had).as_py() / LANES / pc.max(had).as_py())


def run() -> list[Figure]:
    """Measure everything, in turns."""
    return [*cursor_figures(), *routing_figures(), hot_keys()]
