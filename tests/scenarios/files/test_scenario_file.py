"""Scenario files: reading, error texts, round trips, and overrides."""

import copy
import json
import pickle
import re
import tomllib
from contextlib import suppress
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wavetank as wt
from helpers.scenarios import scenarios, small
from wavetank.scenarios.files.scenario_file import change, from_dict, load, parse, to_dict

TEXT = """
name = "rolling restart"
duration = "5m"

[cluster]
brokers = 3
latency = "1ms"

[[topics]]
name = "orders"
partitions = 6

[[producers]]
name = "shop"
topic = "orders"
arrivals = 100
keys = 50
sizes = 200

[[groups]]
name = "billing"
topics = ["orders"]
consumers = 3
service = "2ms"
settings = { "session.timeout.ms" = 10_000 }

[[timeline]]
at = "1m"
do = "crash"
target = "billing-*"
stagger = "10s"
for = "5s"

[[timeline]]
at = 120
do = "cut"
between = ["broker-0", "broker-1"]

[[objectives]]
max_lag = "30s"
"""


def data() -> dict[str, Any]:
    return tomllib.loads(TEXT)


def test_a_file_is_read_into_the_classes_that_programs_use(tmp_path: Path) -> None:
    (tmp_path / "rolling.toml").write_text(TEXT)
    assert wt.load_scenario(tmp_path / "rolling.toml") == wt.Scenario(
        "rolling restart",
        "5m",
        cluster=wt.ClusterPlan(3, wt.network.ConstantLatency("1ms")),
        topics=[wt.TopicPlan("orders", 6)],
        producers=[
            wt.ProducerPlan(
                "shop",
                "orders",
                wt.load.Poisson(100),
                keys=wt.load.UniformKeys(50),
                sizes=wt.load.FixedSize(200),
            )
        ],
        groups=[
            wt.GroupPlan(
                "billing",
                ["orders"],
                consumers=3,
                service=wt.load.ConstantService("2ms"),
                settings={"session.timeout.ms": 10_000},
            )
        ],
        timeline=[
            wt.actions.Crash("1m", "billing-*", stagger="10s", for_="5s"),
            wt.actions.Cut(120, between=["broker-0", "broker-1"]),
        ],
        objectives=[wt.Objective(max_lag="30s")],
    )


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ("2.5", wt.load.Poisson(2.5)),
        ("{kind = 'constant', rate = 5}", wt.load.Constant(5)),
        ("{kind = 'poisson', rate = 5}", wt.load.Poisson(5)),
        (
            "{kind = 'bursts', rate = 1, burst_rate = 9, every = '1m', length = '5s'}",
            wt.load.Bursts(1, 9, "1m", "5s"),
        ),
        ("{kind = 'daily', low = 1, peak = 9, peak_at = '9h'}", wt.load.Daily(1, 9, "9h")),
    ],
)
def test_arrivals_are_a_rate_or_a_table_with_a_kind(arrivals: str, expected: object) -> None:
    read = parse(TEXT.replace("arrivals = 100", f"arrivals = {arrivals}"))
    assert read.producers[0].arrivals == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("7", wt.load.UniformKeys(7)),
        ("{kind = 'none'}", wt.load.NoKeys()),
        ("{kind = 'one', key = 3}", wt.load.OneKey(3)),
        ("{kind = 'uniform', n = 7}", wt.load.UniformKeys(7)),
        ("{kind = 'zipf', n = 7, exponent = 1.5}", wt.load.ZipfKeys(7, 1.5)),
    ],
)
def test_keys_are_a_number_of_keys_or_a_table_with_a_kind(keys: str, expected: object) -> None:
    assert parse(TEXT.replace("keys = 50", f"keys = {keys}")).producers[0].keys == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("{kind = 'fixed', bytes = 5}", wt.load.FixedSize(5)),
        ("{kind = 'lognormal', median = 5, sigma = 1, max = 9}", wt.load.LognormalSizes(5, 1, 9)),
    ],
)
def test_sizes_are_bytes_or_a_table_with_a_kind(sizes: str, expected: object) -> None:
    assert parse(TEXT.replace("sizes = 200", f"sizes = {sizes}")).producers[0].sizes == expected


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("0.25", wt.load.ConstantService(0.25)),
        ("{kind = 'constant', per_record = 1, per_batch = 2}", wt.load.ConstantService(1, 2)),
        ("{kind = 'exponential', per_record = '1ms'}", wt.load.ExponentialService("1ms")),
        ("{kind = 'lognormal', per_record = 1, sigma = 2}", wt.load.LognormalService(1, sigma=2)),
    ],
)
def test_a_service_is_a_time_per_record_or_a_table_with_a_kind(
    service: str, expected: object
) -> None:
    read = parse(TEXT.replace('service = "2ms"', f"service = {service}"))
    assert read.groups[0].service == expected


