"""What the shell understands: commands as a table, and how a line becomes a call of one of them.

A command says in one text what it takes, as its help shows it: "PRODUCER TOPIC VALUE [N]". What is
required comes first and is taken as it stands, so that a value may look like anything; after it
come what is optional, options (`name=value`) and flags (bare words) in any order.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import attrs

from .model.durations import Duration, to_us
from .model.errors import BadValueError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .shell_session import Session


@attrs.frozen
class Kind:
    """What an argument or an option can be."""

    label: str
    """What help shows in its place."""
    read: Callable[[str, str], Any]
    """Makes a value of the option's name and text, or refuses it."""
    choices: tuple[str, ...] = ()
    names: str = ""
    """What it is the name of, for completion: topic, group, consumer, producer or node."""


def _text(name: str, text: str) -> str:
    return text


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadValueError(f"{name} = {text!r}: expected a whole number, zero or more")
    return int(text)


def _duration(name: str, text: str) -> Duration:
    try:
        duration: Duration = float(text)
    except ValueError:
        duration = text
    to_us(duration, name)
    return duration


def _truth(name: str, text: str) -> bool:
    known = {"yes": True, "true": True, "no": False, "false": False}
    if text.lower() not in known:
        raise BadValueError(f"{name} = {text!r}: expected yes or no")
    return known[text.lower()]


def _names(name: str, text: str) -> tuple[str, ...]:
    several = tuple(part.strip() for part in text.split(","))
    if not all(several):
        raise BadValueError(f"{name} = {text!r}: expected names with commas between them")
    return several


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(key and colon for key, colon, _ in pairs):
        raise BadValueError(f"{name} = {text!r}: expected pairs such as a:b,c:d")
    return {key.strip(): value.strip() for key, _, value in pairs}


TEXT: Final = Kind("TEXT", _text)
WHOLE: Final = Kind("N", _whole)
DURATION: Final = Kind("SECONDS", _duration)
TRUTH: Final = Kind("yes|no", _truth, ("yes", "no"))
TOPICS: Final = Kind("A,B", _names, names="topic")
PAIRS: Final = Kind("A:B,C:D", _pairs)
FLAG: Final = Kind("", _truth)


def one_of(*choices: str) -> Kind:
    """One of a few words."""

    def read(name: str, text: str) -> str:
        if text not in choices:
            raise UnknownNameError(name, text, choices)
        return text

    return Kind("|".join(choices), read, choices)


def named(what: str) -> Kind:
    """The name of something."""
    return Kind(what.upper(), _text, names=what)


@attrs.frozen
class Argument:
    """One of the words that a command takes by position."""

    name: str
    kind: Kind
    required: bool
    many: bool


@attrs.frozen
class Command:
    """One thing that the shell can do."""

    words: tuple[str, ...]
    arguments: tuple[Argument, ...]
    options: Mapping[str, Kind]
    needs: tuple[str, ...]
    """Options that must be given."""
    hidden: frozenset[str]
    """Options that are taken, but too many to show."""
    help: str
    example: str
    run: Callable[..., str]
    grouped: bool
    """Whether it takes groups in parentheses, `(a, b), (c, d)`, and nothing else."""

    @property
    def name(self) -> str:
        """How it is called."""
        return " ".join(self.words)

    @property
    def usage(self) -> str:
        """All that it takes, on one line."""
        parts = [self.name]
        for argument in self.arguments:
            label = argument.name + ("…" if argument.many else "")
            parts.append(label if argument.required else f"[{label}]")
        for name, kind in self.options.items():
            if name not in self.hidden:
                part = name if kind is FLAG else f"{name}={kind.label}"
                parts.append(part if name in self.needs else f"[{part}]")
        if self.hidden:
            parts.append("[SETTING=…]")
        return " ".join(parts)


COMMANDS: Final[dict[tuple[str, ...], Command]] = {}
"""All that there are, by their words."""


