"""Run directories: what a run writes, and what the analytics read.

    run/
      run.json                        description of the run, and how it ended
      events/part-000001.parquet …    the events, in segments

Files are never incomplete: each is written under a name with a leading dot, which Spark ignores,
and then renamed. A directory can therefore be read at any time, during the run and after it was
killed.

The process that writes a run locks the folder of its events until the run is over, and the
operating system ends the lock with the process. So a reader can tell a run that goes on from one
that was killed, which still says "running" in run.json.
"""

import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from attrs.validators import and_, ge, in_, instance_of, optional

from ..durations import format_duration
from ..errors import BadValueError, WavetankError
from .reading import Events, check_kinds
from .schema import DICTIONARY_COLUMNS, INT_COLUMNS, SCHEMA, SCHEMA_VERSION, select

Engine: TypeAlias = Literal["live", "simulated"]
RunState: TypeAlias = Literal["running", "finished", "interrupted", "failed", "killed"]

_INFO: Final = "run.json"
EVENTS: Final = "events"
_SEGMENT: Final = re.compile(r"part-(\d{6,})\.parquet")


class NotARunError(WavetankError):
    """The path is not a run directory."""


class RunExistsError(WavetankError):
    """The directory already holds a run. Runs are never overwritten."""


class UnreadableRunError(WavetankError):
    """A file of the run directory is damaged, or was written by a newer Wavetank."""


class RunNotWritableError(WavetankError, OSError):
    """The operating system refused to write into a run directory."""


_count: Final = and_(instance_of(int), ge(0))


@attrs.frozen(kw_only=True)
class RunInfo:
    """The contents of run.json."""

    scenario: Any = None
    """The scenario, as JSON data."""
    seed: int = attrs.field(validator=instance_of(int))
    """Seed of the run."""
    engine: Engine = attrs.field(validator=in_(get_args(Engine)))
    """The engine it ran on."""
    versions: dict[str, str] = attrs.field(validator=instance_of(dict))
    """Versions of Wavetank and its dependencies."""
    schema_version: int = attrs.field(default=SCHEMA_VERSION, validator=instance_of(int))
    """Version of the event schema."""
    state: RunState = attrs.field(default="running", validator=in_(get_args(RunState)))
    """State of the run. A killed one stays "running" in the file, and is "killed" once read."""
    error: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    """The error that ended a failed run."""
    digest: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    """Digest of all events, once the run is over."""
    events: int = attrs.field(default=0, validator=_count)
    """Number of events, once the run is over."""
    virtual_us: int = attrs.field(default=0, validator=_count)
    """Engine time at the end of the run."""
    wall_started: str = attrs.field(validator=instance_of(str))
    """Wall-clock time of the start, as ISO 8601 text."""
    wall_seconds: float = attrs.field(default=0.0, validator=instance_of((int, float)))
    """Wall-clock duration."""
    kinds: list[str] = attrs.field(factory=list, validator=instance_of(list))
    """Kinds of events that users' actors declare."""

    def ending(self, until_us: int) -> str | None:
        """Say how a run ended before its end, such as "interrupted at 4 m 34 s"; else `None`.

        `until_us` is the time of its last event, for a run that could not record when it ended.
        """
        at = f"at {format_duration(self.virtual_us or until_us)}"
        match self.state:
            case "finished":
                return None
            case "running":
                return f"still running {at}"
            case "killed":
                return f"killed {at} or later"
            case _:
                return f"{self.state} {at}" + (f": {self.error}" if self.error else "")


