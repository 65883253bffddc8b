"""`wavetank new`."""

from pathlib import Path

import pytest

from helpers.command_line import TINY, error_of, wavetank


def test_a_new_scenario_can_be_checked_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = wavetank("new", "sale").output
    assert printed == "wrote sale.toml; run it with: wavetank run sale.toml\n"
    assert wavetank("check", "sale.toml").stdout.startswith("sale.toml is valid: sale: ")
    result = wavetank("run", "sale.toml")
    assert result.exit_code == 0, result.output
    assert "skipped" not in result.output


def test_an_existing_file_is_not_overwritten(tiny: Path) -> None:
    assert "already exists" in error_of(wavetank("new", tiny.with_suffix("")))
    assert tiny.read_text() == TINY


def test_the_hint_of_a_new_scenario_can_be_pasted_into_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert wavetank("new", "flash sale").stdout.endswith(": wavetank run 'flash sale.toml'\n")
