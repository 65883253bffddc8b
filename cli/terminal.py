"""How commands print: consoles, tables, sparklines and warnings.

Piped output is plain text: without colours, without frames and never cut off.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console
from rich.table import Table

_BARS: Final = "▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH: Final = 16
_PIPED_WIDTH: Final = 1_000
"""Wide enough that rich never cuts off a line of piped output."""


def make_console() -> Console:
    """Return a console for stdout. Brackets and colons in names are printed as they are."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def make_table(*headings: str) -> Table:
    """Return a table without lines: the first column to the left, the others to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def sparkline(series: Sequence[float], width: int = _SPARKLINE_WIDTH) -> str:
    """Draw a series as at most `width` bars, each the largest value of its part of the series."""
    if not series:
        return ""
    width = min(width, len(series))
    parts = [
        max(series[index * len(series) // width : (index + 1) * len(series) // width])
        for index in range(width)
    ]
    top = max(parts)
    if top <= 0:
        return _BARS[0] * width
    return "".join(_BARS[min(len(_BARS) - 1, int(part / top * len(_BARS)))] for part in parts)


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print what Wavetank logs to stderr: one line per text, without a stack trace."""
    logger, handler = logging.getLogger("wavetank"), _PrintOnce()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _PrintOnce(logging.Handler):
    """Prints each text once: a handler of a scenario may fail thousands of times."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._printed:
            self._printed.add(text)
            error = record.exc_info[1] if record.exc_info else None
            cause = f": {type(error).__name__}: {error}" if error else ""
            click.echo(f"wavetank: {text}{cause}", err=True)
