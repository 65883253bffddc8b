"""A report worked out on a real cluster: a standalone master and two workers on loopback."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from reports import record

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"

pytestmark = pytest.mark.timeout(400)


class Daemon:
    """A process of Spark, until it is ended; what it logs is read all the time."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        self.lines: list[str] = []
        self.heard = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.heard:
                self.lines.append(line)
                self.heard.notify_all()

    def wait_for(self, pattern: str) -> str:
        """The first group of the first line that matches."""
        with self.heard:
            found = self.heard.wait_for(lambda: self._found(pattern), timeout=120)
        assert found, "".join(self.lines[-30:])
        return str(found[1])

    def _found(self, pattern: str) -> Any:
        return next((m for line in self.lines if (m := re.search(pattern, line))), None)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        self.reader.join(timeout=30)
        assert self.process.stderr is not None
        self.process.stderr.close()


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master that has two workers."""
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    daemons = [Daemon("master.Master", *here, "--port", free_port())]
    try:
        address = daemons[0].wait_for(r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            work = str(tmp_path / f"work-{number}")
            each = Daemon(
                "worker.Worker",
                *here,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                work,
                address,
            )
            daemons.append(each)
        for each in daemons[1:]:
            each.wait_for(r"(Successfully registered with master)")
        yield address
    finally:
        for each in reversed(daemons):
            each.end()


def figures(directory: Path, master: str) -> dict[str, Any]:
    """What the command prints for programs, in a process and a Spark session of its own."""
    words = [sys.executable, "-m", "wavetank.cli", "report", str(directory), "--json"]
    done = subprocess.run(
        [*words, "--master", master], capture_output=True, text=True, timeout=300,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plain: dict[str, Any] = json.loads(done.stdout)
    return plain


def test_a_cluster_finds_the_same_as_one_machine(master: str, tmp_path: Path) -> None:
    record(tmp_path / "run")
    apart = figures(tmp_path / "run", master)
    here = figures(tmp_path / "run", "local[*]")
    for measure, rows in here["runs"][0]["measures"].items():
        there = apart["runs"][0]["measures"][measure]
        assert sorted(map(str, there)) == sorted(map(str, rows)), measure
    assert apart["runs"][0]["figures"] == here["runs"][0]["figures"]
