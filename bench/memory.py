"""Does memory stay bounded? Ten million records through a cluster, and what is resident at each.

`python bench/memory.py`: eight producers send batches of 500 to a topic that keeps its records for
two seconds, or until a shared group of four consumers has acknowledged them. Events go to files.
After the first million or so, when records begin to go as fast as they come, nothing should grow.
"""

import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import wavetank as wt

MILLIONS = 10
LANES = 8
CONSUMERS = 4
BATCH = 500
EVERY_US = 40_000
RATE = LANES * BATCH * 1_000_000 / EVERY_US


def resident_mb() -> float:
    """What of this process is in memory, in megabytes; its peak where only that is known."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) / 1_024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1_048_576 if sys.platform == "darwin" else 1_024)


def start(cluster: wt.Cluster) -> Any:
    """Set everybody to work."""
    cluster.create_topic("orders", partitions=LANES, retention="2s")
    group = cluster.group("readers", ["orders"], delivery="shared")
    for number in range(CONSUMERS):
        group.consumer(f"consumer-{number}", service=wt.load.ConstantService("2us"))
    for lane in range(LANES):
        load = wt.load.Load(
            "orders", wt.load.Constant(RATE / LANES), keys=wt.load.UniformKeys(10_000),
            sizes=wt.load.LognormalSizes(100), partition=lane, resolution=f"{EVERY_US}us",
        )  # fmt: skip
        cluster.producer(f"producer-{lane}", "manual", load=load, linger_ms=0, batch_size=1_000_000)
    return group


def main() -> None:
    """Run, and print a line for each million records."""
    with (
        TemporaryDirectory() as out,
        wt.Cluster.simulated(seed=1, brokers=3, storage="memory", out=out) as cluster,
    ):
        group = start(cluster)
        print(f"{'records':>12} {'in the logs':>12} {'lag':>8} {'MB resident':>12}")
        for _ in range(MILLIONS):
            cluster.run(for_=1_000_000 / RATE)
            views = cluster.describe().partitions
            appended = sum(view.end_offset for view in views)
            kept = sum(view.records for view in views)
            lag = sum(group.lag().values())
            print(f"{appended:12,} {kept:12,} {lag:8,} {resident_mb():12.1f}", flush=True)


if __name__ == "__main__":
    main()
