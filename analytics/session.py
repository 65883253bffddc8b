"""Makes Spark sessions, with settings for a small machine."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final, TypeAlias

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ..model.errors import BadValueError, WavetankError

MASTERS: Final = ("local", "spark://", "k8s://", "yarn", "sc://")
MASTER_TIMEOUT_SECONDS: Final = 5
"""How long to wait for a master to answer. Spark itself would try for a minute."""
Spark: TypeAlias = SparkSession
"""`SparkSession` for modules that must not import PySpark."""
MIN_JAVA: Final = 17
_NOTICE: Final = "WARNING: Using incubator modules"

_HERE: Final = Path(__file__).absolute()  # __file__ is relative in a zip sent to executors
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# Spark generates classes for every query. Those of a report on three large runs fill the 48 MB that
# Java has without its optimising compiler, and then nothing is compiled any more.
_CODE_CACHE: Final = "-XX:ReservedCodeCacheSize=256m"
# Optimising compilation pays off only after millions of events; the sizes avoid most pauses.
_BRIEF_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn256m -XX:MetaspaceSize=256m"
# A concurrent collector would compete with the job for the few cores of a small machine.
_LONG_JAVA: Final = "-XX:+UseParallelGC"
_LONG_MEMORY: Final = "2g"
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark would create its warehouse in the current folder.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "wavetank-warehouse")),
    _JAVA_OPTIONS: (f"-Dlog4j2.configurationFile={_HERE.with_name('log4j2.properties').as_uri()}"),
}


class JavaMissingError(WavetankError):
    """There is no Java that Spark can run on."""


class SparkUnreachableError(WavetankError):
    """No Spark session could be made at the given address."""


def session(master: str | None = None, *, brief: bool = False) -> SparkSession:
    """Return a Spark session: local on all cores, unless `master` or SPARK_REMOTE is set.

    `master` is any master that Spark accepts, such as `local[2]` or `spark://host:7077`, or
    `sc://host` for a Spark Connect server. `brief` is for short jobs: Java then skips the
    optimising compiler, which would take half of their time.

    Raises BadValueError for a master that Spark does not know, JavaMissingError, and
    SparkUnreachableError.
    """
    # Spark would start its workers with the first python3 on PATH, which may lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remote = os.environ.get("SPARK_REMOTE")
    if master is None and remote is not None:
        return _connect(remote)
    if master is not None and not master.startswith(MASTERS):
        raise BadValueError(f"master = {master!r}: expected one that starts with {_listed()}")
    if master is not None and master.startswith("sc://"):
        return _connect(master)
    require_java()
    if master is not None and master.startswith("spark://"):
        _require_master(master)
    chosen = master or "local[*]"
    if chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark refuses a master while SPARK_REMOTE is set; the master was asked for explicitly.
    os.environ.pop("SPARK_REMOTE", None)
    java = f"{_CODE_CACHE} {_BRIEF_JAVA if brief else _LONG_JAVA}"
    settings = {
        **_SETTINGS,
        "spark.app.name": "wavetank",
        "spark.master": chosen,
        _JAVA_OPTIONS: f"{_SETTINGS[_JAVA_OPTIONS]} {java}",
        "spark.executor.extraJavaOptions": java,
        **({} if brief else {"spark.driver.memory": _LONG_MEMORY}),
    }
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        _start_java(conf)
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise _unreachable(chosen, error) from error
    finally:
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote


def _start_java(conf: SparkConf) -> None:
    """Start Spark's Java, unless this process has one, without its notice on standard error.

    No option of Java suppresses the notice. All other lines are passed on.
    """
    if SparkContext._gateway is not None:
        return
    read, write = os.pipe()
    Thread(target=_pass_on, args=(read,), name="wavetank-java-errors", daemon=True).start()
    try:
        gateway = launch_gateway(conf, {"stderr": write})  # type: ignore[no-untyped-call]
    finally:
        os.close(write)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(descriptor: int) -> None:
    with open(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_NOTICE):
                with suppress(OSError, ValueError, AttributeError):  # at the exit of the program
                    sys.stderr.write(line)


def _connect(remote: str) -> SparkSession:
    try:
        made: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
        made.version  # noqa: B018  # the first request: fails if there is no server
    except (ImportError, SystemExit) as error:  # PySpark exits if a package is missing
        raise SparkUnreachableError(
            f"Spark Connect ({remote}) needs packages that are not installed: "
            "pip install 'pyspark[connect]'"
        ) from error
    except Exception as error:  # gRPC's own classes cannot be named: it may not be installed
        raise _unreachable(remote, error) from error
    return made


def _listed() -> str:
    return f"{', '.join(MASTERS[:-1])} or {MASTERS[-1]}"


def _require_master(master: str) -> None:
    """Check that one of the masters accepts connections."""
    reason = ""
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise BadValueError(f"master = {master!r}: expected spark://HOST:PORT")
        try:
            socket.create_connection((host, int(port)), timeout=MASTER_TIMEOUT_SECONDS).close()
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
    raise SparkUnreachableError(f"no Spark master at {master}: {reason}")


def _unreachable(where: str, error: Exception) -> SparkUnreachableError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = next((line for line in lines if "Exception:" in line), lines[0] if lines else "")
    return SparkUnreachableError(f"no Spark session at {where}: {reason or type(error).__name__}")


def require_java() -> None:
    """Raise JavaMissingError, which says what to install, if Spark would find no usable Java."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    found = _java_version(java) if java else None
    if found is None:
        where = f"JAVA_HOME ({home}) has none" if home else "there is none on PATH"
    elif found < MIN_JAVA:
        where = f"{'JAVA_HOME' if home else 'PATH'} has Java {found}"
    else:
        return
    raise JavaMissingError(
        f"Spark needs Java {MIN_JAVA} or newer, but {where}: install a JDK or JRE "
        f"{MIN_JAVA} or newer (such as OpenJDK {MIN_JAVA})."
    )


def _java_version(java: str) -> int | None:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    # Such as: openjdk version "17.0.15" 2025-04-15. Java 8 and older say "1.8.0_402".
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None
