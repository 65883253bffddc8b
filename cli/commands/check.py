"""`wavetank check`."""

import click

from ...model.settings import describe_ignored, ignored_settings
from ...scenarios.capacity import warnings
from ...scenarios.files.scenario_file import to_dict
from ...scenarios.runner import load_handler
from ..options import load_scenario, set_option
from ..run_summary import describe_scenario


@click.command(epilog="Example: wavetank check rolling.toml")
@click.argument("file", type=click.Path())
@set_option
def check(file: str, changes: tuple[str, ...]) -> None:
    """Check a scenario file and list all its problems, or warn of what cannot work.

    Exit status: 0 if the scenario can be run, 2 if not.
    """
    scenario = load_scenario(file, changes)
    for group in scenario.groups:
        load_handler(group.handler)
    click.echo(f"{file} is valid: {scenario.name}: {describe_scenario(scenario)}")
    for warning in warnings(scenario):
        click.echo(f"warning: {warning}")
    ignored = ignored_settings(to_dict(scenario))
    if ignored:
        click.echo(f"wavetank: {describe_ignored(ignored)}", err=True)