def create(directory: Path, info: RunInfo) -> int:
    """Make the directory of a new run, and return its lock: a file descriptor to close at the end.

    Until then, the run counts as running.
    """
    taken = f"{directory} already holds a run: choose another directory, or remove it first"
    if (directory / _INFO).exists():
        raise RunExistsError(taken)
    _to_json(info)  # checked first, so that an invalid scenario leaves no directory behind
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Of two runs that start in the same directory at once, only one can make this folder.
        (directory / EVENTS).mkdir()
    except OSError as error:
        if isinstance(error, FileExistsError) and (directory / EVENTS).exists():
            raise RunExistsError(taken) from None
        raise RunNotWritableError(f"cannot make the run directory {directory}: {error}") from error
    lock = os.open(directory / EVENTS, os.O_RDONLY)
    _try_lock(lock)
    try:
        write_info(directory, info)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _try_lock(folder: int) -> bool:
    """Lock a folder; return whether that worked. Some file systems have no locks."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _has_writer(directory: Path) -> bool:
    """Whether the process that writes a run is alive, as far as can be told."""
    try:
        folder = os.open(directory / EVENTS, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_lock(folder)
    finally:
        os.close(folder)


def write_info(directory: Path, info: RunInfo) -> None:
    """Write or replace run.json."""
    text = _to_json(info)
    draft = directory / f".{_INFO}"
    try:
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(directory / _INFO)
    except OSError as error:
        raise _not_writable(directory / _INFO, error) from error


def _not_writable(path: Path, error: OSError) -> RunNotWritableError:
    """Return the error with the words of the operating system; Arrow adds some of its own."""
    return RunNotWritableError(f"cannot write {path}: {os.strerror(error.errno or 0)}")


def _to_json(info: RunInfo) -> str:
    try:
        return json.dumps(attrs.asdict(info, recurse=False), indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadValueError(
            f"scenario: cannot be written as JSON: {info.scenario!r}: {error}"
        ) from None


def check_schema(path: Path, version: int) -> None:
    """Raise `UnreadableRunError` unless events have the schema of this version of Wavetank.

    Older schemas lack columns: figures made of them would be wrong, not only incomplete.
    """
    if version != SCHEMA_VERSION:
        advice = "read it with a newer one" if version > SCHEMA_VERSION else "run it again"
        raise UnreadableRunError(
            f"{path} has events of schema {version}, this Wavetank reads schema "
            f"{SCHEMA_VERSION}: {advice}"
        )


def read_info(directory: Path | str) -> RunInfo:
    """Read run.json. Unknown entries are ignored; another schema is an error.

    A run that says it is running, but that nobody writes any more, was killed.
    """
    info = _read_info(Path(directory))
    if info.state == "running" and not _has_writer(Path(directory)):
        info = _read_info(Path(directory))  # It may have ended just before the check.
        if info.state == "running":
            return attrs.evolve(info, state="killed")
    return info


def _read_info(directory: Path) -> RunInfo:
    path = directory / _INFO
    if not path.parent.is_dir():
        raise NotARunError(f"{directory} is not a run: there is no such directory")
    try:
        entries = dict(json.loads(path.read_text(encoding="utf-8", errors="replace")))
        version = entries["schema_version"]
        if isinstance(version, int):
            check_schema(path, version)
        known = {name: entries[name] for name in attrs.fields_dict(RunInfo) if name in entries}
        return RunInfo(**known)
    except FileNotFoundError:
        raise NotARunError(f"{directory} is not a run: it has no {_INFO}") from None
    except KeyError as error:
        raise UnreadableRunError(f"{path} is damaged: it has no {error}") from None
    except (ValueError, TypeError) as error:
        raise UnreadableRunError(f"{path} is damaged: {error.args[0]}") from error


def segment_path(directory: Path, number: int) -> Path:
    """Return the path of a segment; the first has the number 1."""
    return directory / EVENTS / f"part-{number:06}.parquet"


def segment_paths(directory: Path | str) -> list[Path]:
    """List the segments written so far, in order."""
    folder = Path(directory) / EVENTS
    if not folder.is_dir():
        raise NotARunError(f"{directory} is not a run: it has no folder {EVENTS}")
    found = {int(m[1]): path for path in folder.iterdir() if (m := _SEGMENT.fullmatch(path.name))}
    return [path for _, path in sorted(found.items())]


def segment_number(path: Path) -> int:
    """Return the number of a segment."""
    return int(path.stem.removeprefix("part-"))


def write_segment(directory: Path, number: int, batches: Sequence[pa.RecordBatch]) -> None:
    """Write a segment, with a row group for each batch.

    Integers are delta-encoded: most columns grow slowly, so the files are half as large and written
    faster than with plain encoding.
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
        raise _not_writable(path, error) from error


def read_segment(path: Path, kinds: Collection[str] = ()) -> pa.Table:
    """Read the events of a segment, of some kinds or all."""
    try:
        # ParquetFile, because read_table would read a folder named seed=5 above it as a column.
        with pq.ParquetFile(path) as file:
            return select(file.read(SCHEMA.names).cast(SCHEMA), kinds)
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise UnreadableRunError(f"{path} is not a complete segment of events: {error}") from error


def segments(directory: Path | str, kinds: Collection[str] | None = None) -> Iterator[pa.Table]:
    """Read the events of a run in order, one segment at a time. The run may still go on.

    A kind that nobody knows, declares or records raises `UnknownNameError`.
    """
    info = read_info(directory)
    wanted = [kinds] if isinstance(kinds, str) else kinds or ()
    paths = segment_paths(directory)
    check_kinds(wanted, info.kinds, lambda: map(read_segment, paths))
    for path in paths:
        yield read_segment(path, wanted)


def read_events(directory: Path | str, kinds: Collection[str] | None = None) -> pa.Table:
    """Read the events of a run in order, of some kinds or all. The run may still go on."""
    return pa.concat_tables([SCHEMA.empty_table(), *segments(directory, kinds)])


class RecordedEvents(Events):
    """The events of a run directory."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)

    def __len__(self) -> int:
        return sum(pq.read_metadata(path).num_rows for path in segment_paths(self._directory))

    def _tables(self, kinds: Collection[str]) -> Iterator[pa.Table]:
        yield SCHEMA.empty_table()
        yield from segments(self._directory, kinds)
