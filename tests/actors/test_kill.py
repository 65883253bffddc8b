"""kill -9 of a process with a live cluster: what it has promised is there when it is opened again.

`make test-kill` kills a hundred times.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wavetank as wt
from helpers import kill_victim
from wavetank.model.seeds import python_stream

KILLS = int(os.environ.get("KILLS", "2"))


SCANS = -1
"""Stands for the topic with external payloads."""


def kill_after(lines: int, directory: Path, file: Path, number: int, flush: str) -> None:
    """Start the victim, and kill it when it has written down this many more things."""
    command = [sys.executable, kill_victim.__file__, str(directory), str(file), str(number), flush]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as victim:
        assert victim.stdout is not None
        for _ in range(lines):
            assert victim.stdout.readline(), victim.communicate()[1].decode()
        victim.kill()


def promises(file: Path) -> list[list[str]]:
    """The lines of the file; the last one may be cut."""
    lines = file.read_text().split("\n")
    return [line.split() for line in lines[:-1]]


def contents(directory: Path) -> dict[tuple[int, int], str]:
    """All records of the topic, by partition and offset, and those with external payloads."""
    found = {}
    with wt.Cluster.live(brokers=2, data_dir=directory) as cluster:
        for number in range(kill_victim.PARTITIONS):
            partition = wt.TopicPartition("orders", number)
            view = cluster.inspect(partition)
            for record in cluster.read(partition, view.start_offset, view.end_offset):
                found[number, record.offset] = record.value
        scans = wt.TopicPartition("scans", 0)
        view = cluster.inspect(scans)
        for record in cluster.read(scans, view.start_offset, view.end_offset):
            value = cluster.payload(record)  # every payload resolves
            found[SCANS, record.offset] = value.rstrip("x")
        assert not cluster.events.of("failed", "unhandled", "log_truncated")
    return found


@pytest.mark.timeout(120 + 60 * KILLS)
@pytest.mark.parametrize("flush", ["interval", "commit"])
def test_a_killed_cluster_keeps_its_promises(tmp_path: Path, flush: str) -> None:
    directory, file = tmp_path / "data", tmp_path / "promises"
    random = python_stream(7, flush)
    for number in range(KILLS):
        kill_after(random.randint(20, 400), directory, file, number, flush)
    found = contents(directory)
    assert len(set(found.values())) == len(found), "a record is there twice"
    committed: dict[int, int] = {}
    acked: set[tuple[int, int]] = set()
    kinds = set()
    for kind, *words in promises(file):
        kinds.add(kind)
        if kind == "stored":
            value, partition, offset = words
            assert found[int(partition), int(offset)] == value
            continue
        if kind == "scanned":
            value, offset = words
            assert found[SCANS, int(offset)] == value
            continue
        if kind == "began":
            continue
        partition, offset = map(int, words)
        if kind == "delivered":
            assert (partition, offset) not in acked, "an acknowledged record is delivered again"
        elif kind == "acked":
            acked.add((partition, offset))
        elif kind == "read":
            assert offset >= committed.get(partition, 0), "a position goes back"
        else:
            assert offset >= committed.get(partition, 0), "a position goes back"
            committed[partition] = offset
    assert kinds == {"began", "stored", "scanned", "delivered", "acked", "read", "committed"}
