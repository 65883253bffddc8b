"""The one place that makes a Spark session, with settings that fit a small machine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ..model.errors import WavetankError

JAVA_NEEDED: Final = 17

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    ),
}


class JavaMissingError(WavetankError):
    """Spark runs on Java, and there is none that it can use."""


def session(master: str | None = None) -> SparkSession:
    """Get a Spark session: on this machine's cores, unless `master` or SPARK_REMOTE says where."""
    # Spark would start the first python3 on PATH for its workers, which may lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "SPARK_REMOTE" in os.environ and master is None:
        return SparkSession.builder.getOrCreate()
    require_java()
    chosen = master or "local[*]"
    if chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("wavetank").master(chosen)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


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
