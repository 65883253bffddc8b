"""The Spark session, and what a user is told when there can be none."""

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


def test_a_session_works_with_the_python_that_runs_this(spark: Any) -> None:
    def tell(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable] * batch.num_rows})

    rows = spark.range(1).mapInArrow(tell, "python string").collect()
    assert rows[0].python == sys.executable
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_spark_can_use_is_accepted(
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
def test_a_missing_or_old_java_is_one_clear_sentence(
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
def test_a_master_that_cannot_be_is_one_clear_sentence(master: str, text: str) -> None:
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
    """A session in a program of its own, where SPARK_REMOTE is set: its folder, what it prints."""
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


def test_only_a_brief_session_keeps_java_from_making_itself_fast(
    spark: Any, elsewhere: tuple[Path, list[str]]
) -> None:
    for option in (JAVA_OPTIONS, "spark.executor.extraJavaOptions"):
        assert "-XX:TieredStopAtLevel=1" in spark.conf.get(option)  # that of the tests is brief
    _, (options, memory, _) = elsewhere
    assert "Tiered" not in options
    assert "UseParallelGC" in options
    assert memory == "2g"


def test_a_master_wins_over_spark_remote_and_leaves_nothing_behind(
    elsewhere: tuple[Path, list[str]],
) -> None:
    folder, (*_, counted) = elsewhere
    assert counted == "3"
    assert list(folder.iterdir()) == []