@pytest.mark.parametrize(
    ("latency", "expected"),
    [
        ("{kind = 'constant', delay = 1}", wt.network.ConstantLatency(1)),
        ("{kind = 'uniform', low = 1, high = '2s'}", wt.network.UniformLatency(1, "2s")),
        ("{kind = 'lognormal', median = 1, sigma = 2}", wt.network.LognormalLatency(1, 2)),
    ],
)
def test_latency_is_a_time_or_a_table_with_a_kind(latency: str, expected: object) -> None:
    read = parse(TEXT.replace('latency = "1ms"', f"latency = {latency}"))
    assert read.cluster.latency == expected


def test_a_trace_is_read_from_the_scenarios_folder_and_stored_with_the_scenario(
    tmp_path: Path,
) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(TEXT.replace("100", '{kind = "trace", path = "load.csv", factor = 2}'))
    (tmp_path / "load.csv").write_text("0.5,3\n1.25\n")
    scenario = load(path)
    assert scenario.producers[0].arrivals == wt.load.trace([(0.5, 3), (1.25, 1)]).scaled(2)
    kept = json.dumps(to_dict(scenario))
    (tmp_path / "load.csv").unlink()
    assert from_dict(json.loads(kept)) == scenario


@given(scenarios())
def test_a_scenario_survives_the_round_trip_through_plain_data(scenario: wt.Scenario) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(scenario), allow_nan=False))) == scenario


def test_a_users_own_model_cannot_be_converted_to_plain_data() -> None:
    class Mine(wt.load.Poisson):
        """A model without a kind in files."""

    producer = wt.ProducerPlan("shop", "orders", Mine(5))
    with pytest.raises(
        wt.errors.BadValueError, match=r"arrivals = .*: expected one of constant, poisson"
    ):
        to_dict(small(producers=[producer]))


# Problems


def complaints(text: str) -> tuple[str, ...]:
    with pytest.raises(wt.errors.ScenarioError) as caught:
        parse(text)
    return caught.value.problems


