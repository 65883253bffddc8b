"""What a sweep has finished is whole or not there, and the same whoever writes it."""

import json

import pytest

from wavetank.model import journal
from wavetank.model.errors import WavetankError

GOOD = {"error": None, "directory": None, "events": 7}


def test_what_is_added_is_there_once_however_often_it_is(tmp_path):
    journal.prepare(tmp_path, {})
    for _ in range(3):
        journal.add(tmp_path, "a", json.dumps(GOOD))
    assert journal.take(tmp_path, ["a", "b"]) == {"a": GOOD}
    assert journal.count(tmp_path) == 1


def test_what_failed_or_is_damaged_is_not_finished_and_is_forgotten(tmp_path):
    journal.prepare(tmp_path, {})
    journal.add(tmp_path, "a", json.dumps(GOOD | {"error": "ValueError: no"}))
    for key, text in (("b", "{"), ("c", "[]"), ("d", "{}")):
        journal.add(tmp_path, key, text)
    assert journal.take(tmp_path, "abcd") == {}
    assert journal.count(tmp_path) == 0


def test_what_has_no_events_is_forgotten_if_they_are_wanted(tmp_path):
    journal.prepare(tmp_path, {})
    rows = {"a": GOOD, "b": GOOD | {"directory": "runs/b"}}
    for key, row in rows.items():
        journal.add(tmp_path, key, json.dumps(row))
    assert journal.take(tmp_path, "ab") == rows
    assert journal.take(tmp_path, "ab", events=True) == {"b": rows["b"]}
    assert journal.noted(tmp_path, "a") is None


def test_drafts_of_who_was_killed_go_and_all_else_stays(tmp_path):
    journal.prepare(tmp_path, {})
    journal.add(tmp_path, "a", "{}")
    draft = journal.draft_of(tmp_path / journal.JOURNAL / "b.json")
    draft.write_text("{")
    run = journal.draft_of(tmp_path / journal.RUNS / "c")
    (run / "events").mkdir(parents=True)
    journal.prepare(tmp_path, {})
    assert not draft.exists()
    assert not run.exists()
    assert journal.count(tmp_path) == 1


def test_a_directory_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(WavetankError, match="something else"):
        journal.prepare(tmp_path, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(WavetankError, match="cannot write"):
        journal.prepare(tmp_path / "file" / "sweep", {})


def test_of_two_who_ran_the_same_the_second_adopts_the_firsts_events(tmp_path):
    place = tmp_path / "run"
    for text in ("first", "second"):
        draft = tmp_path / f"draft-{text}"
        draft.mkdir()
        (draft / "run.json").write_text(text)
        journal.adopt(draft, place)
        assert not draft.exists()
    assert (place / "run.json").read_text() == "first"


def test_a_key_is_of_the_scenario_and_of_its_handlers():
    keys = {journal.key_of("s"), journal.key_of("s", "c"), journal.key_of("t"), journal.key_of("s")}
    assert len(keys) == 3
