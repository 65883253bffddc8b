"""A program to be killed: it produces and consumes on a data directory, and writes down promises.

Usage: kill_victim.py DIRECTORY FILE NUMBER FLUSH. Each line of the file is one thing that the
cluster has promised, or done: `stored VALUE PARTITION OFFSET`, `delivered PARTITION OFFSET`,
`acked PARTITION OFFSET`, `read PARTITION OFFSET` and `committed PARTITION OFFSET`. The topic
"scans" has external payloads: `scanned VALUE OFFSET`.
Each line is printed as well, for whoever counts them.
"""

import os
import sys

import wavetank as wt

PARTITIONS = 3


def main(directory: str, file: str, number: int, flush: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(*words: object) -> None:
        line = (" ".join(map(str, words)) + "\n").encode()
        for each in (descriptor, sys.stdout.fileno()):
            os.write(each, line)

    # Little memory and short segments: records are read from the disk, and only the last segments
    # are verified at a start.
    with wt.Cluster.live(
        brokers=2, data_dir=directory, flush=flush, log_cache_bytes=2_000, log_segment_bytes=20_000
    ) as cluster:
        if "orders" not in cluster.metadata().topics:
            cluster.create_topic("orders", PARTITIONS)
        if "scans" not in cluster.metadata().topics:
            cluster.create_topic("scans", payloads="external")
        shop = cluster.producer("shop", linger_ms=0)
        crew = cluster.group("crew", ["orders"], delivery="shared").consumer("hand")
        readers = cluster.group("readers", ["orders"], enable_auto_commit=False)
        reader = readers.consumer("reader")
        note("began", number)
        sent = 0
        while True:
            futures = {}
            for _ in range(10):
                sent += 1
                value = f"{number}:{sent}"
                futures[value] = shop.send("orders", value, key=str(sent))
            scan = f"{number}:{sent}:" + "x" * 5_000
            scanned = shop.send("scans", scan)
            records = crew.poll(timeout=0.02)
            for record in records:
                note("delivered", record.partition, record.offset)
            if records:
                crew.ack(records)
                for record in records:
                    note("acked", record.partition, record.offset)
            polled = reader.poll(timeout=0.02)
            for record in polled:
                note("read", record.partition, record.offset)
            for partition, offset in reader.commit().items():
                note("committed", partition.partition, offset)
            for value, future in futures.items():
                stored = future.get(timeout=60)
                note("stored", value, stored.partition, stored.offset)
            note("scanned", scan[:-5_000], scanned.get(timeout=60).offset)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