SECONDS = "expected seconds"
LIST = "expected a list of names, at least one"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"5m"', '"5 parsecs"', f'duration = "5 parsecs": {SECONDS}'),
        ('"5m"', "true", f"duration = true: {SECONDS}"),
        ('"5m"', "1e308", "duration = 1e+308: expected less than a hundred thousand years"),
        ('"5m"', "2020-01-01", f"duration = 2020-01-01: {SECONDS}"),
        ("duration =", "durtion =", 'durtion: unknown key; did you mean "duration"?'),
        ('name = "rolling restart"', "", "name is missing"),
        ('name = "rolling restart"', "name = 5", "name = 5: expected a non-empty string"),
        ("[cluster]", "[[cluster]]", "cluster = [{…}]: expected a table"),
        ("[[objectives]]", "[objectives]", "objectives: expected a list of tables"),
        ("partitions = 6", 'partitions = "six"', '"six": expected a whole number of 1 or more'),
        ("partitions = 6", "partitions = true", "= true: expected a whole number of 1 or more"),
        ("partitions = 6", "partitions = 6.0", "= 6.0: expected a whole number of 1 or more"),
        ("partitions = 6", "partitions = 0", "partitions = 0: expected a whole number of 1"),
        ("partitions = 6", "partitons = 6", 'topics[0].partitons: unknown key; did you mean "par'),
        ("partitions = 6", "cleanup = 'x'", 'topics[0].cleanup = "x": unknown cleanup; there is'),
        ("partitions = 6", f"partitions = 0x{'f' * 5_000}", "of at most 64 bits"),
        ("[cluster]", f"seed = {10**20}\n[cluster]", f"seed = {10**20}: expected a whole number"),
        (
            "partitions = 6",
            "cleanup = 'compact'\nretention_bytes = 5",
            "topics[0].retention_bytes = 5: expected ",
        ),
        ('topic = "orders"', "", "producers[0]: topic is missing"),
        (
            'topic = "orders"',
            'topic = "ordres"',
            'topic = "ordres": unknown topic; did you mean "o',
        ),
        ("= 100", "= {rate = 5}", "arrivals: kind is missing: expected one of constant, poisson"),
        (
            "= 100",
            "= {kind = 'possion', rate = 5}",
            'producers[0].arrivals.kind = "possion": unknown kind; did you mean "poisson"?',
        ),
        ("= 100", "= {kind = 5}", 'producers[0].arrivals.kind = 5: unknown kind; there is "bur'),
        ("= 100", "= {kind = ['poisson']}", 'arrivals.kind = ["poisson"]: unknown kind'),
        ("= 100", "= {kind = 'poisson'}", "producers[0].arrivals: rate is missing"),
        ("= 100", "= {kind = 'poisson', rate = -5}", "arrivals.rate = -5: expected records per"),
        ("= 100", "= {kind = 'poisson', rte = 5}", 'arrivals.rte: unknown key; did you mean "rate'),
        ("= 100", "= -5", "producers[0].arrivals = -5: expected records per second"),
        ("= 100", "= 'fast'", '"fast": expected records per second, or a table with a kind'),
        ("= 100", "= [5]", "arrivals = [5]: expected records per second, or a table with a kind"),
        ("= 100", "= {kind = 'trace'}", "arrivals: expected a path, or times_us and totals"),
        ("= 100", "= {kind = 'trace', path = 'x.csv'}", '.path = "x.csv": there is no such file'),
        (
            "= 100",
            "= {kind = 'trace', times_us = [5, 3], totals = [0, 1, 2]}",
            "arrivals.times_us = [5, 3]: expected whole numbers of 0 or more, in ascending",
        ),
        (
            "= 100",
            "= {kind = 'bursts', rate = 1, burst_rate = 2, every = 'x', length = 1}",
            f'producers[0].arrivals.every = "x": {SECONDS}',
        ),
        (
            "= 100",
            "= {kind = 'bursts', rate = 1, burst_rate = 2, every = '1s', length = '2s'}",
            'arrivals.length = "2s": expected at most every = "1s"',
        ),
        ("keys = 50", "keys = 0", "producers[0].keys = 0: expected a whole number"),
        (
            "keys = 50",
            "keys = {kind = 'one', key = 'x'}",
            'keys.key = "x": expected a whole number',
        ),
        (
            "keys = 50",
            "partition = 3",
            "producers[0].partition = 3: expected a partition if, and only",
        ),
        ("keys = 50", "partitioner = 'manual'", "producers[0].partition: expected a partition if"),
        ("sizes = 200", "sizes = 1.5", "producers[0].sizes = 1.5: expected a whole number"),
        ("sizes = 200", "resolution = 0", "producers[0].resolution = 0: expected more than zero"),
        ("= 200", "= 2\nsettings = 3", "producers[0].settings = 3: expected a table of settings"),
        ('"1ms"', '"-1ms"', 'cluster.latency = "-1ms": expected zero or more'),
        (
            '"1ms"',
            "{kind = 'uniform', low = '2s', high = '1s'}",
            'cluster.latency.low = "2s": expected at most high = "1s"',
        ),
        ('topics = ["orders"]', 'topics = "orders"', f'groups[0].topics = "orders": {LIST}'),
        ('topics = ["orders"]', "topics = []", f"groups[0].topics = []: {LIST}"),
        ('topics = ["orders"]', "topics = [['a']]", f"groups[0].topics = [[…]]: {LIST}"),
        ('["orders"]', '["orders", "x"]', 'groups[0].topics[1] = "x": unknown topic; there is "or'),
        (
            "consumers = 3",
            'assignor = "rnage"',
            'groups[0].assignor = "rnage": unknown assignor; did you mean "range"?',
        ),
        ('service = "2ms"', "", "groups[0]: expected a service (processing time), a handler"),
        ('"2ms"', '"2 parsecs"', f'groups[0].service = "2 parsecs": {SECONDS}'),
        ('"2ms"', "{kind = 'constant', per_record = -1}", "service.per_record = -1: expected zero"),
        ('"session.timeout.ms"', "acks_", "settings.acks_ = 10000: unknown consumer setting"),
        ("10_000", "'x'", 'groups[0].settings.session.timeout.ms = "x": expected a whole number f'),
        (
            "10_000",
            "{}",
            "groups[0].settings.session.timeout.ms: expected a string, a number",
        ),
        (
            "10_000",
            "1_000",
            "session.timeout.ms = 1000: heartbeat_interval_ms = 3000: expected less than",
        ),
        (
            '"session.',
            '"sesion.',
            "settings.sesion.timeout.ms = 10000: unknown consumer setting; d",
        ),
        ('do = "crash"', 'do = "crsh"', 'timeline[0].do = "crsh": unknown action; did you mean "c'),
        ('do = "crash"', "", "timeline[0]: do is missing: expected one of crash, restart, stop"),
        ('do = "crash"', 'do = "heal"', "timeline[0]: between is missing"),
        ("for =", "for_ =", 'timeline[0].for_: unknown key; did you mean "for"?'),
        ('for = "5s"', 'for = "x"', f'timeline[0].for = "x": {SECONDS}'),
        ('"billing-*"', '"biling"', 'target = "biling": unknown node; did you mean "billing-2"?'),
        ("at = 120", "at = 301", 'timeline[1].at = 301: expected no later than "5m"'),
        (', "broker-1"', "", 'timeline[1].between = ["broker-0"]: expected a list of two names'),
        ('"broker-1"', '"x"', 'timeline[1].between[1] = "x": unknown node; there is "billing-0"'),
        ('max_lag = "30s"', "", "objectives[0]: expected at least one limit, such as max_lag"),
        ('max_lag = "30s"', "max_lag = []", f"objectives[0].max_lag = []: {SECONDS}"),
        ('max_lag = "30s"', "max_lag = 1\ngroup = 'x'", 'objectives[0].group = "x": unknown group'),
    ],
)
def test_a_problem_is_reported_with_its_path_and_value(old: str, new: str, problem: str) -> None:
    assert old in TEXT
    found = complaints(TEXT.replace(old, new, 1))
    assert any(problem in text for text in found), found


