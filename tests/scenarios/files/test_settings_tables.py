"""Settings of a scenario file: dotted names without quotes, and .properties files."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.model.settings import ignored_settings
from wavetank.scenarios.files.scenario_file import change, load, to_dict
from wavetank.scenarios.files.settings_tables import flat

SCENARIO = """
name = "shop"
duration = "1s"
topics = [{{ name = "orders" }}]
cluster = {{ settings = {cluster} }}
producers = [{{ name = "shop", topic = "orders", arrivals = 10, settings = {producer} }}]
groups = [{{ name = "billing", topics = ["orders"], service = "1ms", settings = {group} }}]
"""
PROPERTIES = """
bootstrap.servers=kafka:9092
sasl.jaas.config=org.example.Login required password="secret";
specific.avro.reader=true
max.poll.records=100
"""


def write(folder: Path, group: str = "{}", producer: str = "{}", cluster: str = "{}") -> Path:
    path = folder / "shop.toml"
    path.write_text(SCENARIO.format(group=group, producer=producer, cluster=cluster))
    return path


def problems(path: Path, changes: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(wt.errors.ScenarioError) as refusal:
        load(path, changes)
    return list(refusal.value.problems)


def test_dotted_names_need_no_quotes_in_toml(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        group="{ max.poll.records = 5, max.poll.interval.ms = 60000, heartbeat_interval_ms = 7 }",
        producer="{ linger.ms = 9 }",
        cluster="{ broker.session.timeout.ms = 7000 }",
    )
    scenario = load(path)
    assert scenario.groups[0].settings == {
        "max.poll.records": 5,
        "max.poll.interval.ms": 60000,
        "heartbeat_interval_ms": 7,
    }
    assert scenario.producers[0].settings == {"linger.ms": 9}
    assert scenario.cluster.settings == {"broker.session.timeout.ms": 7000}


def test_a_name_that_is_given_with_and_without_quotes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, group='{ max.poll.records = 5, "max.poll.records" = 6 }')
    twice = "groups[0].settings: max.poll.records = 6: expected once, but it is given twice"
    assert problems(path) == [twice]


def test_an_unquoted_name_is_reported_with_its_value(tmp_path: Path) -> None:
    path = write(tmp_path, group='{ max.poll.records = "x", max.poll.recods = 5, max.block = {} }')
    assert problems(path) == [
        "groups[0].settings.max.block: expected a string, a number, true or false",
        'groups[0].settings.max.poll.records = "x": expected a whole number from 1 to 2147483647',
        'groups[0].settings.max.poll.recods = 5: unknown consumer setting; did you mean '
        '"max.poll.records"?',
    ]  # fmt: skip


def test_settings_are_read_from_a_properties_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "consumer.properties").write_text(PROPERTIES)
    scenario = load(write(tmp_path, group='"kafka/consumer.properties"'))
    assert scenario.groups[0].settings["max.poll.records"] == "100"


def test_a_stored_scenario_names_ignored_settings_but_has_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "consumer.properties").write_text(PROPERTIES)
    stored = to_dict(load(write(tmp_path, group='"consumer.properties"')))
    assert stored["groups"][0]["settings"] == {
        "bootstrap.servers": "(not read)",
        "sasl.jaas.config": "(not read)",
        "specific.avro.reader": "(not read)",
        "max.poll.records": "100",
    }


@pytest.mark.parametrize(
    ("changes", "ignored"),
    [
        ((), ()),
        (('engine="live"', 'cluster.storage="disk"'), ()),
        (('cluster.storage="memory"',), ("log.segment.bytes", "log.roll.ms")),
        (('engine="live"',), ("log.segment.bytes", "log.roll.ms")),
    ],
)
def test_settings_of_a_file_for_disks_are_without_effect_in_memory(
    tmp_path: Path, changes: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    (tmp_path / "server.properties").write_text("log.segment.bytes=1073741824\nlog.roll.ms=5\n")
    scenario = load(write(tmp_path, cluster='"server.properties"'), changes)
    assert ignored_settings(to_dict(scenario)) == ignored
    assert scenario.cluster.settings.get("log.roll.ms") == ("(not read)" if ignored else "5")


def test_a_setting_for_disks_in_a_table_that_extends_a_file_is_refused_in_memory(
    tmp_path: Path,
) -> None:
    (tmp_path / "server.properties").write_text("log.roll.ms=5\n")
    path = write(tmp_path, cluster='{ extends = "server.properties", log.roll.ms = 7 }')
    why = 'cluster.settings.log.roll.ms: expected storage = "disk": nothing is on a disk'
    assert problems(path, ('cluster.storage="memory"',)) == [why]


def test_a_table_changes_some_settings_of_the_file_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("max.poll.records=100\nfetch.min.bytes=7\n")
    path = write(tmp_path, group='{ extends = "a.properties", max_poll_records = 5 }')
    assert load(path).groups[0].settings == {"fetch.min.bytes": "7", "max_poll_records": 5}


def test_a_conflict_in_a_file_can_be_solved_by_the_table_that_extends_it(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("session.timeout.ms=2000\n")
    solved = write(tmp_path, group='{ extends = "a.properties", heartbeat.interval.ms = 500 }')
    assert load(solved).groups[0].settings["heartbeat.interval.ms"] == 500
    [problem] = problems(write(tmp_path, group='"a.properties"'))
    assert problem == (
        'groups[0].settings.session.timeout.ms = "2000": heartbeat_interval_ms = 3000: expected '
        "less than session_timeout_ms = 2000"
    )


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ('"none.properties"', 'settings = "none.properties": there is no such file'),
        ('""', 'settings = "": expected the path of a .properties file'),
        ("{ extends = 5 }", "settings.extends = 5: expected the path of a .properties file"),
        ('"."', 'settings = ".": cannot read it: Is a directory'),
        (
            '{ extends = "bad.properties" }',
            "settings.extends = \"bad.properties\": max.poll.records = 'many': expected a whole "
            "number from 1 to 2147483647",
        ),
    ],
)
def test_a_bad_properties_file_is_reported_by_its_place(
    tmp_path: Path, group: str, problem: str
) -> None:
    (tmp_path / "bad.properties").write_text("max.poll.records=many\n")
    assert problems(write(tmp_path, group=group)) == [f"groups[0].{problem}"]


@pytest.mark.parametrize("name", ["max.poll.records", "max_poll_records"])
@pytest.mark.parametrize(
    "group",
    ['"a.properties"', "{ max.poll.records = 9 }", "{ max_poll_records = 9 }", "{}"],
)
def test_an_override_replaces_a_setting_in_any_spelling(
    tmp_path: Path, group: str, name: str
) -> None:
    (tmp_path / "a.properties").write_text("max.poll.records=100\n")
    scenario = load(write(tmp_path, group=group), [f"groups[0].settings.{name}=5"])
    assert scenario.groups[0].settings == {name: 5}


def test_an_override_can_name_another_file(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("max.poll.records=100\n")
    scenario = load(write(tmp_path), ["groups[0].settings=a.properties"])
    assert scenario.groups[0].settings == {"max.poll.records": "100"}


def test_overriding_leaves_the_original_data_alone() -> None:
    data: dict[str, Any] = {"cluster": {"settings": {"broker": {"session": {"timeout": {}}}}}}
    before = repr(data)
    change(data, ["cluster.settings.log_roll_ms=5"])
    assert repr(data) == before


NAMES = st.text("abc", min_size=1, max_size=2)
TABLES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(NAMES, st.integers(0, 9), min_size=1, max_size=3),
    lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3),
    max_leaves=6,
)


def dotted(value: Any) -> set[tuple[str, Any]]:
    """A brute-force version: the path of each value, joined."""
    if not isinstance(value, dict):
        return {("", value)}
    return {
        (f"{key}.{path}".rstrip("."), one)
        for key, inner in value.items()
        for path, one in dotted(inner)
    }


@given(TABLES)
def test_nested_tables_become_dotted_names(table: dict[str, Any]) -> None:
    assert set(flat(table).items()) == dotted(table)
