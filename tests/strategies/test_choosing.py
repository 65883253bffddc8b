"""The cheapest variant that is good enough: the race finds what the whole grid says."""

from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.shares import needed
from wavetank.strategies.choosing import Race, Tally, by_cost, cheapest
from wavetank.strategies.varying import read_axes, variants

DATA = {
    "name": "tiny",
    "duration": "5s",
    "topics": [{"name": "orders", "partitions": 4}],
    "groups": [{"name": "billing", "topics": ["orders"], "service": "1ms"}],
}


@st.composite
def grids(draw):
    """A chance of success for each variant, in order of cost, and what came of each seed."""
    seeds = draw(st.integers(1, 30))
    chances = draw(st.lists(st.sampled_from([0, 10, 50, 90, 95, 99, 100]), min_size=1, max_size=12))
    dice = st.lists(st.integers(1, 100), min_size=seeds, max_size=seeds)
    # Half the time a seed is as hard for all variants, as it is with common random numbers.
    common = draw(st.none() | dice)
    return [
        [die <= chance for die in (common if common is not None else draw(dice))]
        for chance in chances
    ]


@given(grids(), st.sampled_from([0.01, 0.5, 0.8, 0.9, 0.95, 1]), st.integers(1, 50))
def test_a_race_finds_what_the_whole_grid_says(grid, share, limit):
    order, seeds = list(range(len(grid))), list(range(100, 100 + len(grid[0])))
    tallies = {
        number: Tally(number, sum(row), len(row)) for number, row in zip(order, grid, strict=True)
    }
    race = Race(order, seeds, share)
    while wanted := race.next(limit):
        assert len(wanted) == len(set(wanted)) <= limit
        for number, seed in wanted:
            race.learn(number, seed, grid[number][seed - 100])

    winner = cheapest(order, tallies, share)
    assert race.over
    assert race.winner == winner
    assert race.runs <= len(grid) * len(seeds)
    if winner is not None:
        assert race.tally(winner) == tallies[winner]
        for number in order[:winner]:
            missed = race.tally(number).runs - race.tally(number).met
            assert missed > len(seeds) - needed(share, len(seeds))


def test_a_hopeless_variant_costs_only_as_many_runs_as_it_may_fail():
    seeds = list(range(50))
    race = Race(range(20), seeds, 0.95)
    while wanted := race.next(8):
        for number, seed in wanted:
            race.learn(number, seed, number == 19)
    assert race.winner == 19
    assert race.runs <= 19 * 3 + 50


def test_the_seeds_that_failed_elsewhere_come_first():
    race = Race([0, 1], [1, 2, 3, 4], 1)
    for seed in (1, 2, 3, 4):
        race.learn(0, seed, seed != 3)
    assert race.next(1) == [(1, 3)]


def test_fewest_consumers_come_first_then_partitions_unless_a_cost_says_otherwise():
    found = variants(DATA, read_axes(["topics[0].partitions=8,4", "groups[0].consumers=2,1"]))
    assert [v.label for v in by_cost(found)] == [
        "partitions=4, consumers=1", "partitions=8, consumers=1",
        "partitions=4, consumers=2", "partitions=8, consumers=2",
    ]  # fmt: skip
    assert by_cost(found, "-groups[0].consumers * 10 + partitions")[0].label == (
        "partitions=4, consumers=2"
    )
    assert [v.number for v in by_cost(found, "1")] == [0, 1, 2, 3]
