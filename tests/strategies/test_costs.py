"""Costs: sums over what is known, and nothing else."""

import pytest

import wavetank as wt
from wavetank.strategies.costs import cost

KNOWN = {
    "consumers": 4,
    "partitions": 12,
    "groups[0].consumers": 3,
    "groups[billing].settings.max_poll_records": 50,
    "groups[0].assignor": "range",
    "groups[0].static": True,
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
def test_an_expression_has_the_value_that_python_would_give_it(expression, value):
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
def test_anything_else_is_refused_and_named(expression):
    with pytest.raises(wt.BadValueError) as error:
        cost(expression, KNOWN)
    assert str(error.value).startswith(f"cost = {expression!r}: ")


def test_a_name_that_is_not_known_is_answered_with_the_nearest():
    with pytest.raises(wt.BadValueError, match="did you mean 'consumers'"):
        cost("consumer * 2", KNOWN)
