"""The event log of a run as a DataFrame.

When a log is damaged, Spark names neither the file nor a remedy, and fails only in the middle of a
job. So every segment is checked before Spark reads it: the Parquet footer shows whether the file is
complete and which columns it has.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ..model.errors import WavetankError
from ..model.events.run_directory import (
    RunInfo,
    UnreadableRunError,
    check_schema,
    read_info,
    segment_paths,
    segments,
)
from ..model.events.schema import INT_COLUMNS, SCHEMA, SCHEMA_VERSION

SPARK_SCHEMA: Final = StructType(
    [
        StructField(name, LongType() if name in INT_COLUMNS else StringType())
        for name in SCHEMA.names
    ]
)
"""The columns of `Event` with Spark's types."""


class SparkFailedError(WavetankError):
    """A Spark job failed."""


_VERSION: Final = b"wavetank.schema_version"
_GLOB: Final = re.compile(r"([\\*?{}\[\]])")


@attrs.frozen
class Segments:
    """The complete segments of a run at one moment. A running run adds more later."""

    paths: tuple[Path, ...]
    events: int
    """Number of events in all of them."""
    last_us: int
    """Time of the last event."""


def load_events(spark: SparkSession, directory: Path | str) -> DataFrame:
    """Read the events of a run, one row each, with the columns of `Event`.

    The run may still be running: the segments written so far are read. A run without events gives
    an empty DataFrame.
    """
    return read_segments(spark, find_segments(directory).paths)


def find_segments(directory: Path | str) -> Segments:
    """Find the segments of a run and check that each is complete and has a known schema."""
    read_info(directory)
    paths = tuple(segment_paths(directory))
    checked = [_check(path) for path in paths]
    return Segments(
        paths, sum(events for events, _ in checked), max((us for _, us in checked), default=0)
    )


def read_segments(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Read these segments, which must be complete."""
    if not paths:
        return spark.createDataFrame([], SPARK_SCHEMA)
    return spark.read.schema(SPARK_SCHEMA).parquet(*map(escape_glob, paths))


def broadcast_groups(info: RunInfo) -> tuple[str, ...]:
    """Return the broadcast groups of the scenario in run.json."""
    groups = info.scenario.get("groups") if isinstance(info.scenario, dict) else None
    return tuple(each["name"] for each in groups or () if each.get("delivery") == "broadcast")


def escape_glob(path: Path) -> str:
    """Escape a path for Spark, which takes a folder named groups[0] for a pattern."""
    return _GLOB.sub(r"\\\1", str(path.resolve()))


@contextmanager
def explain_spark_errors(directories: Iterable[Path | str]) -> Iterator[None]:
    """Turn an error of Spark into one line, or name the damaged segment that caused it.

    A segment can have a valid footer and damaged data. Reading all segments again without Spark
    raises an error that names the file.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        for directory in directories:
            for _ in segments(directory):
                pass
        reason = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        raise SparkFailedError(f"Spark failed: {reason}") from error


def _check(path: Path) -> tuple[int, int]:
    """Check a segment; return its number of events and the time of its last event."""
    try:
        with pq.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0].strip()
        raise UnreadableRunError(
            f"{path} is damaged or half-written ({reason}): restore it, or move it away to read "
            "the rest of the run"
        ) from None
    check_schema(path, int((schema.metadata or {}).get(_VERSION, SCHEMA_VERSION)))
    for field in schema:
        if field.name in SCHEMA.names and _type_of(field) != _type_of(SCHEMA.field(field.name)):
            raise UnreadableRunError(
                f"{path} is not a segment of events: its column {field.name} is {_type_of(field)}, "
                f"expected {_type_of(SCHEMA.field(field.name))}"
            )
    if "time_us" not in schema.names or "kind" not in schema.names:
        raise UnreadableRunError(f"{path} is not a segment of events: it has no time_us or no kind")
    return metadata.num_rows, _last_us(path)


def _last_us(path: Path) -> int:
    """Return the time of the last event, from the footer's statistics where it has them."""
    with pq.ParquetFile(path) as file:
        place = file.schema_arrow.names.index("time_us")
        last = 0
        for number in range(file.metadata.num_row_groups):
            statistics = file.metadata.row_group(number).column(place).statistics
            if statistics is None or not statistics.has_min_max:
                found = pc.min_max(file.read_row_group(number, ["time_us"])["time_us"])
                last = max(last, found["max"].as_py() or 0)
            else:
                last = max(last, statistics.max)
    return last


def _type_of(field: pa.Field) -> pa.DataType:
    return field.type.value_type if pa.types.is_dictionary(field.type) else field.type
