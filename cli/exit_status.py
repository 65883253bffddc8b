"""Exit statuses of the commands; 0 is success."""

from typing import Final

FAILURE: Final = 1
"""The command ran, but its result is negative: an objective missed, a run that does not replay."""
BAD_INPUT: Final = 2
"""An argument, a file or a directory is wrong. click uses the same status for usage errors."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells report it: 128 + SIGINT."""
