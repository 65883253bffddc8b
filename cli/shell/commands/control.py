"""Shell commands for the shell itself: let time pass, get help, exit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....model.durations import Duration, to_us
from ..command_table import COMMANDS, DURATION, command
from ..format import format_table
from ..parser import find_command

if TYPE_CHECKING:
    from ..session import ShellSession

_SLICE_US: Final = 1_000_000
"""Virtual time that passes between two checks for Ctrl-C."""


@command("run SECONDS", "run 2.5", types={"SECONDS": DURATION})
def run(session: ShellSession, duration: Duration) -> str:
    """Let time pass, virtual time in a simulation. Takes seconds or a text such as 250ms or 2h."""
    system = session.cluster.system
    left_us = to_us(duration, "run")
    # A simulation has one thread: an exception for Ctrl-C could interrupt an actor. So the signal
    # only sets a flag, which is checked between slices.
    while session.simulated and left_us > _SLICE_US and not session.interrupted:
        system.run(_SLICE_US / 1e6)
        left_us -= _SLICE_US
    if session.interrupted:
        raise KeyboardInterrupt
    system.run(left_us / 1e6)
    return session.format_time()


@command("help [COMMAND…]", "help create topic")
def help_(session: ShellSession, *words: str) -> str:
    """List the commands, or explain one."""
    if not words:
        rows = [(each.name, each.help.split(". ")[0].rstrip(".")) for each in COMMANDS.values()]
        listed = format_table(("command", "description"), rows)
        return f"{listed}\n\nhelp COMMAND shows its arguments and an example"
    matching = [each for known, each in COMMANDS.items() if known[: len(words)] == words]
    explained = matching or [find_command(list(words))]
    return "\n\n".join(
        f"{each.usage}\n  {each.help}\n  example: {each.example}" for each in explained
    )


@command("exit", "exit")
def exit_(session: ShellSession) -> str:
    """End the shell and its cluster."""
    session.has_ended = True
    return ""


@command("quit", "quit")
def quit_(session: ShellSession) -> str:
    """End the shell and its cluster."""
    return exit_(session)
