"""A real Spark cluster on loopback: a master and workers, each a process of its own."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyspark

HOME = Path(pyspark.__file__).parent
ADDRESS = "127.0.0.1"


@attrs.define
class Standalone:
    """A running cluster: the URL of its master, and the processes of its workers."""

    master: str
    workers: list[subprocess.Popen[str]]

    def kill(self, number: int) -> None:
        """Kill a worker and its executors, as if its machine had failed."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """Start a cluster of workers with one core each, and kill it at the end."""
    started: list[subprocess.Popen[str]] = []
    try:
        master = _start(started, "master.Master", "--port", "0")
        where = _wait(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            own = folder / f"worker-{number}"
            own.mkdir()
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(own))
            _start(started, "worker.Worker", *options, where)
        for worker in started[1:]:
            _wait(worker, r"(Successfully registered)")
        yield Standalone(where, started[1:])
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            assert process.stderr is not None
            process.stderr.close()


def _start(started: list[subprocess.Popen[str]], what: str, *options: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [str(HOME / "bin/spark-class"), f"org.apache.spark.deploy.{what}",
         "--host", ADDRESS, "--webui-port", "0", *options],
        env=os.environ | {
            "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": ADDRESS,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    started.append(process)
    return process


def _wait(process: subprocess.Popen[str], pattern: str) -> str:
    """Read the output of a process up to a line that matches; drain the rest in the background."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if found := re.search(pattern, line):
            threading.Thread(target=_drain, args=(process,), daemon=True).start()
            return found[1]
    raise AssertionError(f"it ended without {pattern}: {''.join(seen)}")


def _drain(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    try:
        for _ in process.stderr:
            pass
    except ValueError:
        pass  # the pipe is closed
