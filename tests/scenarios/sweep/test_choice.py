"""The answer of a sweep: ties, settings that make no difference, and how certain it is."""

from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.wilson import wilson
from wavetank.scenarios.sweep.choice import (
    choose,
    chosen_by_cost,
    describe_answer,
    find_undecided,
)
from wavetank.scenarios.sweep.search import VariantTally
from wavetank.scenarios.sweep.spec import SweepSpec, build_spec

CONSUMERS, ASSIGNOR = "groups[0].consumers", "groups[0].assignor"
PARTITIONS = "topics[0].partitions"
POLL = "groups[0].settings.max_poll_records"
DATA = {
    "name": "tiny",
    "duration": "5s",
    "topics": [{"name": "orders", "partitions": 4}],
    "groups": [{"name": "billing", "topics": ["orders"], "service": "1ms"}],
    "objectives": [{"max_lag": "1s"}],
}


def spec_of(vary: Mapping[str, Sequence[Any]], seeds: int = 10, **options: Any) -> SweepSpec:
    return build_spec(DATA, vary, seeds, **options)


def tallies_of(spec: SweepSpec, met: Sequence[int]) -> dict[int, VariantTally]:
    assert len(met) == len(spec.variants)
    return {number: VariantTally(number, m, len(spec.seeds)) for number, m in enumerate(met)}


def answer_of(spec: SweepSpec, met: Sequence[int]) -> list[str]:
    tallies = tallies_of(spec, met)
    choice = choose(spec, tallies)
    return describe_answer(spec, choice, find_undecided(spec, tallies, choice))


def test_a_setting_without_effect_is_not_recommended_and_keeps_its_default():
    spec = spec_of({CONSUMERS: [1, 2], ASSIGNOR: ["sticky", "roundrobin", "range"]})
    choice = choose(spec, tallies_of(spec, [2, 2, 2, 10, 10, 10]))
    assert choice is not None
    assert choice.recommended.variant.settings == {CONSUMERS: 2, ASSIGNOR: "range"}
    assert [one.variant.settings[ASSIGNOR] for one in choice.tied] == ["sticky", "roundrobin"]
    assert choice.indifferent == (ASSIGNOR,)
    assert choice.settings == {CONSUMERS: 2}
    assert choice.label == "consumers=2"
    lines = answer_of(spec, [2, 2, 2, 10, 10, 10])
    assert lines[0] == (
        "cheapest: consumers=2 (by consumers, then partitions, then brokers: 2, 4, 1)"
    )
    assert (
        "assignor makes no difference to the objectives: sticky, roundrobin and range (the "
        "scenario's own) are as good" in lines
    )


def test_a_setting_that_the_scenario_leaves_out_has_its_default_as_own_value():
    spec = spec_of({POLL: [10, 500], "cluster.settings.group_initial_rebalance_delay_ms": [3000]})
    assert spec.own == {POLL: 500}
    spec = spec_of({"groups[billing].settings.max.poll.records": [10, "500"]})
    assert spec.own == {"groups[billing].settings.max.poll.records": "500"}
    choice = choose(spec, tallies_of(spec, [10, 10]))
    assert choice is not None
    assert choice.recommended.variant.number == 1


def test_the_values_of_the_scenario_itself_come_before_defaults():
    [group] = DATA["groups"]
    data = DATA | {"groups": [group | {"assignor": "sticky"}]}
    spec = build_spec(data, {ASSIGNOR: ["range", "sticky"]}, 10)
    choice = choose(spec, tallies_of(spec, [10, 10]))
    assert choice is not None
    assert choice.recommended.variant.settings == {ASSIGNOR: "sticky"}
    assert choice.label == ""
    assert answer_of(spec, [10, 10])[0].startswith("cheapest: any variant (by ")


def test_a_value_valid_only_with_other_values_is_no_own_value():
    spec = spec_of({"groups[0].delivery": ["shared"], ASSIGNOR: ["range"]})
    assert spec.own == {ASSIGNOR: "range"}
    assert build_spec({**DATA, "duration": "no"}, {"duration": ["5s"]}, 1).own == {}


def test_equal_variants_are_listed_if_only_some_values_of_a_setting_are_as_good():
    spec = spec_of({ASSIGNOR: ["sticky", "roundrobin", "range"], POLL: [10, 500]}, share=0.9)
    met = [10, 9, 0, 10, 9, 0]
    choice = choose(spec, tallies_of(spec, met))
    assert choice is not None
    assert choice.indifferent == ()
    # Two of them have one value of the scenario itself; the first in the grid is recommended.
    assert choice.recommended.variant.label == "assignor=sticky, max_poll_records=500"
    assert [one.variant.number for one in choice.tied] == [0, 3, 4]
    assert (
        "as good at the same cost: assignor=sticky, max_poll_records=10 (10 of 10 seeds); "
        "assignor=roundrobin, max_poll_records=500 (10 of 10 seeds); assignor=range, "
        "max_poll_records=10 (9 of 10 seeds)"
    ) in answer_of(spec, met)