def test_all_problems_are_reported_at_once() -> None:
    wrong = data()
    wrong["duration"] = "5 parsecs"
    wrong["topics"].append({"name": "", "partitons": 3})
    wrong["groups"][0] |= {"assignor": "rnage", "consumers": -1}
    wrong["groups"][0]["settings"] = {"session_timeout_ms": 0, "max.poll.record": 3}
    wrong["timeline"] = [{"do": "cut"}, {"do": "crash", "at": 5, "target": 5}]
    with pytest.raises(wt.errors.ScenarioError) as caught:
        from_dict(wrong)
    first, *rest = caught.value.problems
    assert first.startswith(f'duration = "5 parsecs": {SECONDS}')
    assert rest == [
        'topics[1].name = "": expected a non-empty string',
        'topics[1].partitons: unknown key; did you mean "partitions"?',
        "groups[0].consumers = -1: expected a whole number of 0 or more",
        'groups[0].assignor = "rnage": unknown assignor; did you mean "range"?',
        "groups[0].settings.session_timeout_ms = 0: expected a whole number from 1 to 2147483647",
        "groups[0].settings.max.poll.record = 3: unknown consumer setting; "
        'did you mean "max.poll.records"?',
        "timeline[0]: at is missing",
        "timeline[0]: between is missing",
        "timeline[1].target = 5: expected a non-empty string",
    ]
    assert str(caught.value).startswith("scenario: 10 problems:\n  duration = ")


