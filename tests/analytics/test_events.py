"""Loading event logs into Spark, also damaged and unusual ones."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import helpers.program as program
import wavetank as wt
from wavetank import analytics
from wavetank.analytics.events import SPARK_SCHEMA, explain_spark_errors, find_segments
from wavetank.model.events.run_directory import (
    NotARunError,
    UnreadableRunError,
    read_events,
    segment_path,
    write_segment,
)
from wavetank.model.events.schema import SCHEMA, SCHEMA_VERSION


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with wt.SimulatedSystem(seed=2, out=out) as system:
        program.play(system)
    return out


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it, which tests may change."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def change_info(run: Path, **entries: Any) -> None:
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def test_spark_reads_exactly_the_recorded_events(spark: Any, made: Path) -> None:
    frame = analytics.load_events(spark, made).orderBy("sequence")
    assert [row.asDict() for row in frame.collect()] == read_events(made).to_pylist()


def test_a_directory_without_a_run_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match=r"it has no run.json"):
        analytics.load_events(spark, tmp_path)


@pytest.mark.parametrize("damage", ["cut short", "empty", "no Parquet at all"])
def test_a_damaged_segment_is_named_with_a_remedy(spark: Any, run: Path, damage: str) -> None:
    path = segment_path(run, 1)
    whole = path.read_bytes()
    texts = {"cut short": whole[: len(whole) // 2], "empty": b"", "no Parquet at all": b"x" * 999}
    path.write_bytes(texts[damage])
    with pytest.raises(
        UnreadableRunError, match=r"part-000001.parquet is damaged or half"
    ) as caught:
        analytics.load_events(spark, run)
    assert "move it away to read the rest" in str(caught.value)


def test_a_segment_with_damaged_data_is_named(spark: Any, run: Path) -> None:
    path = segment_path(run, 1)
    whole = bytearray(path.read_bytes())
    whole[4:204] = b"\xff" * 200
    path.write_bytes(bytes(whole))
    events = analytics.load_events(spark, run)
    with pytest.raises(UnreadableRunError, match="part-000001"), explain_spark_errors([run]):
        events.collect()


def test_other_errors_of_spark_are_reported_in_one_line(spark: Any, run: Path) -> None:
    with (
        pytest.raises(analytics.SparkFailedError, match="no_such_column"),
        explain_spark_errors([run]),
    ):
        analytics.load_events(spark, run).select("no_such_column").collect()


def test_an_unfinished_segment_is_ignored(spark: Any, run: Path) -> None:
    (run / "events" / ".part-000002.parquet").write_bytes(b"half of")
    assert analytics.load_events(spark, run).count() == read_events(run).num_rows


def test_a_run_without_events_is_an_empty_frame_with_the_same_columns(
    spark: Any, run: Path
) -> None:
    segment_path(run, 1).unlink()
    change_info(run, state="running", events=0, virtual_us=0)
    nothing = analytics.load_events(spark, run)
    assert nothing.schema == SPARK_SCHEMA
    assert nothing.columns == SCHEMA.names
    write_segment(run, 1, [])
    frame = analytics.load_events(spark, run)
    assert frame.union(nothing).collect() == []


@pytest.mark.parametrize("statistics", [True, False])
def test_the_time_of_the_last_event_is_found_without_spark(run: Path, statistics: bool) -> None:
    table = read_events(run)
    pq.write_table(table, segment_path(run, 1), row_group_size=7, write_statistics=statistics)
    found = find_segments(run)
    assert found.last_us == max(table["time_us"].to_pylist()) > 0
    assert found.events == table.num_rows


def test_a_running_run_is_read_up_to_its_last_segment(spark: Any, run: Path) -> None:
    change_info(run, state="running", digest=None, events=0)
    before = analytics.load_events(spark, run)
    shutil.copy(segment_path(run, 1), segment_path(run, 2))
    found = find_segments(run)
    assert before.count() == read_events(run).num_rows // 2
    assert found.events == analytics.load_events(spark, run).count() == read_events(run).num_rows


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("where", ["run.json", "the segment"])
def test_a_run_of_another_schema_is_refused(
    spark: Any, run: Path, where: str, version: int
) -> None:
    if where == "run.json":
        change_info(run, schema_version=version)
    else:
        table = pq.read_table(segment_path(run, 1))
        other = {"wavetank.schema_version": str(version)}
        pq.write_table(table.replace_schema_metadata(other), segment_path(run, 1))
    with pytest.raises(UnreadableRunError, match=rf"events of schema {version}, .* schema 2: "):
        analytics.load_events(spark, run)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"time_us": ["1"], "kind": ["x"]}, "its column time_us is string, expected int64"),
        ({"kind": ["x"]}, "it has no time_us"),
    ],
)
def test_parquet_without_the_columns_of_events_is_refused(
    spark: Any, run: Path, columns: dict[str, list[Any]], text: str
) -> None:
    pq.write_table(pa.table(columns), segment_path(run, 1))
    with pytest.raises(UnreadableRunError, match=text):
        analytics.load_events(spark, run)


def test_a_run_without_a_folder_of_events_is_refused(spark: Any, run: Path) -> None:
    shutil.rmtree(run / "events")
    with pytest.raises(NotARunError, match="it has no folder events"):
        analytics.load_events(spark, run)


@pytest.mark.parametrize("name", ["seed=5", "groups[0]", "a b%20{c}*?", "günther\\"])
def test_a_folder_may_have_any_name(spark: Any, run: Path, name: str) -> None:
    moved = run.rename(run.with_name(name))
    assert analytics.load_events(spark, moved).columns == SCHEMA.names
    assert analytics.load_events(spark, moved).count() == read_events(moved).num_rows