@pytest.mark.parametrize(
    ("met", "cost", "found"),
    [
        ([10, 10, 10, 10], None, (CONSUMERS, PARTITIONS)),
        ([10, 10, 10, 8], None, (CONSUMERS, PARTITIONS)),  # far from the recommended variant
        ([10, 9, 10, 10], None, (CONSUMERS,)),
        ([9, 9, 10, 10], None, (PARTITIONS,)),  # one consumer is cheaper, but not good enough
        ([10, 10, 10, 10], "consumers", (CONSUMERS,)),  # partitions make no difference
        ([10, 9, 10, 10], "-partitions", (PARTITIONS,)),
    ],
)
def test_a_setting_can_be_chosen_for_its_cost_alone(met, cost, found):
    spec = spec_of({CONSUMERS: [1, 2], PARTITIONS: [2, 8]}, cost=cost)
    tallies = tallies_of(spec, met)
    choice = choose(spec, tallies)
    assert choice is not None
    assert chosen_by_cost(spec, tallies, choice) == found


def test_a_variant_that_is_clearly_worse_is_no_tie_though_it_is_good_enough():
    spec = spec_of({ASSIGNOR: ["range", "sticky"]}, 100, share=0.5)
    choice = choose(spec, tallies_of(spec, [55, 100]))
    assert choice is not None
    assert choice.recommended.variant.settings == {ASSIGNOR: "sticky"}
    assert choice.tied == ()


def test_cheaper_and_equal_variants_that_the_seeds_cannot_exclude_are_undecided():
    spec = spec_of({CONSUMERS: [1, 2, 3], ASSIGNOR: ["range", "sticky"]})
    met = [8, 9, 9, 10, 10, 9]
    tallies = tallies_of(spec, met)
    choice = choose(spec, tallies)
    assert choice is not None
    assert choice.label == "consumers=2, assignor=sticky"
    assert wilson(8, 10)[1] < 0.95 < wilson(9, 10)[1]
    assert [one.variant.number for one in find_undecided(spec, tallies, choice)] == [1, 2]
    assert answer_of(spec, met)[-1] == (
        "may be enough too, and not dearer: consumers=1, assignor=sticky (9 of 10 seeds); "
        "consumers=2, assignor=range (9 of 10 seeds)"
    )


def test_without_a_choice_the_variants_that_more_seeds_may_confirm_are_named():
    spec = spec_of({CONSUMERS: [1, 2]})
    assert answer_of(spec, [3, 9]) == [
        "no variant meets the objectives with 95% of the seeds",
        "more seeds may show that these do: consumers=2 (9 of 10 seeds)",
    ]
    assert answer_of(spec, [3, 3]) == ["no variant meets the objectives with 95% of the seeds"]


@pytest.mark.parametrize(
    ("seeds", "met", "share", "certain", "line"),
    [
        (10, 10, 0.95, False, "it takes at least 73 seeds, not 10, to show that 95% of all seeds"),
        (72, 72, 0.95, False, "it takes at least 73 seeds, not 72"),
        (73, 73, 0.95, True, ""),
        (100, 96, 0.95, False, "the confidence interval does not show that 95% of all seeds"),
        (100, 100, 1, False, "no number of seeds can show that 100% of all seeds"),
    ],
)
def test_the_answer_says_whether_the_seeds_are_enough_to_be_certain(
    seeds, met, share, certain, line
):
    spec = spec_of({CONSUMERS: [1]}, seeds, share=share)
    choice = choose(spec, tallies_of(spec, [met]))
    assert choice is not None
    assert choice.is_certain == certain
    found = [line for line in answer_of(spec, [met]) if line.startswith("not certain: ")]
    assert len(found) == (not certain)
    assert all(line in each for each in found)


@given(st.lists(st.integers(0, 8), min_size=12, max_size=12), st.sampled_from([0.25, 0.6, 0.9, 1]))
def test_the_choice_is_the_same_as_by_brute_force(met, share):
    values = {CONSUMERS: [2, 1], ASSIGNOR: ["sticky", "range"], POLL: [10, 500, 50]}
    spec = spec_of(values, 8, share=share)
    choice = choose(spec, tallies_of(spec, met))
    grid = list(product(*values.values()))
    good = {each: m for each, m in zip(grid, met, strict=True) if m >= 8 * share}
    if not good:
        assert choice is None
        return
    least = min(consumers for consumers, _, _ in good)
    rank = {each: m for each, m in good.items() if each[0] == least}
    overlapping = {
        one
        for one in rank
        if all(wilson(rank[one], 8)[1] >= wilson(other, 8)[0] for other in rank.values())
    }
    assert choice is not None
    chosen = [choice.recommended, *choice.tied]
    assert {tuple(one.variant.settings.values()) for one in chosen} == overlapping
    own = (1, "range", 500)
    changed = [sum(a != b for a, b in zip(each, own, strict=True)) for each in overlapping]
    best = tuple(choice.recommended.variant.settings.values())
    assert sum(a != b for a, b in zip(best, own, strict=True)) == min(changed)
    for at, path in enumerate(values):
        rest = {(*one[:at], *one[at + 1 :]) for one in overlapping}
        free = len(overlapping) == len(rest) * len(values[path])
        assert (path in choice.indifferent) == free
    assert not set(choice.settings) & set(choice.indifferent)


def test_the_choice_does_not_depend_on_the_order_of_the_results():
    spec = spec_of({ASSIGNOR: ["sticky", "roundrobin"], POLL: [10, 50]})
    tallies = tallies_of(spec, [10] * 4)
    choices = [
        choose(spec, {number: tallies[number] for number in order})
        for order in permutations(range(4))
    ]
    assert all(choice == choices[0] is not None for choice in choices)
    assert choices[0].recommended.variant.number == 0
