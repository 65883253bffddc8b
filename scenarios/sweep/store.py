"""The store of a sweep: its finished runs, one small file each, written by the Spark tasks.

    sweep/
      sweep.json              the specification of the last sweep
      journal/KEY.json        the row of a finished run; KEY is a digest of scenario, seed and code
      runs/KEY/               the run directory with its events, if they are kept
      results/                the table of all runs of the last sweep, as Parquet

A file gets its name only when it is complete, and its key determines its content. So it does not
matter which task writes it, how often, or which one is killed while writing. All tasks must share
the file system.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...model.errors import WavetankError
from ...model.summary.run_metrics import RUN_METRICS

JOURNAL: Final = "journal"
RUNS: Final = "runs"
RESULTS: Final = "results"
SPEC: Final = "sweep.json"
_DRAFT: Final = ".draft"
_OBJECTIVE: Final = pa.struct(
    [
        ("objective", pa.string()),
        ("group", pa.string()),
        ("limit", pa.float64()),
        ("measured", pa.float64()),
        ("met", pa.bool_()),
    ]
)
SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),  # of the run in the store: the same in every sweep
        ("scenario", pa.string()),
        ("variant", pa.int32()),  # the variant's number in the grid
        ("label", pa.string()),  # the varied settings, for display
        ("settings", pa.map_(pa.string(), pa.string())),  # the varied settings: value by path
        ("consumers", pa.int64()),  # in all groups
        ("partitions", pa.int64()),  # in all topics
        ("brokers", pa.int64()),
        ("seed", pa.int64()),
        *((figure.name, pa.int64() if figure.whole else pa.float64()) for figure in RUN_METRICS),
        ("events", pa.int64()),
        ("summary", pa.string()),  # the summary as JSON, without time series
        ("objectives", pa.list_(_OBJECTIVE)),
        ("met", pa.bool_()),  # whether all objectives are met; null if the run failed
        ("digest", pa.string()),
        ("wall_seconds", pa.float64()),
        ("error", pa.string()),  # the error of a failed run
        ("directory", pa.string()),  # of the events, relative to the sweep's
    ]
)


class SweepNotWritableError(WavetankError, OSError):
    """A directory cannot be used for a sweep."""


def key_of(scenario: str, code: str = "") -> str:
    """The key of a run: a digest of its scenario (canonical JSON, with the seed) and its code."""
    return sha256(f"{scenario}\n{code}".encode()).hexdigest()[:32]


def prepare(out: Path, spec: Any) -> None:
    """Create the directory, or open an existing one; drafts that killed tasks left are removed."""
    if out.exists() and not (out / SPEC).exists() and any(out.iterdir()):
        raise SweepNotWritableError(f"{out} is not empty and holds no sweep")
    try:
        for folder in (JOURNAL, RUNS):
            (out / folder).mkdir(parents=True, exist_ok=True)
            for draft in (out / folder).glob(f"{_DRAFT}*"):
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
        write(out / SPEC, json.dumps(spec, indent=2) + "\n")
    except OSError as error:
        raise SweepNotWritableError(f"cannot write into {out}: {error}") from error


def write(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old content or the new, never a part."""
    draft = draft_of(path)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def draft_of(path: Path) -> Path:
    """The path of a draft in the same folder, unique to this process."""
    return path.with_name(f"{_DRAFT}-{os.uname().nodename}-{os.getpid()}-{path.name}")


def add(out: Path, key: str, row: str) -> None:
    """Add the row of a finished run, as JSON."""
    write(_path(out, key), row)


def read(out: Path, key: str) -> str | None:
    """The row of a finished run as JSON; `None` if the run is not in the store."""
    try:
        return _path(out, key).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def load(out: Path, keys: Iterable[str], events: bool = False) -> dict[str, dict[str, Any]]:
    """The rows of the finished runs among these keys; with `events`, of those with kept events.

    Other files among them are removed, so that the runs are repeated: failed runs, damaged files,
    and with `events` runs that kept none.
    """
    found = {}
    for key in keys:
        text = read(out, key)
        if text is None:
            continue
        row = _row(text)
        if row is None or row["error"] is not None or (events and not row["directory"]):
            _path(out, key).unlink()
        else:
            found[key] = row
    return found


def _row(text: str) -> dict[str, Any] | None:
    try:
        row = json.loads(text)
    except ValueError:
        return None
    return row if isinstance(row, dict) and {"error", "directory"} <= row.keys() else None


def _path(out: Path, key: str) -> Path:
    return out / JOURNAL / f"{key}.json"


def count(out: Path) -> int:
    """The number of runs in the store."""
    with os.scandir(out / JOURNAL) as entries:
        return sum(not entry.name.startswith(".") for entry in entries)


def publish(draft: Path, directory: Path) -> None:
    """Move a run directory to its final name; if another task was first, its directory stays."""
    try:
        draft.rename(directory)
    except OSError:
        if not directory.exists():
            raise
        shutil.rmtree(draft)


def table_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The rows of runs as an Arrow table."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


def write_table(table: pa.Table, folder: Path) -> None:
    """Write the table as Parquet; an existing one is replaced."""
    folder.mkdir(exist_ok=True)
    path = folder / "part-0.parquet"
    draft = draft_of(path)
    pq.write_table(table, draft, compression="zstd")
    draft.replace(path)