def test_conflicts_between_parts_are_reported_once_the_parts_are_valid() -> None:
    wrong = TEXT.replace('topic = "orders"', 'topic = "x"').replace('"billing-*"', '"broker-9"')
    assert [text.split(":")[0] for text in complaints(wrong)] == [
        'producers[0].topic = "x"',
        'timeline[0].target = "broker-9"',
    ]
    assert complaints(wrong.replace('"5m"', "-1")) == ("duration = -1: expected zero or more",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name = "a"\nduration 5\n', "line 2, column 10: Expected '=' after a key"),
        ('name = "a"\nwhen = [1,', "line 2, column 11: "),
        ("a = 1\na = 2\n", "line 2, column 6: Cannot overwrite a value"),
        (f"a = {'9' * 5_000}", "number too long, or tables nested too deeply"),
        ("a = " + "[" * 100_000, "number too long, or tables nested too deeply"),
    ],
)
def test_invalid_toml_is_rejected_with_its_position(text: str, problem: str) -> None:
    (found,) = complaints(text)
    assert found.startswith(problem)


def test_an_unreadable_file_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    (tmp_path / "bad.toml").write_text("name =")
    for name, problem in {
        "none.toml": "there is no such file",
        "": "this is a folder, not a file",
        "latin.toml": "expected text in UTF-8, as TOML requires",
        "bad.toml": "line 1, column 7: Invalid value",
        "a\0b": "cannot read it: embedded null byte",
    }.items():
        path = tmp_path / name
        with pytest.raises(wt.errors.ScenarioError) as caught:
            load(path)
        assert str(caught.value) == f"{path}: {problem}"


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_bytes(TEXT.replace("\n", "\r\n").encode("utf-8-sig"))
    assert load(tmp_path / "windows.toml") == parse(TEXT)


@pytest.mark.parametrize("rows", ["x,y", "-1,5", "1e300,1", "1,1e300", "\0", "a" * 200_000])
def test_an_unreadable_trace_is_a_problem_of_its_producer(tmp_path: Path, rows: str) -> None:
    (tmp_path / "load.csv").write_text(rows)
    text = TEXT.replace("100", '{kind = "trace", path = "load.csv"}')
    with pytest.raises(wt.errors.ScenarioError) as caught:
        parse(text, folder=tmp_path)
    (problem,) = caught.value.problems
    assert problem.startswith('producers[0].arrivals.path = "load.csv": ')


@pytest.mark.parametrize(("part", "key"), [("producers", "arrivals"), ("producers", "keys")])
def test_none_instead_of_a_model_is_rejected(part: str, key: str) -> None:
    wrong = data()
    wrong[part][0][key] = None
    (problem,) = problems_of(wrong)
    assert problem.startswith(f"{part}[0].{key} = null: expected ")
    assert problem.endswith(", or a table with a kind")


@pytest.mark.parametrize("value", [None, 5, "text", [], [{}]])
def test_a_scenario_must_be_a_table(value: object) -> None:
    with pytest.raises(wt.errors.ScenarioError, match="expected a table"):
        from_dict(value)


def test_a_scenario_error_can_be_pickled() -> None:
    error = wt.errors.ScenarioError(["a: wrong", "b: wrong"], "file.toml")
    again = pickle.loads(pickle.dumps(error))
    assert (again.problems, again.source) == (("a: wrong", "b: wrong"), "file.toml")
    assert str(again) == "file.toml: 2 problems:\n  a: wrong\n  b: wrong"


