"""`wavetank shell`."""

import sys
from pathlib import Path
from typing import Literal

import click

from ...model.errors import BadValueError


@click.command(epilog="Example: wavetank shell < commands.txt")
@click.argument("file", type=click.Path(), required=False)
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of brokers; at least those of the data directory.",
)
@click.option("--simulated", is_flag=True, help="Run in virtual time, not on threads.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@click.option(
    "--storage",
    type=click.Choice(("memory", "disk")),
    help="Where records are kept. Default: disk, or memory in a live cluster without --data-dir.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the files of a live cluster, which goes on where the last one ended.",
)
def shell(
    file: str | None,
    brokers: int,
    simulated: bool,
    seed: int,
    storage: Literal["memory", "disk"] | None,
    data_dir: Path | None,
) -> None:
    """Control a cluster by typing commands.

    Starts a cluster in this process and reads commands from FILE, from a pipe or from a prompt:
    create topics and groups, produce, consume, crash nodes. The command help lists all of them.

    Exit status: 0 on success, 1 if a command of a script fails, 2 for bad input.
    """
    from ..shell.shell import run_shell  # loads prompt_toolkit

    if simulated and data_dir is not None:
        raise BadValueError(f"--data-dir {data_dir}: expected a live cluster, not --simulated")
    if storage == "disk" and not simulated and data_dir is None:
        raise BadValueError("--storage disk: expected --simulated, or --data-dir DIR instead")
    if storage == "memory" and data_dir is not None:
        raise BadValueError(f"--data-dir {data_dir}: expected no --storage memory")
    sys.exit(run_shell(file, brokers, simulated, seed, storage, data_dir))
