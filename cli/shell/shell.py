"""The loops of `wavetank shell`: running a script, prompting a person, handling Ctrl-C."""

from __future__ import annotations

import re
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.shortcuts import CompleteStyle
from pykka import ActorDeadError, Timeout

from ...model.errors import BadValueError, WavetankError
from ..exit_status import FAILURE
from . import commands as commands  # fills the table of commands
from .completion import ShellCompleter
from .format import format_count
from .parser import run_command
from .session import ShellSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_POSITION: Final = re.compile(r"([^\s,]+-\d+@\d+)")


def run_shell(
    file: str | None,
    brokers: int,
    simulated: bool,
    seed: int,
    storage: Literal["memory", "disk"] | None,
    data_dir: Path | None,
) -> int:
    """Start a cluster, and run commands from a file, a pipe or a prompt; return the exit status."""
    with ExitStack() as stack:
        lines, name = sys.stdin, "standard input"
        if file is not None:
            lines, name = stack.enter_context(Path(file).open(encoding="utf-8")), file
        session = ShellSession(
            brokers, simulated=simulated, seed=seed, storage=storage, data_dir=data_dir
        )
        stack.enter_context(session.cluster)
        if data_dir is not None:
            print(f"{data_dir}:\n{session.describe_topics()}", flush=True)
        if file is None and sys.stdin.isatty() and sys.stdout.isatty():
            run_prompt(session)
            return 0
        return run_script(session, lines, name)


def run_script(session: ShellSession, lines: Iterable[str], name: str) -> int:
    """Run commands until one fails; return the exit status."""
    try:
        for number, line in enumerate(lines, 1):
            try:
                output = run_line(session, line)
            except WavetankError as error:
                print(f"{name}, line {number}: {_one_line(error)}", file=sys.stderr)
                return FAILURE
            if output:
                print(output, flush=True)
            if session.interrupted:
                raise KeyboardInterrupt
            if session.has_ended:
                break
    except UnicodeDecodeError as error:
        raise BadValueError(f"{name}: expected text in UTF-8: {error}") from None
    return 0


def run_prompt(session: ShellSession) -> None:
    """Run the commands that a person types, until they exit."""
    engine = "Simulated" if session.simulated else "Live"
    brokers = format_count(len(session.cluster.brokers), "broker")
    print_formatted_text(
        f"{engine} cluster with {brokers}. Type help for the commands, exit or Ctrl-D to end."
    )
    prompt: PromptSession[str] = PromptSession(
        [("ansigreen", "wavetank> ")],
        history=InMemoryHistory(),
        completer=ShellCompleter(session),
        complete_style=CompleteStyle.READLINE_LIKE,
    )
    while not session.has_ended:
        try:
            line = prompt.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        _run_typed(session, line)


def run_line(session: ShellSession, line: str) -> str:
    """Run one line and return its output. All expected errors become a `WavetankError`."""
    session.interrupted = False
    if line.lstrip().startswith("#"):
        return ""
    try:
        with _deferred_interrupts(session):
            return run_command(session, line)
    except Timeout:
        raise WavetankError(f"timed out; {session.describe_down_nodes()}") from None
    except ActorDeadError as error:
        raise WavetankError(str(error)) from None
    except OSError as error:
        raise BadValueError(f"{error.filename}: {error.strerror}") from None
    except UnicodeError as error:
        raise BadValueError(f"expected text in UTF-8: {error}") from None


@contextmanager
def _deferred_interrupts(session: ShellSession) -> Iterator[None]:
    """Let Ctrl-C only set a flag in a simulation: its actors run on this thread."""
    if not session.simulated or threading.current_thread() is not threading.main_thread():
        yield
        return

    def set_flag(*_: Any) -> None:
        session.interrupted = True

    previous = signal.signal(signal.SIGINT, set_flag)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _run_typed(session: ShellSession, line: str) -> None:
    try:
        output = run_line(session, line)
    except WavetankError as error:
        print_formatted_text(FormattedText([("ansired", _one_line(error))]))
    except KeyboardInterrupt:
        print_formatted_text(FormattedText([("ansired", "interrupted")]))
    else:
        if output:
            print_formatted_text(_highlight_positions(output))


def _one_line(error: WavetankError) -> str:
    first, *more = (line.strip() for line in str(error).splitlines())
    return f"{first} {'; '.join(more)}".strip()


def _highlight_positions(text: str) -> FormattedText:
    parts = _POSITION.split(text)
    return FormattedText([("ansicyan" if i % 2 else "", part) for i, part in enumerate(parts)])
