"""The store of a sweep: files are complete or absent, whichever task writes them."""

import json

import pytest

from wavetank.model.errors import WavetankError
from wavetank.scenarios.sweep import store

GOOD = {"error": None, "directory": None, "events": 7}


def test_a_run_added_several_times_is_stored_once(tmp_path):
    store.prepare(tmp_path, {})
    for _ in range(3):
        store.add(tmp_path, "a", json.dumps(GOOD))
    assert store.load(tmp_path, ["a", "b"]) == {"a": GOOD}
    assert store.count(tmp_path) == 1


def test_failed_and_damaged_runs_are_not_loaded_and_are_removed(tmp_path):
    store.prepare(tmp_path, {})
    store.add(tmp_path, "a", json.dumps(GOOD | {"error": "ValueError: no"}))
    for key, text in (("b", "{"), ("c", "[]"), ("d", "{}")):
        store.add(tmp_path, key, text)
    assert store.load(tmp_path, "abcd") == {}
    assert store.count(tmp_path) == 0


def test_runs_without_events_are_removed_if_events_are_wanted(tmp_path):
    store.prepare(tmp_path, {})
    rows = {"a": GOOD, "b": GOOD | {"directory": "runs/b"}}
    for key, row in rows.items():
        store.add(tmp_path, key, json.dumps(row))
    assert store.load(tmp_path, "ab") == rows
    assert store.load(tmp_path, "ab", events=True) == {"b": rows["b"]}
    assert store.read(tmp_path, "a") is None


def test_drafts_of_killed_tasks_are_removed_and_finished_runs_kept(tmp_path):
    store.prepare(tmp_path, {})
    store.add(tmp_path, "a", "{}")
    draft = store.draft_of(tmp_path / store.JOURNAL / "b.json")
    draft.write_text("{")
    run = store.draft_of(tmp_path / store.RUNS / "c")
    (run / "events").mkdir(parents=True)
    store.prepare(tmp_path, {})
    assert not draft.exists()
    assert not run.exists()
    assert store.count(tmp_path) == 1


def test_a_directory_with_other_files_is_rejected(tmp_path):
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(WavetankError, match="holds no sweep"):
        store.prepare(tmp_path, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(WavetankError, match="cannot write"):
        store.prepare(tmp_path / "file" / "sweep", {})


def test_of_two_tasks_with_the_same_run_the_events_of_the_first_are_kept(tmp_path):
    place = tmp_path / "run"
    for text in ("first", "second"):
        draft = tmp_path / f"draft-{text}"
        draft.mkdir()
        (draft / "run.json").write_text(text)
        store.publish(draft, place)
        assert not draft.exists()
    assert (place / "run.json").read_text() == "first"


def test_a_key_depends_on_the_scenario_and_on_the_code():
    keys = {store.key_of("s"), store.key_of("s", "c"), store.key_of("t"), store.key_of("s")}
    assert len(keys) == 3
