"""The cost of a variant: expressions over known names, and the order of variants by cost."""

import pytest

import wavetank as wt
from wavetank.scenarios.sweep.costs import by_cost, cost
from wavetank.scenarios.sweep.grid import read_axes, variants

KNOWN = {
    "consumers": 4,
    "partitions": 12,
    "groups[0].consumers": 3,
    "groups[billing].settings.max_poll_records": 50,
    "groups[0].assignor": "range",
    "groups[0].static": True,
}

DATA = {
    "name": "tiny",
    "duration": "5s",
    "topics": [{"name": "orders", "partitions": 4}],
    "groups": [{"name": "billing", "topics": ["orders"], "service": "1ms"}],
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("consumers + 0.5 * partitions", 10),
        ("-(consumers - 1) ** 2 / 3 + 7 // 2 % 2", -2),
        ("groups[0].consumers * 10", 30),
        ("groups[billing].settings.max_poll_records", 50),
        ("max(consumers, partitions, 1) - min(consumers, 2)", 10),
    ],
)
def test_an_expression_has_the_same_value_as_in_python(expression, value):
    assert cost(expression, KNOWN) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "consumers +", "consumer", "__import__('os')", "consumers.__class__", "(lambda: 1)()",
        "[1][0]", "'a' * 3", "groups[0].assignor", "groups[0].static", "consumers / 0", "max()",
        "9 ** 9 ** 9", "1e308 * 1e308", "(-1) ** 0.5", "max(1, key=consumers)", "True",
        "1 if 1 else 2",
        "1 + " * 400 + "1", "((((" * 100, "consumers := 3", "0 ** -1", "1\x00",
    ],
)  # fmt: skip
def test_any_other_expression_is_rejected_by_name(expression):
    with pytest.raises(wt.errors.BadValueError) as error:
        cost(expression, KNOWN)
    assert str(error.value).startswith(f"cost = {expression!r}: ")


def test_an_unknown_name_is_rejected_with_a_suggestion():
    with pytest.raises(wt.errors.BadValueError, match="did you mean 'consumers'"):
        cost("consumer * 2", KNOWN)


def test_variants_are_ordered_by_consumers_then_partitions_or_by_the_cost_expression():
    found = variants(DATA, read_axes(["topics[0].partitions=8,4", "groups[0].consumers=2,1"]))
    assert [v.label for v in by_cost(found)] == [
        "partitions=4, consumers=1", "partitions=8, consumers=1",
        "partitions=4, consumers=2", "partitions=8, consumers=2",
    ]  # fmt: skip
    assert by_cost(found, "-groups[0].consumers * 10 + partitions")[0].label == (
        "partitions=4, consumers=2"
    )
    assert [v.number for v in by_cost(found, "1")] == [0, 1, 2, 3]
