"""The variants of a scenario: parsing axes, combining values, rejecting invalid grids."""

import json

import pytest

import wavetank as wt
from wavetank.scenarios.files.scenario_file import from_dict
from wavetank.scenarios.sweep.grid import Axis, describe, read_axes, variants

DATA = {
    "name": "tiny",
    "duration": "5s",
    "seed": 3,
    "topics": [{"name": "orders", "partitions": 4}],
    "producers": [{"name": "shop", "topic": "orders", "arrivals": 100}],
    "groups": [{"name": "billing", "topics": ["orders"], "service": "1ms"}],
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("topics[0].partitions=12,24,48", (12, 24, 48)),
        ("groups[0].consumers=4..7", (4, 5, 6, 7)),
        ("groups[0].consumers=4..16:4", (4, 8, 12, 16)),
        ("groups[0].consumers=1, 2, 4..8:2", (1, 2, 4, 6, 8)),
        ("groups[0].assignor=range,cooperative-sticky", ("range", "cooperative-sticky")),
        ('groups[0].service="1ms",0.5', ("1ms", 0.5)),
        ('producers[0].keys={kind="zipf",count=9},"none"', ({"kind": "zipf", "count": 9}, "none")),
        ("groups[0].topics=['a,b'],[\"c\", 'd']", (["a,b"], ["c", "d"])),
        ("groups[0].static=true,false", (True, False)),
    ],
)
def test_values_are_those_of_set_or_ranges(text, values):
    assert [axis.values for axis in read_axes([text])] == [values]


def test_all_axes_that_cannot_be_parsed_are_reported_at_once():
    texts = ["consumers", "a=9..4", "b=1..9:0", "c=1,,2", "d=0..10000000", "e=1,2"]
    with pytest.raises(wt.errors.ScenarioError) as error:
        read_axes(texts)
    assert len(error.value.problems) == 5
    for text, problem in zip(texts, error.value.problems, strict=False):
        assert problem.startswith(text.partition("=")[0])


def test_all_values_are_combined_and_the_last_setting_changes_fastest():
    axes = read_axes(["groups[0].consumers=1,2", "topics[orders].partitions=4,8"])
    found = variants(DATA, axes)
    assert [variant.label for variant in found] == [
        "consumers=1, partitions=4", "consumers=1, partitions=8",
        "consumers=2, partitions=4", "consumers=2, partitions=8",
    ]  # fmt: skip
    assert [variant.number for variant in found] == [0, 1, 2, 3]
    assert found[3].totals() == {"consumers": 2, "partitions": 8, "brokers": 1}
    assert found[3].scenario.groups[0].consumers == 2


def test_a_grid_without_axes_is_the_scenario_itself():
    [only] = variants(DATA, ())
    assert only.scenario == from_dict(DATA)
    assert only.label == ""


def test_equal_scenarios_have_equal_texts_however_they_are_written():
    [variant] = variants(DATA, [Axis("groups[0].consumers", (2,))])
    [same] = variants(
        DATA | {"groups": [DATA["groups"][0] | {"consumers": 2}], "description": ""}, ()
    )
    assert variant.text(9) == same.text(9) != same.text(8)
    assert from_dict(json.loads(variant.text(9))).seed == 9


def test_a_problem_names_its_variants_unless_all_variants_have_it():
    axes = read_axes(["groups[0].delivery=exclusive,shared", "groups[0].assignor=range,sticky"])
    with pytest.raises(wt.errors.ScenarioError) as error:
        variants(DATA | {"duration": "long"}, axes)
    alone = [problem for problem in error.value.problems if "duration" in problem]
    assert len(alone) == 1
    assert "with" not in alone[0]
    with pytest.raises(wt.errors.ScenarioError) as error:
        variants(DATA, axes)
    [problem] = error.value.problems
    assert "assignor" in problem
    assert problem.endswith("(with delivery=shared, assignor=sticky)")


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        ([Axis("groups[0].consumer", (1,))], 'did you mean "consumers"?'),
        ([Axis("groups[9].consumers", (1,))], "expected an index below 1"),
        ([Axis("groups[0].consumers", (-1, 2))], "groups[0].consumers = -1"),
        ([Axis("seed", (1, 2))], "seeds"),
        ([Axis("engine", ("live",)), Axis("groups[0].handler", ("m:f",))], "simulated"),
        ([Axis("duration", (1,)), Axis("duration", (2,))], "varied twice"),
        ([Axis("duration", (1, 2, 1))], "1 appears twice"),
        ([Axis("duration", ())], "at least one value"),
        ([Axis("duration", range(200)), Axis("topics[0].partitions", range(200))], "40,000"),
    ],
)
def test_an_invalid_axis_is_rejected_by_name(axes, text):
    with pytest.raises(wt.errors.ScenarioError) as error:
        variants(DATA, axes)
    assert text in str(error.value)


def test_settings_with_the_same_short_name_are_shown_with_their_paths():
    settings = {"groups[0].consumers": 1, "groups[1].consumers": 2, "cluster.brokers": 3}
    assert describe(settings) == "groups[0].consumers=1, groups[1].consumers=2, brokers=3"
