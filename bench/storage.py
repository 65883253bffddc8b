"""Storage: what a disk costs, and how fast it is.

Live: 4 producers, 4 partitions and 4 consumers as in streaming.py, with a data directory against
memory. With flush="commit", records are acknowledged once they are synced: records stored a second,
against SQLite (WAL, synchronous=FULL) with the same records in the best of several batch sizes.
Recovery: a partition is opened whose process was killed, from the first read to the first answer,
against reading its segment and computing its checksum alone; both from the page cache. It is one
segment of 1 GB, which has to be verified whole: complete segments are not verified again.
Simulated: ten minutes of day.toml, in virtual seconds for each second of processor time.
"""

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import google_crc32c
from measure import Figure, best
from streaming import live

import wavetank as wt

LANES = 4
RECORDS = 400_000
VALUE = b"x" * 100
STORED = 100_000
BATCH_SIZES = (100, 1_000, 10_000, 50_000)
RECOVERED = 1_000_000
LARGE = b"x" * 1_000
MINUTES = 10


def in_folder(job: Callable[[Path], float]) -> float:
    """Run a job in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="wavetank-bench-"))
    try:
        return job(folder)
    finally:
        shutil.rmtree(folder)


def synced(folder: Path) -> float:
    """Records a second that are acknowledged after a sync."""
    with wt.Cluster.live(data_dir=folder, flush="commit") as cluster:
        cluster.create_topic("orders", LANES, bytes)
        producers = [
            cluster.producer(f"p{lane}", "manual", batch_size=100_000) for lane in range(LANES)
        ]
        batch = [VALUE] * 1_000
        began = time.perf_counter()
        futures = [
            producer.send_many("orders", batch, partition=lane)
            for _ in range(STORED // LANES // 1_000)
            for lane, producer in enumerate(producers)
        ]
        for future in futures:
            future.get(timeout=120)
        return STORED / (time.perf_counter() - began)


def sqlite(folder: Path, batch: int) -> float:
    """Records a second that SQLite has stored for good."""
    database = sqlite3.connect(folder / "records.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE orders (offset INTEGER PRIMARY KEY, time INTEGER, value BLOB)")
    began = time.perf_counter()
    for start in range(0, STORED, batch):
        database.execute("BEGIN")
        rows = [(offset, 0, VALUE) for offset in range(start, min(start + batch, STORED))]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
        database.execute("COMMIT")
    seconds = time.perf_counter() - began
    database.close()
    return STORED / seconds


def fill(folder: Path) -> None:
    """Store records, and end as if the process had been killed: nothing is marked or closed."""
    with wt.Cluster.live(data_dir=folder, log_segment_bytes=2**31 - 1) as cluster:
        cluster.create_topic("orders", 1, bytes)
        producer = cluster.producer("p", "manual", batch_size=50_000)
        for _ in range(RECOVERED // 10_000):
            producer.send_many("orders", [LARGE] * 10_000, partition=0).get(timeout=120)
        cluster.system.crash("broker-0")


def segments(folder: Path) -> list[Path]:
    """The files with the records."""
    return sorted((folder / "broker-0" / "orders-0").glob("*.log"))


def recover(folder: Path) -> float:
    """MB a second, until the partition answers."""
    size = sum(path.stat().st_size for path in segments(folder))
    with wt.Cluster.live(data_dir=folder) as cluster:
        assert cluster.inspect(wt.TopicPartition("orders", 0)).end_offset == RECOVERED
        [event] = [e for e in cluster.events.of("log_recovered") if e.count == RECOVERED]
        cluster.system.crash("broker-0")  # so that the next start has to verify it, too
        assert event.total is not None
        return size / event.total


def read_and_check(folder: Path) -> float:
    """MB a second of reading the files and computing one checksum over each."""
    size, began = 0, time.perf_counter()
    for path in segments(folder):
        data = path.read_bytes()
        google_crc32c.value(data)
        size += len(data)
    return size / (time.perf_counter() - began) / 1e6


def day(*, disk: bool) -> float:
    """Virtual seconds for each second of processor time."""
    scenario = wt.load_scenario(Path(__file__).with_name("day.toml"))
    cluster = scenario.cluster
    if disk:
        settings = {**cluster.settings, "log_roll_ms": 600_000}
        cluster = attrs.evolve(cluster, storage="disk", settings=settings)
    short = attrs.evolve(scenario, duration=60 * MINUTES, timeline=(), cluster=cluster)
    began = time.process_time()
    wt.run(short, keep=False)
    return 60 * MINUTES / (time.process_time() - began)


def run() -> list[Figure]:
    """Measure everything."""
    jobs: dict[str, Callable[[], float]] = {
        "disk": partial(in_folder, partial(live, count=RECORDS)),
        "memory": partial(live, count=RECORDS),
    }
    threads = best(jobs, rounds=4)
    stores: dict[str, Callable[[], float]] = {"ours": partial(in_folder, synced)}
    for batch in BATCH_SIZES:
        stores[f"SQLite, {batch:,}"] = partial(in_folder, partial(sqlite, batch=batch))
    stored = best(stores, rounds=3)
    peer = max((name for name in stored if name != "ours"), key=lambda name: stored[name])
    folder = Path(tempfile.mkdtemp(prefix="wavetank-bench-"))
    try:
        fill(folder)
        recovery = best(
            {"ours": partial(recover, folder), "alone": partial(read_and_check, folder)}, rounds=3
        )
    finally:
        shutil.rmtree(folder)
    simulated = best({"disk": partial(day, disk=True), "memory": partial(day, disk=False)})
    unit = "records/s"
    return [
        Figure("live 4/4/4 on disk", threads["disk"], "memory", threads["memory"], unit, 0.7),
        Figure("stored and synced", stored["ours"], peer, stored[peer], unit, 3),
        Figure(
            "recovery after a kill", recovery["ours"], "read and checksum", recovery["alone"],
            "MB/s", 0.5,
        ),
        Figure(
            "day.toml, simulated disk", simulated["disk"], "memory", simulated["memory"],
            "virtual s/s", 0.95,
        ),
    ]  # fmt: skip
