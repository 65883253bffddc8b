"""`wavetank shell`: commands over a cluster in this process, from a person, a file or a pipe.

The commands are in shell_commands.py, shell_consumers.py and shell_views.py, how a line is read is
in shell_language.py; here are the loops, the prompt and what Ctrl-C does.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.shortcuts import CompleteStyle
from pykka import ActorDeadError, Timeout

from . import shell_commands as shell_commands
from . import shell_consumers as shell_consumers
from . import shell_views as shell_views
from .model.errors import BadValueError, WavetankError
from .shell_language import COMMANDS, FLAG, Command, Kind, run_words
from .shell_session import Session, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

STDIN: Final = "standard input"

_PLACE: Final = re.compile(r"([^\s,]+-\d+@\d+)")


def run_line(session: Session, line: str) -> str:
    """Carry out one line, and give what it prints; all that can go wrong is a `WavetankError`."""
    session.interrupted = False
    if line.lstrip().startswith("#"):
        return ""
    try:
        with _interrupts_kept(session):
            return run_words(session, line)
    except Timeout:
        raise WavetankError(f"no answer in time; {session.hint()}") from None
    except ActorDeadError as error:
        raise WavetankError(str(error)) from None
    except OSError as error:
        raise BadValueError(f"{error.filename}: {error.strerror}") from None
    except UnicodeError as error:
        raise BadValueError(f"expected text in UTF-8: {error}") from None


@contextmanager
def _interrupts_kept(session: Session) -> Iterator[None]:
    """Only take note of Ctrl-C where it could hit an actor: a simulation runs on our own thread."""
    if not session.simulated or threading.current_thread() is not threading.main_thread():
        yield
        return

    def keep(*_: Any) -> None:
        session.interrupted = True

    before = signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _one_line(error: WavetankError) -> str:
    first, *more = (line.strip() for line in str(error).splitlines())
    return f"{first} {'; '.join(more)}".strip()


# From a file or a pipe


def run_script(session: Session, lines: Iterable[str], name: str) -> int:
    """Carry out lines until one fails; the status to exit with."""
    for number, line in enumerate(lines, 1):
        try:
            said = run_line(session, line)
        except WavetankError as error:
            print(f"{name}, line {number}: {_one_line(error)}", file=sys.stderr)
            return 1
        if said:
            print(said, flush=True)
        if session.interrupted:
            raise KeyboardInterrupt
        if session.over:
            break
    return 0


# At a prompt


def interact(session: Session) -> int:
    """Carry out what a person types, until they have enough."""
    engine = "simulated" if session.simulated else "live"
    print_formatted_text(
        f"A {engine} cluster of {count(len(session.cluster.brokers), 'broker')}. "
        "help lists the commands; exit, or Ctrl-D, ends."
    )
    prompt: PromptSession[str] = PromptSession(
        [("ansigreen", "wavetank> ")],
        history=InMemoryHistory(),
        completer=Names(session),
        complete_style=CompleteStyle.READLINE_LIKE,
    )
    while not session.over:
        try:
            line = prompt.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        _answer(session, line)
    return 0


def _answer(session: Session, line: str) -> None:
    try:
        said = run_line(session, line)
    except WavetankError as error:
        print_formatted_text(FormattedText([("ansired", _one_line(error))]))
    except KeyboardInterrupt:
        print_formatted_text(FormattedText([("ansired", "interrupted")]))
    else:
        if said:
            print_formatted_text(_coloured(said))


def _coloured(text: str) -> FormattedText:
    """Let the eye find where records are."""
    parts = _PLACE.split(text)
    return FormattedText([("ansicyan" if i % 2 else "", part) for i, part in enumerate(parts)])


class Names(Completer):
    """Completes commands, options, and the names of what there is."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """What could stand where the cursor is."""
        *before, begun = re.split(r"\s+", document.text_before_cursor.lstrip())
        for word in self.candidates(before, begun):
            yield Completion(word, start_position=-len(begun))

    def candidates(self, before: list[str], begun: str) -> list[str]:
        """Whole words that go on as the one that was begun, after those before it."""
        words = tuple(before)
        after_help = words[:1] == ("help",)
        known = words[1:] if after_help else words
        further = {
            each[len(known)]
            for each in COMMANDS
            if len(each) > len(known) and each[: len(known)] == known
        }
        if not after_help:
            further |= self._after_command(words, begun)
        return sorted(word for word in further if word.startswith(begun))

    def _after_command(self, words: tuple[str, ...], begun: str) -> set[str]:
        for length in range(len(words), 0, -1):
            found = COMMANDS.get(words[:length])
            if found is not None:
                return self._arguments(found, words[length:], begun)
        return set()

    def _arguments(self, command: Command, given: tuple[str, ...], begun: str) -> set[str]:
        name, equals, _ = begun.partition("=")
        if equals and name in command.options:
            return self._values(command.options[name], begun)
        arguments = command.arguments
        required = sum(argument.required for argument in arguments)
        candidates: set[str] = set()
        if len(given) < len(arguments) or (arguments and arguments[-1].many):
            candidates |= self._words(arguments[min(len(given), len(arguments) - 1)].kind)
        if len(given) >= required:
            taken = {word.partition("=")[0] for word in given}
            for option, kind in command.options.items():
                if option not in taken:
                    candidates.add(option if kind is FLAG else f"{option}=")
        return candidates

    def _values(self, kind: Kind, begun: str) -> set[str]:
        """Values of an option; of a list, what comes after its last comma."""
        name, _, value = begun.partition("=")
        first = value[: value.rfind(",") + 1]
        return {f"{name}={first}{word}" for word in self._words(kind)}

    def _words(self, kind: Kind) -> set[str]:
        return {*kind.choices, *self.session.names(kind.names)}


def main(file: str | None, brokers: int, simulated: bool, seed: int) -> int:
    """Start a cluster, and carry out a file, what comes through a pipe, or what a person types."""
    try:
        return _main(file, brokers, simulated, seed)
    except WavetankError as error:
        print(_one_line(error), file=sys.stderr)
        return 1
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read has enough; Python would complain when it closes standard output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except UnicodeDecodeError as error:
        print(f"{file or STDIN}: expected text in UTF-8: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _main(file: str | None, brokers: int, simulated: bool, seed: int) -> int:
    if file is not None:
        with Path(file).open(encoding="utf-8") as lines:
            return _with_cluster(brokers, simulated, seed, lines, file)
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _with_cluster(brokers, simulated, seed, None, "")
    return _with_cluster(brokers, simulated, seed, sys.stdin, STDIN)


def _with_cluster(
    brokers: int, simulated: bool, seed: int, lines: Iterable[str] | None, name: str
) -> int:
    session = Session(brokers, simulated=simulated, seed=seed)
    with session.cluster:
        return interact(session) if lines is None else run_script(session, lines, name)


if __name__ == "__main__":
    wanted = [argument for argument in sys.argv[1:] if argument != "--simulated"]
    sys.exit(main(wanted[0] if wanted else None, 1, "--simulated" in sys.argv, 0))
