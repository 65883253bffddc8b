"""The event log of a run as a DataFrame.

Spark names neither the file nor the cure when a log is not what it should be, and only says so in
the middle of a job. So the segments are looked at before: each one's end, where Parquet keeps its
schema, says whether it is whole and what it holds.
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
from ..model.events import INT_COLUMNS, SCHEMA, SCHEMA_VERSION
from ..model.rundir import UnreadableRunError, read_info, segment_paths, segments

SPARK_SCHEMA: Final = StructType(
    [
        StructField(name, LongType() if name in INT_COLUMNS else StringType())
        for name in SCHEMA.names
    ]
)
"""The columns of `Event`, as Spark has them."""


class SparkFailedError(WavetankError):
    """Spark could not do what it was asked for."""


_VERSION: Final = b"wavetank.schema_version"
_GLOB: Final = re.compile(r"([\\*?{}\[\]])")


@attrs.frozen
class Segments:
    """The whole segments of a run at one time, which may get more while the run goes on."""

    paths: tuple[Path, ...]
    events: int
    """How many they hold."""
    last_us: int
    """When the last of them happened."""


def load(spark: SparkSession, directory: Path | str) -> DataFrame:
    """Read the events of a run, finished or going on: a row each, the columns of `Event`.

    A run going on is read as far as it has come. A run without events is an empty DataFrame. What a
    run of an older schema does not have yet is null.
    """
    return read(spark, look(directory))


def look(directory: Path | str) -> Segments:
    """Find the segments of a run, and see that each is whole and of a schema that we know."""
    read_info(directory)
    paths = tuple(segment_paths(directory))
    checked = [_check(path) for path in paths]
    return Segments(
        paths, sum(events for events, _ in checked), max((us for _, us in checked), default=0)
    )


def read(spark: SparkSession, found: Segments) -> DataFrame:
    """Read these segments and no others."""
    return read_files(spark, found.paths)


def read_files(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Read segments that are known to be whole."""
    if not paths:
        return spark.createDataFrame([], SPARK_SCHEMA)
    return spark.read.schema(SPARK_SCHEMA).parquet(*map(plainly, paths))


def plainly(path: Path) -> str:
    """A path as Spark must be told, which takes a folder called groups[0] for a pattern."""
    return _GLOB.sub(r"\\\1", str(path.resolve()))


@contextmanager
def telling(directories: Iterable[Path | str]) -> Iterator[None]:
    """Say in a line why Spark failed: over a damaged segment (a whole end is no whole file)?"""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        for directory in directories:
            for _ in segments(directory):
                pass
        said = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        raise SparkFailedError(f"Spark failed: {said}") from error


def _check(path: Path) -> tuple[int, int]:
    """See that a segment is whole; how many events it has, and when the last one happened."""
    try:
        with pq.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
    except (OSError, ValueError, pa.ArrowException) as error:
        why = str(error).splitlines()[0].strip()
        raise UnreadableRunError(
            f"{path} is damaged or half-written ({why}): restore it, or move it away to read the "
            "rest of the run"
        ) from None
    version = int((schema.metadata or {}).get(_VERSION, SCHEMA_VERSION))
    if version > SCHEMA_VERSION:
        raise UnreadableRunError(
            f"{path} has events of schema {version}, this Wavetank knows up to {SCHEMA_VERSION}: "
            "read it with a newer one"
        )
    for field in schema:
        if field.name in SCHEMA.names and _plain(field) != _plain(SCHEMA.field(field.name)):
            raise UnreadableRunError(
                f"{path} is not a segment of events: its column {field.name} is {_plain(field)}, "
                f"expected {_plain(SCHEMA.field(field.name))}"
            )
    if "time_us" not in schema.names or "kind" not in schema.names:
        raise UnreadableRunError(f"{path} is not a segment of events: it has no time_us or no kind")
    return metadata.num_rows, _last_us(path)


def _last_us(path: Path) -> int:
    """When the last event of a segment happened, for which its end is enough if it says so."""
    with pq.ParquetFile(path) as file:
        place = file.schema_arrow.names.index("time_us")
        last = 0
        for number in range(file.metadata.num_row_groups):
            told = file.metadata.row_group(number).column(place).statistics
            if told is None or not told.has_min_max:
                told = pc.min_max(file.read_row_group(number, ["time_us"])["time_us"])
                last = max(last, told["max"].as_py() or 0)
            else:
                last = max(last, told.max)
    return last


def _plain(field: pa.Field) -> pa.DataType:
    return field.type.value_type if pa.types.is_dictionary(field.type) else field.type
