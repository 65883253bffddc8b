"""Spark sessions, and the errors when none can be made."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wavetank import analytics
from wavetank.analytics.session import require_java
from wavetank.model.errors import WavetankError

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def fake_java(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2025-01-01' >&2\n""")
    java.chmod(0o755)


def test_workers_use_the_python_of_the_driver(spark: Any) -> None:
    def python(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable] * batch.num_rows})

    rows = spark.range(1).mapInArrow(python, "python string").collect()
    assert rows[0].python == sys.executable
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_recent_java_is_accepted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    fake_java(tmp_path / "bin", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    require_java()


@pytest.mark.parametrize(
    ("version", "home", "text"),
    [
        ("1.8.0_402", True, "JAVA_HOME has Java 8: install a JDK or JRE 17"),
        ("11.0.22", False, "PATH has Java 11: install a JDK or JRE 17"),
        (None, True, "has none: install a JDK or JRE 17"),
        (None, False, "there is none on PATH: install a JDK or JRE 17"),
    ],
)
def test_a_missing_or_old_java_raises_one_clear_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None, home: bool, text: str
) -> None:
    if version:
        fake_java(tmp_path / "bin", version)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(analytics.JavaMissingError, match=text) as caught:
        analytics.session()
    assert str(caught.value).count(".") == 1 + str(tmp_path).count(".")


@pytest.mark.parametrize(
    ("master", "text"),
    [
        ("spam", "master = 'spam': expected one that starts with local, spark://, k8s://, yarn or"),
        ("spark://nowhere", "expected spark://HOST:PORT"),
        ("spark://127.0.0.1:1", "no Spark master at spark://127.0.0.1:1: Connection refused"),
    ],
)
def test_an_invalid_or_unreachable_master_raises_one_clear_sentence(master: str, text: str) -> None:
    with pytest.raises(WavetankError, match=text):
        analytics.session(master)


@pytest.mark.parametrize("how", ["SPARK_REMOTE", "master"])
def test_spark_connect_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    if how == "SPARK_REMOTE":
        monkeypatch.setenv("SPARK_REMOTE", "sc://here")
    with pytest.raises(analytics.SparkUnreachableError, match=r"pip install 'pyspark\[connect\]'"):
        analytics.session("sc://here" if how == "master" else None)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A session in another process, with SPARK_REMOTE set: its folder and its output lines."""
    folder = tmp_path_factory.mktemp("elsewhere")
    program = (
        "from wavetank import analytics as a; spark = a.session('local[1]'); "
        f"print(spark.conf.get('{JAVA_OPTIONS}')); print(spark.conf.get('spark.driver.memory')); "
        "print(spark.range(3).count())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True,
        timeout=100, env=os.environ | {"SPARK_REMOTE": "sc://nowhere"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.splitlines()


def test_only_a_brief_session_turns_off_the_optimising_compiler(
    spark: Any, elsewhere: tuple[Path, list[str]]
) -> None:
    # The Java process itself says what it was started with: a later call of `session` may have
    # changed the settings of the session that all tests share.
    runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    assert "-XX:TieredStopAtLevel=1" in list(runtime.getInputArguments())
    executors = spark.sparkContext.getConf().get("spark.executor.extraJavaOptions")
    assert "-XX:TieredStopAtLevel=1" in executors
    _, (options, memory, _) = elsewhere
    assert "Tiered" not in options
    assert "UseParallelGC" in options
    assert memory == "2g"


def test_a_master_overrides_spark_remote_and_no_files_are_left_behind(
    elsewhere: tuple[Path, list[str]],
) -> None:
    folder, (*_, counted) = elsewhere
    assert counted == "3"
    assert list(folder.iterdir()) == []


STARTED = """
import subprocess, sys
from wavetank import analytics
spark = analytics.session("local[1]", brief=True)
spark.sparkContext._jvm.java.lang.System.err.println("from Java")
cache = spark.sparkContext._jvm.java.lang.management.ManagementFactory
beans = cache.getMemoryPoolMXBeans()
print(sum(each.getUsage().getMax() for each in beans if "Code" in each.getName()) >> 20)
spark.stop()
"""


def test_java_has_a_large_code_cache_and_prints_no_notice() -> None:
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "from Java\n"
    assert int(done.stdout) >= 240
