"""Tab completion in the shell: commands, options and existing names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from .command_table import COMMANDS, FLAG, ArgumentType, ShellCommand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from .session import ShellSession


class ShellCompleter(Completer):
    """Completes the word at the cursor."""

    def __init__(self, session: ShellSession) -> None:
        self._session = session

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield the words that the word at the cursor may become."""
        *before, prefix = re.split(r"\s+", document.text_before_cursor.lstrip())
        for word in sorted(self._candidates(tuple(before), prefix)):
            if word.startswith(prefix):
                yield Completion(word, start_position=-len(prefix))

    def _candidates(self, before: tuple[str, ...], prefix: str) -> set[str]:
        if before[:1] == ("help",):
            return _next_words(before[1:])
        return _next_words(before) | self._after_command(before, prefix)

    def _after_command(self, words: tuple[str, ...], prefix: str) -> set[str]:
        for length in range(len(words), 0, -1):
            command = COMMANDS.get(words[:length])
            if command is not None and command.tuple_types:
                return self._tuple_parts(command, " ".join([*words[length:], prefix]), prefix)
            if command is not None:
                return self._arguments(command, words[length:], prefix)
        return set()

    def _arguments(self, command: ShellCommand, words: tuple[str, ...], prefix: str) -> set[str]:
        name, equals, _ = prefix.partition("=")
        if equals and name in command.options:
            return self._option_values(command.options[name], prefix)
        arguments = command.arguments
        required = sum(argument.required for argument in arguments)
        used = {word.partition("=")[0] for word in words[required:]} & set(command.options)
        given = [word for word in words if word.partition("=")[0] not in used]
        candidates: set[str] = set()
        if len(given) < len(arguments) or (arguments and arguments[-1].many):
            argument = arguments[min(len(given), len(arguments) - 1)]
            named_before = given[len(arguments) - 1 :] if argument.many else []
            candidates |= self._values(argument.type) - set(named_before)
        if len(given) >= required:
            for option, type in command.options.items():
                if option not in used:
                    candidates.add(option if type is FLAG else f"{option}=")
        return candidates

    def _tuple_parts(self, command: ShellCommand, text: str, prefix: str) -> set[str]:
        """Return the values of the part of a tuple at the cursor, after its parenthesis if any."""
        _, parenthesis, inside = text.rpartition("(")
        number = inside.count(",")
        if not parenthesis or ")" in inside or number >= len(command.tuple_types):
            return set()
        begun = prefix[: max(prefix.rfind("("), prefix.rfind(",")) + 1]
        return {f"{begun}{word}" for word in self._values(command.tuple_types[number])}

    def _option_values(self, type: ArgumentType, prefix: str) -> set[str]:
        """Return the option with each possible value; in a list, after the last comma."""
        name, _, value = prefix.partition("=")
        complete = value[: value.rfind(",") + 1]
        return {f"{name}={complete}{word}" for word in self._values(type)}

    def _values(self, type: ArgumentType) -> set[str]:
        return {*type.choices, *self._session.names(type.names)}


def _next_words(words: tuple[str, ...]) -> set[str]:
    """Return the words that continue the beginning of a command."""
    return {
        each[len(words)]
        for each in COMMANDS
        if len(each) > len(words) and each[: len(words)] == words
    }
