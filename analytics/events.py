"""The event log of a run as a DataFrame."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ..model.rundir import EVENTS, read_info


def load(spark: SparkSession, directory: Path | str) -> DataFrame:
    """Read the events of a run, finished or going on: a row each, the columns of `Event`."""
    read_info(directory)
    return spark.read.parquet(str(Path(directory) / EVENTS))
