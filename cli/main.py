"""The `wavetank` command: a click group of all modules in `commands/`.

A module in `commands/` defines a click command with the name of the module. It is found here, so
that a new command needs no other file. Expected errors are handled here as well, for all commands:
one line on stderr and status 2, never a stack trace.
"""

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NoReturn

import click

from .. import __version__
from ..model.errors import WavetankError
from . import commands
from .exit_status import BAD_INPUT, INTERRUPTED


class _CommandGroup(click.Group):
    """Prints expected errors of any command as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click exits without a message
        except (WavetankError, OSError) as error:
            _exit(_message(error), BAD_INPUT)
        except KeyboardInterrupt as error:
            _exit(f"interrupted: {error}" if error.args else "interrupted", INTERRUPTED)


def _message(error: Exception) -> str:
    """Return the error's text; for an operating system error without its number."""
    if isinstance(error, OSError) and not isinstance(error, WavetankError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _exit(message: str, status: int) -> NoReturn:
    click.echo(f"wavetank: {message}", err=True)
    sys.exit(status)


@click.group(cls=_CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wavetank")
def main() -> None:
    """A wave tank for event-streaming systems.

    Runs Kafka-like clusters, live or simulated, breaks them on purpose and measures the effect.
    """


for _module in iter_modules(commands.__path__):
    main.add_command(getattr(import_module(f"{commands.__name__}.{_module.name}"), _module.name))
