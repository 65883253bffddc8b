"""Reads a line of the shell: finds its command, converts its arguments and calls it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from ...model.errors import BadValueError, UnknownNameError
from .command_table import COMMANDS, FLAG, ShellCommand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .session import ShellSession


def run_command(session: ShellSession, line: str) -> str:
    """Run the command in a line and return its output."""
    if not line.strip():
        return ""
    command = find_command(line.split())
    if command.tuple_types:
        return command.run(session, _parse_tuples(command, line))
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise BadValueError(f"{line.strip()!r}: {str(error).lower()}") from None
    arguments, options = _parse(command, words[len(command.words) :])
    return command.run(session, *arguments, **options)


def find_command(words: list[str]) -> ShellCommand:
    """Return the command that the words begin with."""
    for length in range(len(words), 0, -1):
        found = COMMANDS.get(tuple(words[:length]))
        if found is not None:
            return found
    longer = [command.name for known, command in COMMANDS.items() if known[0] == words[0]]
    if longer and len(words) == 1:
        raise BadValueError(f"incomplete command {words[0]!r}: expected {', '.join(longer)}")
    if longer:
        raise UnknownNameError("command", " ".join(words[:2]), longer)
    raise UnknownNameError("command", words[0], {known[0] for known in COMMANDS})


def _parse(command: ShellCommand, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Separate arguments from options, and convert both to their types."""
    required = sum(argument.required for argument in command.arguments)
    if len(words) < required:
        missing = command.arguments[len(words)].name
        raise BadValueError(f"{command.name}: {missing} is missing; usage: {command.usage}")
    arguments, options = words[:required], {}
    for word in words[required:]:
        name, equals, text = word.partition("=")
        type = command.options.get(name)
        if type is not None and name in options:
            raise BadValueError(f"{command.name}: {name} is given twice")
        if type is FLAG and not equals:
            options[name] = True
        elif type is not None and equals:
            options[name] = type.parse(name, text)
        elif _takes_more(command, arguments):
            arguments.append(word)
        elif equals:
            raise UnknownNameError(f"option of {command.name}", name, command.options)
        else:
            raise BadValueError(
                f"{command.name}: unexpected argument {word!r}; usage: {command.usage}"
            )
    for name in command.required:
        if name not in options:
            label = f"{name}={command.options[name].label}"
            raise BadValueError(f"{command.name}: {label} is missing; usage: {command.usage}")
    return list(_convert(command, arguments)), options


def _takes_more(command: ShellCommand, words: list[str]) -> bool:
    arguments = command.arguments
    return len(words) < len(arguments) or (bool(arguments) and arguments[-1].many)


def _convert(command: ShellCommand, words: list[str]) -> Iterator[Any]:
    for index, word in enumerate(words):
        argument = command.arguments[min(index, len(command.arguments) - 1)]
        yield argument.type.parse(argument.name, word)


def _parse_tuples(command: ShellCommand, line: str) -> list[list[str]]:
    """Read `(a, b c), (d, "e, f")` as a list of parts for each pair of parentheses."""
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
            raise _no_tuples(command)
    if inside or not found or not all(all(parts) for parts in found):
        raise _no_tuples(command)
    return found


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield words without their quotes, and the signs `(`, `)` and `,`; whether it is a sign."""
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


def _no_tuples(command: ShellCommand) -> BadValueError:
    return BadValueError(
        f"{command.name}: expected arguments in parentheses, such as: {command.example}"
    )
