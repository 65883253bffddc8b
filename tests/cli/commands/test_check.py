"""`wavetank check`."""

from pathlib import Path

import pytest

from helpers.command_line import TINY, error_of, wavetank, write_scenario_with_handler


def test_a_valid_scenario_is_described(tiny: Path) -> None:
    result = wavetank("check", tiny)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{tiny} is valid: tiny: 1 broker, 4 partitions, ")


def test_all_problems_are_listed_at_once(tiny: Path) -> None:
    tiny.write_text(TINY.replace("partitions = 4", "partitions = 0"))
    more = ("--set", 'groups[0].delivery="sharde"', "--set", "producers[0].cuont=2")
    lines = error_of(wavetank("check", tiny, *more)).splitlines()
    assert lines[0] == f"wavetank: {tiny}: 3 problems:"
    assert [line.split(":")[0].split(" = ")[0].strip() for line in lines[1:]] == [
        "topics[0].partitions", "producers[0].cuont", "groups[0].delivery"
    ]  # fmt: skip


def test_a_scenario_that_cannot_work_is_valid_with_a_warning(tiny: Path) -> None:
    assert "warning" not in wavetank("check", tiny).output
    result = wavetank("check", tiny, "--set", "groups[0].consumers=5")
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last == (
        "warning: groups[0]: 5 consumers, but only 4 can own a partition: 1 gets nothing"
    )


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_handler_that_cannot_be_imported_is_one_clear_line(tmp_path: Path, command: str) -> None:
    path = write_scenario_with_handler(tmp_path, f"cli_broken_{command}", "return (")
    error = error_of(wavetank(command, path))
    assert error.startswith(f"wavetank: handler = 'cli_broken_{command}:handle': SyntaxError: ")
    assert len(error.splitlines()) == 1