# Fuzzing

JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 10_000, 2**31, 2**63, -(2**63) - 1, 16**5_000),
    *(0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), date(2020, 1, 1)),
    *("", "x", "5 parsecs", "-3s", "3s", "9" * 400 + "s", "a:b", "*", "[", "\0", "\"'", "é"),
    *("broker-0", "range", "shared", "live", "constant", "lognormal", "trace", "none", "cut"),
    *([], {}, [[]], [{}], [1, "x"], {"kind": "zipf"}, {"do": "heal"}, {"rate": 5}, {"": 3}),
)
KEYS = ("", "x", "kind", "for", "do", "path", "settings", "name", "times_us", "acks", "a.b")


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Every value in plain data, as its container and its key or index."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    found = [(value, key) for key, _ in pairs]
    for _, inner in pairs:
        if isinstance(inner, dict | list):
            found += spots(inner)
    return found


def mutate(plain: dict[str, Any], random: Random) -> None:
    """Change plain data at one random place."""
    place, key = random.choice(spots(plain))
    junk = copy.deepcopy(random.choice(JUNK))
    how = random.choice(["replace", "replace", "remove", "wrap", "copy", "add", "rename"])
    if how == "replace":
        place[key] = junk
    elif how == "remove":
        del place[key]
    elif how == "wrap":
        place[key] = random.choice([[place[key]], {"kind": place[key]}, {random.choice(KEYS): 1}])
    elif how == "copy":
        other, there = random.choice(spots(plain))
        other[there] = copy.deepcopy(place[key])
    elif isinstance(place, list):
        place.insert(key, junk)
    elif how == "rename":
        place[random.choice([*KEYS, key[1:], key + "s"])] = place.pop(key)
    else:
        place[random.choice(KEYS)] = junk


def problems_of(plain: dict[str, Any]) -> tuple[str, ...]:
    """The problems of plain data; valid data must survive the round trip."""
    try:
        scenario = from_dict(plain)
    except wt.errors.ScenarioError as error:
        return error.problems or ("",)
    assert from_dict(to_dict(scenario)) == scenario
    return ()


@settings(max_examples=40)
@given(scenarios(), st.integers(0, 2**32))
def test_mutated_data_is_a_scenario_or_a_list_of_clear_problems(
    scenario: wt.Scenario, seed: int
) -> None:
    random = Random(seed)
    for _ in range(50):
        plain = random.choice([data, lambda: to_dict(scenario)])()
        for _ in range(random.randint(1, 3)):
            mutate(plain, random)
        for problem in problems_of(plain):
            assert_clear(problem)


def assert_clear(problem: str) -> None:
    """Assert that a problem is short, and names no Python class or object outside of quotes."""
    said = re.sub(r'"(\\.|[^"\\])*("|…)|org\.apache\.[\w.]+', "", problem)
    assert said
    assert not re.search(r"[a-z][A-Z]|attrs|object at|<|Error", said), problem
    assert len(problem) < 1_000


def test_none_is_accepted_for_optional_values_only() -> None:
    plain = data()
    plain["groups"][0] |= {"handler": None, "service": None}
    plain["producers"][0]["sizes"] = None
    plain["duration"] = None
    first, *rest = problems_of(plain)
    assert first.startswith(f"duration = null: {SECONDS}")
    assert rest == [
        "producers[0].sizes = null: expected a size in bytes, or a table with a kind",
        "groups[0]: expected a service (processing time), a handler or both",
    ]


def test_deep_nesting_is_rejected() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for key in ("name", "topics", "x"):
        (problem,) = problems_of(data() | {key: deep})
        assert problem == f"{key}{'[0]' * 9}: expected at most 10 levels of nesting"


