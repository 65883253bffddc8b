"""The page that `make bench-report` writes, from figures that were made up."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture(scope="module")
def results() -> Any:
    spec = importlib.util.spec_from_file_location("bench_results", BENCH / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figure(name: str, ours: float, theirs: float, **more: Any) -> dict[str, Any]:
    plain = {"name": name, "ours": ours, "peer": "SimPy", "theirs": theirs, "unit": "messages/s",
             "target": None, "absolute": False, "ratio": ours / theirs, "met": True}  # fmt: skip
    return plain | more


FIGURES = [
    figure("messages", 3_000_000.0, 1_000_000.0, target=1.5),
    figure("at least", 250.0, 1_000.0, target=300, absolute=True, met=False),
    figure("good to know", 0.123, 1.0),
]


def test_a_page_has_every_figure_with_its_peer_ratio_target_and_verdict(results, tmp_path):
    path = tmp_path / "results.json"
    results.put("engines", "How fast?\n\nWhat is compared,\nand what favours whom.", FIGURES, path)
    page = results.report(results.read(path))
    assert "1 of 2 targets are met." in page
    assert "## engines: How fast?\n\nWhat is compared,\nand what favours whom.\n" in page
    rows = [line for line in page.splitlines() if "SimPy |" in line]
    assert rows == [
        "| messages | 3,000,000 | SimPy | 1,000,000 | messages/s | 3.00 | ≥ 1.5× | met |",
        "| at least | 250 | SimPy | 1,000 | messages/s | 0.25 | ≥ 300 messages/s | **missed** |",
        "| good to know | 0.123 | SimPy | 1 | messages/s | 0.12 |  |  |",
    ]


def test_a_page_says_when_on_what_and_with_which_versions_and_nothing_of_paths(results, tmp_path):
    path = tmp_path / "results.json"
    results.put("engines", "How fast?", FIGURES, path)
    [entry] = results.read(path).values()
    page = results.report(results.read(path))
    for text in (entry["date"], *entry["machine"].values()):
        assert f"| {text} |" in page
    assert f"Python {sys.version.split()[0]}" in page
    assert "pyspark 4" in page
    assert "| measured | all |" in page
    for place in (str(tmp_path), str(Path.home()), str(BENCH.parent)):
        assert place not in page


def test_what_is_measured_again_replaces_only_itself(results, tmp_path):
    path = tmp_path / "results.json"
    results.put("engines", "How fast?", FIGURES, path)
    results.put("sweeps", "How dear?", FIGURES[:1], path)
    before = results.read(path)
    before["engines"]["machine"]["cores"] = "512"
    path.write_text(json.dumps(before))
    results.put("sweeps", "How dear?", FIGURES[1:2], path)
    after = results.read(path)
    assert list(after) == ["engines", "sweeps"]
    assert after["engines"] == before["engines"]
    assert after["sweeps"]["figures"] == FIGURES[1:2]
    page = results.report(after)
    assert "| measured | engines |" in page
    assert "| measured | sweeps |" in page


def test_some_questions_can_be_chosen_and_others_are_named(results):
    names = ["engines", "sweeps", "planning"]
    assert results.chosen(names, "") == names
    assert results.chosen(names, "planning, engines") == ["engines", "planning"]
    with pytest.raises(SystemExit, match=r"ONLY = sweep: expected some of engines, sweeps"):
        results.chosen(names, "sweep")


def test_without_figures_there_is_nothing_to_report(tmp_path):
    copy = tmp_path / "results.py"
    copy.write_text((BENCH / "results.py").read_text())
    done = subprocess.run([sys.executable, copy], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "there is nothing to report: run make bench first\n"
