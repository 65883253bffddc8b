"""The table of shell commands, and the decorator that adds a command to it.

A command is declared by its usage, as help shows it: "produce PRODUCER TOPIC VALUE". Required
arguments come first and are taken literally, so that a value may look like an option. After them
follow optional arguments, options (`name=value`) and flags (bare words) in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.durations import Duration, to_us
from ...model.errors import BadValueError, UnknownNameError
from ..options import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@attrs.frozen
class ArgumentType:
    """The type of an argument or option."""

    label: str
    """Placeholder in the usage."""
    parse: Callable[[str, str], Any]
    """Converts the text of the argument; takes its name, for errors, and the text."""
    choices: tuple[str, ...] = ()
    names: str = ""
    """For completion, what it names: topic, partition, position, group, consumer, producer, node,
    broker or disk node."""


def _text(name: str, text: str) -> str:
    return text


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadValueError(f"{name} = {text!r}: expected a whole number, zero or more")
    return int(text)


def _factor(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadValueError(f"{name} = {text!r}: expected a number, such as 10") from None


def _duration(name: str, text: str) -> Duration:
    duration = parse_duration(text)
    to_us(duration, name)
    return duration


def _yes_no(name: str, text: str) -> bool:
    known = {"yes": True, "true": True, "no": False, "false": False}
    if text.lower() not in known:
        raise BadValueError(f"{name} = {text!r}: expected yes or no")
    return known[text.lower()]


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise BadValueError(f"{name} = {text!r}: expected names separated by commas")
    return names


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(key and colon for key, colon, _ in pairs):
        raise BadValueError(f"{name} = {text!r}: expected pairs such as a:b,c:d")
    return {key.strip(): value.strip() for key, _, value in pairs}


def one_of(*choices: str) -> ArgumentType:
    """Return the type of an argument that is one of a few words."""

    def parse(name: str, text: str) -> str:
        if text not in choices:
            raise UnknownNameError(name, text, choices)
        return text

    return ArgumentType("|".join(choices), parse, choices)


def name_of(what: str) -> ArgumentType:
    """Return the type of an argument that names a topic, group, consumer, producer or node."""
    return ArgumentType(what.upper(), _text, names=what)


TEXT: Final = ArgumentType("TEXT", _text)
NUMBER: Final = ArgumentType("N", _number)
FACTOR: Final = ArgumentType("FACTOR", _factor)
DURATION: Final = ArgumentType("SECONDS", _duration)
YES_NO: Final = ArgumentType("yes|no", _yes_no, ("yes", "no"))
PAIRS: Final = ArgumentType("A:B,C:D", _pairs)
FLAG: Final = ArgumentType("", _yes_no)
TOPICS: Final = ArgumentType("A,B", _names, names="topic")
TOPIC: Final = name_of("topic")
GROUP: Final = name_of("group")
PRODUCER: Final = name_of("producer")
CONSUMER: Final = name_of("consumer")
NODE: Final = name_of("node")
BROKER: Final = name_of("broker")
BROKERS: Final = ArgumentType("A,B", _names, names="broker")
DISK_NODE: Final = ArgumentType("NODE", _text, names="disk node")
PARTITION: Final = ArgumentType("TOPIC-NUMBER", _text, names="partition")
POSITION: Final = ArgumentType("TOPIC-NUMBER@OFFSET", _text, names="position")


@attrs.frozen
class Argument:
    """A positional argument of a command."""

    name: str
    type: ArgumentType
    required: bool
    many: bool
    """Whether it takes all words that follow."""


@attrs.frozen
class ShellCommand:
    """A command of the shell."""

    words: tuple[str, ...]
    arguments: tuple[Argument, ...]
    options: Mapping[str, ArgumentType]
    required: tuple[str, ...]
    """Options that must be given."""
    settings: frozenset[str]
    """Options that are client settings; the usage only says that there are some."""
    help: str
    example: str
    run: Callable[..., str]
    tuple_types: tuple[ArgumentType, ...]
    """The types of the parts of a tuple, if it takes tuples, `(a, b), (c, d)`, and nothing else."""

    @property
    def name(self) -> str:
        """The words of the command."""
        return " ".join(self.words)

    @property
    def usage(self) -> str:
        """The command with its arguments and options, on one line."""
        parts = [self.name]
        for argument in self.arguments:
            label = argument.name + ("…" if argument.many else "")
            parts.append(label if argument.required else f"[{label}]")
        for name, type in self.options.items():
            if name not in self.settings:
                part = name if type is FLAG else f"{name}={type.label}"
                parts.append(part if name in self.required else f"[{part}]")
        if self.settings:
            parts.append("[SETTING=…]")
        return " ".join(parts)


COMMANDS: Final[dict[tuple[str, ...], ShellCommand]] = {}
"""All commands by their words; importing the modules of `commands/` fills it."""


def command(
    usage: str,
    example: str,
    *,
    types: Mapping[str, ArgumentType] | None = None,
    required: tuple[str, ...] = (),
    settings: type | None = None,
    tuple_types: tuple[ArgumentType, ...] = (),
    **options: ArgumentType,
) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Add a function to the table. Its docstring is the command's help.

    `usage` has the command's words in lower case, then its arguments in capitals. `types` are the
    types of arguments that are not plain text, `required` the options that must be given, and
    `settings` a class of client settings whose fields become options. A command with `tuple_types`
    takes tuples of such parts instead.
    """
    parts = usage.split()
    words = tuple(part for part in parts if part.islower())
    arguments = tuple(_argument(part, types or {}) for part in parts[len(words) :])
    names = [] if settings is None else [field.name for field in attrs.fields(settings)]
    hidden = {name: TEXT for name in names if name not in options}

    def add(function: Callable[..., str]) -> Callable[..., str]:
        COMMANDS[words] = ShellCommand(
            words, arguments, {**options, **hidden}, required, frozenset(hidden),
            " ".join((function.__doc__ or "").split()), example, function, tuple_types,
        )  # fmt: skip
        return function

    return add


def _argument(part: str, types: Mapping[str, ArgumentType]) -> Argument:
    bare = part.strip("[]")
    name = bare.removesuffix("…")
    return Argument(name, types.get(name, TEXT), not part.startswith("["), bare != name)


def reserved_words() -> set[str]:
    """Return the words that cannot be names: after `produce`, `from` must not name a producer."""
    return {words[-1] for words in COMMANDS if words[:-1] in COMMANDS}
