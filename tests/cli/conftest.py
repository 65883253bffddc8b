"""Fixtures for the tests of the command line."""

from pathlib import Path

import attrs
import pyarrow.compute as pc
import pytest

from helpers.command_line import TINY, RecordedRun, wavetank, write_scenario_with_handler
from wavetank.cli.exit_status import INTERRUPTED
from wavetank.model.events import run_directory


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The file of a scenario of five virtual seconds."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """A recorded run of that scenario; tests only read it."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "tiny.toml").write_text(TINY)
    result = wavetank("run", folder / "tiny.toml", "--out", folder / "run")
    assert result.exit_code == 0, result.output
    return RecordedRun(folder / "run", result.stdout)


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run that was interrupted by Ctrl-C while a handler worked."""
    body = (
        "if not os.environ.get('REPEATED') and any(each.offset == 77 for each in record):\n"
        "        raise KeyboardInterrupt"
    )
    path = write_scenario_with_handler(tmp_path, "cli_interrupted_handler", body)
    result = wavetank("run", path, "--out", tmp_path / "run")
    assert result.exit_code == INTERRUPTED, result.output
    monkeypatch.setenv("REPEATED", "yes")
    return tmp_path / "run"


@pytest.fixture
def killed(interrupted: Path) -> Path:
    """The directory of a run that was killed: without its last events, and without an end."""
    info = run_directory.read_info(interrupted)
    events = run_directory.read_events(interrupted)
    written = events.filter(pc.less(events["time_us"], info.virtual_us)).combine_chunks()
    for path in run_directory.segment_paths(interrupted):
        path.unlink()
    run_directory.write_segment(interrupted, 1, written.to_batches())
    begun = attrs.evolve(
        info, state="running", digest=None, events=0, virtual_us=0, wall_seconds=0.0
    )
    run_directory.write_info(interrupted, begun)
    return interrupted
