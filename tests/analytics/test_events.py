"""Event logs that are not as they should be, as Spark meets them: a clear answer each."""

import json
import shutil
from pathlib import Path
from typing import Any

import program
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wavetank as wt
from wavetank import analytics
from wavetank.analytics.events import SPARK_SCHEMA, look, telling
from wavetank.model.events import SCHEMA, SCHEMA_VERSION
from wavetank.model.rundir import (
    NotARunError,
    UnreadableRunError,
    read_events,
    segment_path,
    write_segment,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with wt.SimulatedSystem(seed=2, out=out) as system:
        program.play(system)
    return out


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to spoil."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def change_info(run: Path, **entries: Any) -> None:
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize("spoil", ["cut short", "empty", "no Parquet at all"])
def test_a_damaged_segment_is_named_with_what_to_do(spark: Any, run: Path, spoil: str) -> None:
    path = segment_path(run, 1)
    whole = path.read_bytes()
    texts = {"cut short": whole[: len(whole) // 2], "empty": b"", "no Parquet at all": b"x" * 999}
    path.write_bytes(texts[spoil])
    with pytest.raises(UnreadableRunError, match=r"part-000001.parquet is damaged or half") as said:
        analytics.load(spark, run)
    assert "move it away to read the rest" in str(said.value)


def test_damage_that_only_reading_shows_is_named_too(spark: Any, run: Path) -> None:
    path = segment_path(run, 1)
    whole = bytearray(path.read_bytes())
    whole[4:204] = b"\xff" * 200
    path.write_bytes(bytes(whole))
    events = analytics.load(spark, run)
    with pytest.raises(UnreadableRunError, match="part-000001"), telling([run]):
        events.collect()


def test_what_is_wrong_but_no_damage_is_told_as_it_is(spark: Any, run: Path) -> None:
    with pytest.raises(analytics.SparkFailedError, match="no_such_column"), telling([run]):
        analytics.load(spark, run).select("no_such_column").collect()


def test_a_draft_is_passed_over(spark: Any, run: Path) -> None:
    (run / "events" / ".part-000002.parquet").write_bytes(b"half of")
    assert analytics.load(spark, run).count() == read_events(run).num_rows


def test_a_run_without_events_is_an_empty_frame_of_the_same_columns(spark: Any, run: Path) -> None:
    segment_path(run, 1).unlink()
    change_info(run, state="running", events=0, virtual_us=0)
    nothing = analytics.load(spark, run)
    assert nothing.schema == SPARK_SCHEMA
    assert nothing.columns == SCHEMA.names
    write_segment(run, 1, [])
    frame = analytics.load(spark, run)
    assert frame.union(nothing).collect() == []


@pytest.mark.parametrize("told", [True, False])
def test_when_the_last_event_happened_is_seen_without_spark(run: Path, told: bool) -> None:
    table = read_events(run)
    pq.write_table(table, segment_path(run, 1), row_group_size=7, write_statistics=told)
    found = look(run)
    assert found.last_us == max(table["time_us"].to_pylist()) > 0
    assert found.events == table.num_rows


def test_a_run_going_on_is_read_as_far_as_it_has_come(spark: Any, run: Path) -> None:
    change_info(run, state="running", digest=None, events=0)
    before = analytics.load(spark, run)
    shutil.copy(segment_path(run, 1), segment_path(run, 2))
    found = look(run)
    assert before.count() == read_events(run).num_rows // 2
    assert found.events == analytics.load(spark, run).count() == read_events(run).num_rows


@pytest.mark.parametrize("where", ["run.json", "the segment"])
def test_a_run_of_a_newer_schema_is_refused(spark: Any, run: Path, where: str) -> None:
    if where == "run.json":
        change_info(run, schema_version=SCHEMA_VERSION + 1)
    else:
        table = pq.read_table(segment_path(run, 1))
        newer = {"wavetank.schema_version": str(SCHEMA_VERSION + 1)}
        pq.write_table(table.replace_schema_metadata(newer), segment_path(run, 1))
    with pytest.raises(UnreadableRunError, match=r"of schema 2, .* up to 1: .* with a newer one"):
        analytics.load(spark, run)


def test_what_an_older_schema_did_not_have_is_null(spark: Any, run: Path, made: Path) -> None:
    change_info(run, schema_version=0)
    table = pq.read_table(segment_path(run, 1)).drop_columns(["clock_us", "detail"])
    old = table.replace_schema_metadata({"wavetank.schema_version": "0"})
    pq.write_table(old, segment_path(run, 1))
    both = analytics.load(spark, run).union(analytics.load(spark, made))
    rows = both.groupBy("sequence").count().where("count = 2").count()
    assert rows == table.num_rows
    assert analytics.load(spark, run).where("clock_us is not null").count() == 0


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"time_us": ["1"], "kind": ["x"]}, "its column time_us is string, expected int64"),
        ({"kind": ["x"]}, "it has no time_us"),
    ],
)
def test_parquet_that_holds_no_events_is_refused(
    spark: Any, run: Path, columns: dict[str, list[Any]], text: str
) -> None:
    pq.write_table(pa.table(columns), segment_path(run, 1))
    with pytest.raises(UnreadableRunError, match=text):
        analytics.load(spark, run)


def test_a_run_without_its_folder_of_events_is_no_run(spark: Any, run: Path) -> None:
    shutil.rmtree(run / "events")
    with pytest.raises(NotARunError, match="it has no folder events"):
        analytics.load(spark, run)


@pytest.mark.parametrize("name", ["seed=5", "groups[0]", "a b%20{c}*?", "günther\\"])
def test_a_folder_may_be_called_anything(spark: Any, run: Path, name: str) -> None:
    moved = run.rename(run.with_name(name))
    assert analytics.load(spark, moved).columns == SCHEMA.names
    assert analytics.load(spark, moved).count() == read_events(moved).num_rows
