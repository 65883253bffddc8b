"""The one place that makes a Spark session, with settings that fit a small machine."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..model.errors import BadValueError, WavetankError

MASTERS: Final = ("local", "spark://", "k8s://", "yarn", "sc://")
PATIENCE_SECONDS: Final = 5
"""How long a master may take to answer: Spark itself would try for a minute."""
Spark: TypeAlias = SparkSession
"""Its name for those who may not import it."""
JAVA_NEEDED: Final = 17

_HERE: Final = Path(__file__).absolute()  # relative where the package was sent as a zip
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_BRIEF_JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn256m -XX:MetaspaceSize=256m"  # few pauses
)
_LONG_JAVA: Final = "-XX:+UseParallelGC"  # one that works beside ours takes a core of few
_LONG_MEMORY: Final = "2g"
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # What Spark may write belongs to nobody's project folder.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "wavetank-warehouse")),
    _JAVA_OPTIONS: (f"-Dlog4j2.configurationFile={_HERE.with_name('log4j2.properties').as_uri()}"),
}


class JavaMissingError(WavetankError):
    """Spark runs on Java, and there is none that it can use."""


class SparkUnreachableError(WavetankError):
    """There is no Spark to be had where it was looked for."""


def session(master: str | None = None, *, brief: bool = False) -> SparkSession:
    """Get a Spark session: on this machine's cores, unless `master` or SPARK_REMOTE says where.

    A master may be all that Spark knows, such as `local[2]` or `spark://host:7077`, and `sc://host`
    for a server of Spark Connect. A `brief` one is for little work: its Java does not spend half
    of the time on making itself fast, as it pays only after millions of events.
    """
    # Spark would start the first python3 on PATH for its workers, which may lack our packages.
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
    # Spark takes both for a contradiction; what was asked for last wins.
    os.environ.pop("SPARK_REMOTE", None)
    builder = SparkSession.builder.appName("wavetank").master(chosen)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    java = _BRIEF_JAVA if brief else _LONG_JAVA
    builder = builder.config(_JAVA_OPTIONS, f"{_SETTINGS[_JAVA_OPTIONS]} {java}")
    builder = builder.config("spark.executor.extraJavaOptions", java)
    if not brief:
        builder = builder.config("spark.driver.memory", _LONG_MEMORY)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise _unreachable(chosen, error) from error
    finally:
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote


def _connect(remote: str) -> SparkSession:
    try:
        made: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
        made.version  # noqa: B018  # the first answer: only now it is known that there is a server
    except (ImportError, SystemExit) as error:  # it would end a program without a file in silence
        raise SparkUnreachableError(
            f"Spark Connect ({remote}) needs packages that are not installed: "
            "pip install 'pyspark[connect]'"
        ) from error
    except Exception as error:  # of gRPC, which need not be installed
        raise _unreachable(remote, error) from error
    return made


def _listed() -> str:
    return f"{', '.join(MASTERS[:-1])} or {MASTERS[-1]}"


def _require_master(master: str) -> None:
    """See that one of the masters answers at all."""
    why = ""
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise BadValueError(f"master = {master!r}: expected spark://HOST:PORT")
        try:
            socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS).close()
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return
    raise SparkUnreachableError(f"no Spark master at {master}: {why}")


def _unreachable(where: str, error: Exception) -> SparkUnreachableError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if "Exception:" in line), lines[0] if lines else "")
    return SparkUnreachableError(f"no Spark session at {where}: {said or type(error).__name__}")


def require_java() -> None:
    """Say in one sentence what to install when Spark would find no Java it can use."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    found = _java_version(java) if java else None
    if found is None:
        where = f"JAVA_HOME ({home}) has none" if home else "there is none on PATH"
    elif found < JAVA_NEEDED:
        where = f"{'JAVA_HOME' if home else 'PATH'} has Java {found}"
    else:
        return
    raise JavaMissingError(
        f"Spark needs Java {JAVA_NEEDED} or newer, but {where}: install a JDK or JRE "
        f"{JAVA_NEEDED} or newer (such as OpenJDK {JAVA_NEEDED})."
    )


def _java_version(java: str) -> int | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    # openjdk version "17.0.15" 2025-04-15; up to Java 8 it was "1.8.0_402".
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(match[1]) if match else None