def command(
    usage: str,
    example: str,
    *,
    takes: Mapping[str, Kind] | None = None,
    needs: tuple[str, ...] = (),
    hidden: Mapping[str, Kind] | None = None,
    grouped: bool = False,
    **options: Kind,
) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Put a function into the table; its docstring is the command's help.

    `usage` is the command's words in lower case and then its arguments in capitals; `takes` says of
    what kind an argument is, if not just a text; `needs` are options that must be given.
    """
    parts = usage.split()
    words = tuple(part for part in parts if part.islower())
    arguments = tuple(_argument(part, takes or {}) for part in parts[len(words) :])

    def add(function: Callable[..., str]) -> Callable[..., str]:
        more = {name: kind for name, kind in (hidden or {}).items() if name not in options}
        COMMANDS[words] = Command(
            words, arguments, {**options, **more}, needs, frozenset(more),
            " ".join((function.__doc__ or "").split()), example, function, grouped,
        )  # fmt: skip
        return function

    return add


def _argument(part: str, takes: Mapping[str, Kind]) -> Argument:
    bare = part.strip("[]")
    name = bare.removesuffix("…")
    return Argument(name, takes.get(name, TEXT), not part.startswith("["), bare != name)


def reserved() -> set[str]:
    """Words that would be taken for a part of a command if something bore them as its name."""
    return {words[-1] for words in COMMANDS if words[:-1] in COMMANDS}


def find(words: list[str]) -> Command:
    """The command that a line begins with."""
    for length in range(len(words), 0, -1):
        found = COMMANDS.get(tuple(words[:length]))
        if found is not None:
            return found
    longer = [command.name for known, command in COMMANDS.items() if known[0] == words[0]]
    if longer and len(words) == 1:
        raise BadValueError(f"{words[0]} what? There is {', '.join(longer)}")
    if longer:
        raise UnknownNameError("command", " ".join(words[:2]), longer)
    raise UnknownNameError("command", words[0], {known[0] for known in COMMANDS})


def run_words(session: Session, line: str) -> str:
    """Carry out a line: find its command, read what it is given, call it."""
    if not line.strip():
        return ""
    found = find(line.split())
    if found.grouped:
        return found.run(session, groups(found, line))
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise BadValueError(f"{line.strip()!r}: {str(error).lower()}") from None
    positional, options = read(found, words[len(found.words) :])
    return found.run(session, *positional, **options)


def read(command: Command, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Tell arguments from options, and read each as what it has to be."""
    required = sum(argument.required for argument in command.arguments)
    if len(words) < required:
        missing = command.arguments[len(words)].name
        raise BadValueError(f"{command.name}: {missing} is missing; usage: {command.usage}")
    positional, options = words[:required], {}
    for word in words[required:]:
        name, equals, text = word.partition("=")
        kind = command.options.get(name)
        if kind is not None and name in options:
            raise BadValueError(f"{command.name}: {name} is there twice")
        if kind is FLAG and not equals:
            options[name] = True
        elif kind is not None and equals:
            options[name] = kind.read(name, text)
        elif _has_room(command, positional):
            positional.append(word)
        elif equals:
            raise UnknownNameError(f"option of {command.name}", name, command.options)
        else:
            raise BadValueError(f"{command.name}: {word!r} is too much; usage: {command.usage}")
    for name in command.needs:
        if name not in options:
            label = f"{name}={command.options[name].label}"
            raise BadValueError(f"{command.name}: {label} is missing; usage: {command.usage}")
    return list(_read_all(command, positional)), options


def _has_room(command: Command, positional: list[str]) -> bool:
    arguments = command.arguments
    return len(positional) < len(arguments) or (bool(arguments) and arguments[-1].many)


def _read_all(command: Command, positional: list[str]) -> Iterator[Any]:
    for index, word in enumerate(positional):
        argument = command.arguments[min(index, len(command.arguments) - 1)]
        yield argument.kind.read(argument.name, word)


def groups(command: Command, line: str) -> list[list[str]]:
    """Read `(a, b c), (d, "e, f")`: a list for each pair of parentheses, with its parts."""
    found: list[list[str]] = []
    parts: list[str] = []
    inside = False
    rest = line.split(None, len(command.words))
    for token, is_sign in _tokens(rest[-1] if len(rest) > len(command.words) else ""):
        if is_sign and token == "(" and not inside:
            inside, parts = True, [""]
        elif is_sign and token == ")" and inside:
            inside = False
            found.append(parts)
        elif is_sign and token == "," and inside:
            parts.append("")
        elif inside and not is_sign:
            parts[-1] = f"{parts[-1]} {token}".strip()
        elif token != ",":
            raise _ungrouped(command)
    if inside or not found or not all(all(parts) for parts in found):
        raise _ungrouped(command)
    return found


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words without their quotes, and the signs between them; whether it is a sign."""
    word, quote, quoted = "", "", False
    for letter in text:
        if quote:
            word, quote = (word, "") if letter == quote else (word + letter, quote)
        elif letter in "'\"" and not word:
            quote, quoted = letter, True
        elif letter.isspace() or letter in "(),":
            if word or quoted:
                yield word, False
            word, quoted = "", False
            if letter in "(),":
                yield letter, True
        else:
            word += letter
    if word or quoted:
        yield word, False


def _ungrouped(command: Command) -> BadValueError:
    return BadValueError(
        f"{command.name}: expected parts in parentheses, such as: {command.example}"
    )
