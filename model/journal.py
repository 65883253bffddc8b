"""What a sweep has finished: a small file for each run, written by whoever ran it.

    sweep/
      sweep.json              what was asked for last
      journal/KEY.json        what came of a run; its key is a digest of scenario and seed
      runs/KEY/               its events, a run directory, if they were asked for
      results/                the table of all runs that were asked for

A file appears under its name only when it is whole, and what is in it follows from its name: it
does not matter who writes it, how often, or who is killed in between. All who write must share
the file system.
"""

import json
import os
import shutil
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from .errors import WavetankError

JOURNAL: Final = "journal"
RUNS: Final = "runs"
RESULTS: Final = "results"
ASKED: Final = "sweep.json"
_DRAFT: Final = ".draft"


class SweepNotWritableError(WavetankError, OSError):
    """A directory for a sweep that cannot be used."""


def key_of(scenario: str, code: str = "") -> str:
    """The key of a run: of its scenario with its seed, as canonical text, and of its handlers."""
    return sha256(f"{scenario}\n{code}".encode()).hexdigest()[:32]


def prepare(out: Path, asked: Any) -> None:
    """Make the directory, or take what is there; drafts of who was killed go."""
    other = out.exists() and not (out / ASKED).exists() and any(out.iterdir())
    if other:
        raise SweepNotWritableError(f"{out} holds something else than a sweep")
    try:
        for folder in (JOURNAL, RUNS):
            (out / folder).mkdir(parents=True, exist_ok=True)
            for draft in (out / folder).glob(f"{_DRAFT}*"):
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
        write(out / ASKED, json.dumps(asked, indent=2) + "\n")
    except OSError as error:
        raise SweepNotWritableError(f"cannot write into {out}: {error}") from error


def write(path: Path, text: str) -> None:
    """Write a file that nobody sees before it is whole, or after it is half gone."""
    draft = draft_of(path)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def draft_of(path: Path) -> Path:
    """A name beside it that nobody else uses at the same time."""
    return path.with_name(f"{_DRAFT}-{os.uname().nodename}-{os.getpid()}-{path.name}")


def add(out: Path, key: str, row: str) -> None:
    """Note what came of a run."""
    write(_path(out, key), row)


def noted(out: Path, key: str) -> str | None:
    """What was noted of a run, if anything was."""
    try:
        return _path(out, key).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def take(out: Path, keys: Iterable[str], events: bool = False) -> dict[str, dict[str, Any]]:
    """What came of those runs that are finished, with `events` of those that have kept them.

    What is of no use is forgotten, so that it is run again: a run that failed, or a damaged file.
    """
    found = {}
    for key in keys:
        text = noted(out, key)
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
    """How many runs are finished."""
    with os.scandir(out / JOURNAL) as entries:
        return sum(not entry.name.startswith(".") for entry in entries)


def adopt(draft: Path, directory: Path) -> None:
    """Put a run directory in its place, unless another one did so first."""
    try:
        draft.rename(directory)
    except OSError:
        if not directory.exists():
            raise
        shutil.rmtree(draft)
