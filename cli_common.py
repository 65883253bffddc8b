"""What the commands share: how mistakes are told, and how what is typed is read."""

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from .model.durations import Duration
from .model.errors import WavetankError

BAD_INPUT: Final = 2
NOT_MET: Final = 1


def clean(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what a user can cause into a line on stderr."""

    @wraps(function)
    def inner(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except BrokenPipeError:
            raise  # Whoever read has enough: click ends in silence.
        except (WavetankError, OSError) as error:
            click.echo(f"wavetank: {_said(error)}", err=True)
            sys.exit(BAD_INPUT)
        except KeyboardInterrupt as error:
            click.echo(f"wavetank: interrupted{f': {error}' if error.args else ''}", err=True)
            sys.exit(130)

    return inner


def _said(error: Exception) -> str:
    """What went wrong; of what the operating system says, without its number."""
    if isinstance(error, OSError) and not isinstance(error, WavetankError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def lasting(duration: str | None) -> list[str]:
    return [] if duration is None else [f"duration={json.dumps(as_duration(duration))}"]


def as_duration(text: str) -> Duration:
    """What was typed: a number is seconds, as in a file."""
    try:
        return float(text)
    except ValueError:
        return text


def find_handlers(folder: Path) -> None:
    """Let handlers be imported from a folder: for a scenario, that of its file."""
    sys.path.insert(0, str(folder.resolve()))
