"""A run directory: what a run leaves behind, and what the analytics read.

    run/
      run.json                        what was run, and how it ended
      events/part-000001.parquet …    the events, in segments

A file appears under its name only when it is whole: it is written under a name with a leading dot,
which Spark passes over, and renamed. So a reader may come at any time, while the run goes on or
after it was killed.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from attrs.validators import and_, ge, in_, instance_of, optional

from .errors import BadValueError, WavetankError
from .events import DICTIONARY_COLUMNS, INT_COLUMNS, SCHEMA, SCHEMA_VERSION, select

Engine: TypeAlias = Literal["live", "simulated"]
RunState: TypeAlias = Literal["running", "finished", "interrupted", "failed"]

_INFO: Final = "run.json"
EVENTS: Final = "events"
_SEGMENT: Final = re.compile(r"part-(\d{6,})\.parquet")


class NotARunError(WavetankError):
    """A path that is no run directory."""


class RunExistsError(WavetankError):
    """A directory that already holds a run, which nothing overwrites."""


class UnreadableRunError(WavetankError):
    """A run directory with a damaged file, or written by a newer Wavetank."""


class RunNotWritableError(WavetankError, OSError):
    """The operating system refused to write into a run directory."""


_count: Final = and_(instance_of(int), ge(0))


@attrs.frozen(kw_only=True)
class RunInfo:
    """What run.json says."""

    scenario: Any = None
    """What was run, as far as JSON can say it."""
    seed: int = attrs.field(validator=instance_of(int))
    engine: Engine = attrs.field(validator=in_(get_args(Engine)))
    versions: dict[str, str] = attrs.field(validator=instance_of(dict))
    """Of Wavetank and what it stands on."""
    schema_version: int = attrs.field(default=SCHEMA_VERSION, validator=instance_of(int))
    state: RunState = attrs.field(default="running", validator=in_(get_args(RunState)))
    """A run that was killed says "running" for ever."""
    error: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    """What ended a run that failed."""
    digest: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    """Of all events, once the run is over."""
    events: int = attrs.field(default=0, validator=_count)
    """How many there are, once the run is over."""
    virtual_us: int = attrs.field(default=0, validator=_count)
    """The engine time that was reached."""
    wall_started: str = attrs.field(validator=instance_of(str))
    """When the run began, as ISO 8601 text."""
    wall_seconds: float = attrs.field(default=0.0, validator=instance_of((int, float)))
    """How long it took."""


def create(directory: Path, info: RunInfo) -> None:
    """Lay out the directory of a run that begins now."""
    taken = f"{directory} already holds a run: choose another directory, or remove it first"
    if (directory / _INFO).exists():
        raise RunExistsError(taken)
    _to_json(info)  # A scenario that is refused leaves no directory behind.
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Of two runs that come for the same directory at once, only one can make this.
        (directory / EVENTS).mkdir()
    except OSError as error:
        if isinstance(error, FileExistsError) and (directory / EVENTS).exists():
            raise RunExistsError(taken) from None
        raise RunNotWritableError(f"cannot make the run directory {directory}: {error}") from error
    write_info(directory, info)


def write_info(directory: Path, info: RunInfo) -> None:
    """Write run.json, in place of the one that may be there."""
    text = _to_json(info)
    draft = directory / f".{_INFO}"
    try:
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(directory / _INFO)
    except OSError as error:
        raise RunNotWritableError(f"cannot write {directory / _INFO}: {error}") from error


def _to_json(info: RunInfo) -> str:
    try:
        return json.dumps(attrs.asdict(info, recurse=False), indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadValueError(f"scenario: JSON cannot say {info.scenario!r}: {error}") from None


def read_info(directory: Path | str) -> RunInfo:
    """Read run.json; an unknown entry in it is passed over, a newer schema is refused."""
    path = Path(directory) / _INFO
    if not path.parent.is_dir():
        raise NotARunError(f"{directory} is not a run: there is no such directory")
    try:
        entries = dict(json.loads(path.read_text(encoding="utf-8", errors="replace")))
        version = entries["schema_version"]
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise UnreadableRunError(
                f"{path} has events of schema {version}, this Wavetank knows up to "
                f"{SCHEMA_VERSION}: read it with a newer one"
            )
        known = {name: entries[name] for name in attrs.fields_dict(RunInfo) if name in entries}
        return RunInfo(**known)
    except FileNotFoundError:
        raise NotARunError(f"{directory} is not a run: it has no {_INFO}") from None
    except KeyError as error:
        raise UnreadableRunError(f"{path} is damaged: it has no {error}") from None
    except (ValueError, TypeError) as error:
        raise UnreadableRunError(f"{path} is damaged: {error.args[0]}") from error


def segment_path(directory: Path, number: int) -> Path:
    """Say where a segment belongs; the first is number 1."""
    return directory / EVENTS / f"part-{number:06}.parquet"


def segment_paths(directory: Path | str) -> list[Path]:
    """List the segments that there are by now, in order."""
    folder = Path(directory) / EVENTS
    if not folder.is_dir():
        raise NotARunError(f"{directory} is not a run: it has no folder {EVENTS}")
    found = {int(m[1]): path for path in folder.iterdir() if (m := _SEGMENT.fullmatch(path.name))}
    return [path for _, path in sorted(found.items())]


def segment_number(path: Path) -> int:
    """Say which segment this is."""
    return int(path.stem.removeprefix("part-"))


def write_segment(directory: Path, number: int, batches: Sequence[pa.RecordBatch]) -> None:
    """Write a segment, a row group for each batch; nobody sees it before it is whole.

    Ints are stored as differences: most of them grow slowly, so that files are half as large and
    sooner written than plain ones.
    """
    path = segment_path(directory, number)
    draft = path.with_name(f".{path.name}")
    try:
        with pq.ParquetWriter(
            draft,
            SCHEMA,
            compression="zstd",
            use_dictionary=list(DICTIONARY_COLUMNS),
            column_encoding=dict.fromkeys(INT_COLUMNS, "DELTA_BINARY_PACKED"),
            write_statistics=["sequence", "time_us"],
        ) as writer:
            for batch in batches:
                writer.write_batch(batch)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RunNotWritableError(f"cannot write {path}: {error}") from error


def read_segment(path: Path, kinds: Collection[str] = ()) -> pa.Table:
    """Read the events of one segment, of these kinds or all."""
    try:
        # ParquetFile, as read_table would take a folder called seed=5 above it for a column.
        with pq.ParquetFile(path) as file:
            return select(file.read(SCHEMA.names).cast(SCHEMA), kinds)
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise UnreadableRunError(f"{path} is not a whole segment of events: {error}") from error


def segments(directory: Path | str, kinds: Collection[str] | None = None) -> Iterator[pa.Table]:
    """Read the events of a run in order, a segment at a time, whether it is over or not."""
    read_info(directory)
    wanted = [kinds] if isinstance(kinds, str) else kinds or ()
    for path in segment_paths(directory):
        yield read_segment(path, wanted)


def read_events(directory: Path | str, kinds: Collection[str] | None = None) -> pa.Table:
    """Read the events of a run in order, of these kinds or all, whether it is over or not."""
    return pa.concat_tables([SCHEMA.empty_table(), *segments(directory, kinds)])
