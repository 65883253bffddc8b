"""A scenario file that extends another one."""

from pathlib import Path

import pytest

import wavetank as wt
from wavetank.scenarios.files.scenario_file import load, parse

BASE = """
name = "sale"
duration = "2m"
topics = [{ name = "orders", partitions = 6 }]
objectives = [{ max_lag = "30s" }]
cluster = { brokers = 3, latency = "1ms" }
producers = [{ name = "shop", topic = "orders", arrivals = 300 }]
groups = [{ name = "billing", topics = ["orders"], consumers = 3, service = "5ms" }]
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def problem(path: Path) -> tuple[str, str]:
    with pytest.raises(wt.errors.ScenarioError) as refusal:
        load(path)
    [text] = refusal.value.problems
    return Path(refusal.value.source).name, text


def test_a_scenario_extends_another_with_changes_by_path(tmp_path: Path) -> None:
    write(tmp_path, "sale.toml", BASE)
    path = write(
        tmp_path,
        "big.toml",
        """
        extends = "sale.toml"
        name = "big sale"
        [changes]
        "groups[billing].consumers" = 8
        "groups[0].settings.max.poll.records" = 5
        "producers[0].arrivals" = { kind = "constant", rate = 900 }
        cluster.brokers = 5
        """,
    )
    scenario, base = load(path), load(tmp_path / "sale.toml")
    assert (scenario.name, scenario.groups[0].consumers) == ("big sale", 8)
    assert scenario.groups[0].settings == {"max.poll.records": 5}
    assert scenario.producers[0].arrivals == wt.load.Constant(900)
    assert (scenario.cluster.brokers, scenario.cluster.latency) == (5, base.cluster.latency)
    assert (scenario.duration, scenario.topics) == (base.duration, base.topics)


def test_overrides_apply_to_a_scenario_that_extends_another(tmp_path: Path) -> None:
    write(tmp_path, "sale.toml", BASE)
    path = write(tmp_path, "big.toml", 'extends = "sale.toml"\nobjectives = []\n')
    scenario = load(path, ["groups[0].consumers=9"])
    assert (scenario.groups[0].consumers, scenario.objectives) == (9, ())


def test_paths_are_relative_to_the_file_that_has_them(tmp_path: Path) -> None:
    trace = 'arrivals = { kind = "trace", path = "load.csv" }'
    base = BASE.replace("arrivals = 300", trace).replace('"5ms" }', '"5ms", settings = "a.p" }')
    write(tmp_path, "base/sale.toml", base)
    write(tmp_path, "base/load.csv", "1\n2\n")
    write(tmp_path, "base/a.p", "max.poll.records=100\n")
    write(tmp_path, "more/b.p", "linger.ms=9\n")
    path = write(
        tmp_path,
        "more/big.toml",
        'extends = "../base/sale.toml"\nchanges = { "producers[0].settings" = "b.p" }\n',
    )
    scenario = load(path)
    assert scenario.producers[0].settings == {"linger.ms": "9"}
    assert scenario.groups[0].settings == {"max.poll.records": "100"}
    assert scenario.producers[0].arrivals == wt.load.trace([1, 2])


def test_text_extends_a_file_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path, "sale.toml", BASE)
    assert parse('extends = "sale.toml"\nname = "other"', folder=tmp_path).name == "other"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extends = 5", "extends = 5: expected the path of a scenario file"),
        ('extends = "sale.toml"\nchanges = 5', "changes = 5: expected a table of paths and values"),
        ('changes = { duration = "5m" }', "changes: expected extends as well, a scenario file"),
        ('extends = "big.toml"', 'extends = "big.toml": expected no circle of files'),
        (
            'extends = "sale.toml"\nchanges = { "groups[bill].consumers" = 5 }',
            'changes: groups[bill]: unknown name; did you mean "billing"?',
        ),
        (
            'extends = "sale.toml"\nchanges = { "groups[0].consumers" = -1 }',
            "groups[0].consumers = -1: expected a whole number of 0 or more",
        ),
    ],
)
def test_a_bad_extension_is_reported(tmp_path: Path, text: str, expected: str) -> None:
    write(tmp_path, "sale.toml", BASE)
    assert problem(write(tmp_path, "big.toml", text)) == ("big.toml", expected)


def test_files_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", 'extends = "b.toml"')
    path = write(tmp_path, "b.toml", 'extends = "a.toml"')
    assert problem(path) == ("a.toml", 'extends = "b.toml": expected no circle of files')


def test_a_problem_of_the_extended_file_is_reported_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, "big.toml", 'extends = "none.toml"')
    assert problem(path) == ("none.toml", "there is no such file")