# Overrides


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("duration=10m", ["duration"], "10m"),
        ("duration = 90", ["duration"], 90),
        ('name="5"', ["name"], "5"),
        ("name=2020-01-01", ["name"], "2020-01-01"),
        ("name=a=b", ["name"], "a=b"),
        ("name=", ["name"], ""),
        ("name=1\nseed=2", ["name"], "1\nseed=2"),
        ("seed=-7", ["seed"], -7),
        ("groups[0].assignor=range", ["groups", 0, "assignor"], "range"),
        ('groups[0].assignor="range"', ["groups", 0, "assignor"], "range"),
        ("groups[billing].consumers=5", ["groups", 0, "consumers"], 5),
        ("groups[billing].static=true", ["groups", 0, "static"], True),
        ("groups[0].topics[0]=x", ["groups", 0, "topics", 0], "x"),
        ('groups[0].topics=["x", "y"]', ["groups", 0, "topics"], ["x", "y"]),
        ("timeline[1].at=3", ["timeline", 1, "at"], 3),
        ("topics[0]={name = 'x'}", ["topics", 0], {"name": "x"}),
        (
            "cluster.settings.broker_session_timeout_ms=5000",
            ["cluster", "settings", "broker_session_timeout_ms"],
            5_000,
        ),
        (
            "groups[billing].settings.max.poll.records=9",
            ["groups", 0, "settings", "max.poll.records"],
            9,
        ),
        (
            "producers[0].arrivals.rate=5",
            ["producers", 0, "arrivals"],
            {"kind": "poisson", "rate": 5},
        ),
        ("groups[0].service.per_batch=5", ["groups", 0, "service", "per_record"], "2ms"),
    ],
)
def test_a_value_is_overridden_by_its_path(assignment: str, path: list[Any], value: object) -> None:
    before = data()
    changed = change(before, [assignment])
    assert before == data()
    for step in path:
        changed = changed[step]
    assert changed == value


def test_a_file_is_loaded_with_overrides(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEXT)
    changes = ["groups[billing].consumers=5", "producers[shop].arrivals.kind=constant"]
    scenario = load(tmp_path / "a.toml", changes)
    assert scenario.groups[0].consumers == 5
    assert scenario.producers[0].arrivals == wt.load.Constant(100)
    with pytest.raises(
        wt.errors.ScenarioError, match=r'consumrs: unknown key; did you mean "consumers"'
    ):
        load(tmp_path / "a.toml", ["groups[0].consumrs=5"])


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        ("duration", "duration: expected path=value"),
        ("=5", "=5: expected path=value"),
        ("a..b=5", "a..b: expected a path such as groups[0].consumers"),
        ("a.=5", "a.: expected a path such as groups[0].consumers"),
        ("[0]=5", "[0]: expected a path such as groups[0].consumers"),
        ("groups[]=5", "groups[]: expected a path such as groups[0].consumers"),
        ("groups[0=5", "groups[0=5: expected path=value"),
        ("groups[1].consumers=5", "groups[1]: expected an index below 1, the length of the list"),
        ("groups[biling].x=5", 'groups[biling]: unknown name; did you mean "billing"?'),
        ("groups.consumers=5", "groups: expected an index, such as groups[0].consumers"),
        ("duration.x=5", 'duration = "5m": expected a table, to set x'),
        ("duration[0]=5", 'duration = "5m": expected a list, to use [0]'),
        ("nodes[0].x=5", "nodes: expected a list, but there is none"),
        ("groups[0].topics[x]=5", "groups[0].topics[x]: unknown name; there is no name yet"),
    ],
)
def test_an_override_with_a_bad_path_is_rejected(assignment: str, problem: str) -> None:
    with pytest.raises(wt.errors.ScenarioError) as caught:
        change(data(), [assignment, "seed"])
    assert caught.value.problems == (problem, "seed: expected path=value")


@given(st.from_regex(r"(groups|cluster|duration|\[0\]|\[billing\]|\.|settings|x){0,6}=.{0,5}"))
def test_a_random_override_is_applied_or_rejected(assignment: str) -> None:
    with suppress(wt.errors.ScenarioError):
        assert isinstance(change(data(), [assignment]), dict)
