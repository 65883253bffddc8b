"""The cheapest variants that are good enough: a race finds the same ones as the whole grid."""

from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.wilson import needed, wilson
from wavetank.scenarios.sweep.search import Race


@st.composite
def grids(draw):
    """The results of each variant with each seed, variants in order of cost."""
    seeds = draw(st.integers(1, 30))
    chances = draw(st.lists(st.sampled_from([0, 10, 50, 90, 95, 99, 100]), min_size=1, max_size=12))
    dice = st.lists(st.integers(1, 100), min_size=seeds, max_size=seeds)
    # Half the time a seed is equally hard for all variants, as with common random numbers.
    common = draw(st.none() | dice)
    return [
        [die <= chance for die in (common if common is not None else draw(dice))]
        for chance in chances
    ]


@given(
    grids(),
    st.data(),
    st.sampled_from([0.01, 0.5, 0.8, 0.9, 0.95, 1]),
    st.integers(1, 50),
)
def test_a_race_completes_every_variant_that_belongs_to_the_answer(grid, data, share, limit):
    costs = sorted(data.draw(st.integers(0, 4)) for _ in grid)
    ranks = [[n for n, cost in enumerate(costs) if cost == each] for each in sorted(set(costs))]
    seeds = list(range(100, 100 + len(grid[0])))
    race = Race(ranks, seeds, share)
    while wanted := race.next(limit):
        assert len(wanted) == len(set(wanted)) <= limit
        for number, seed in wanted:
            race.learn(number, seed, grid[number][seed - 100])

    enough = needed(share, len(seeds))
    good = [number for number, row in enumerate(grid) if sum(row) >= enough]
    most = costs[good[0]] if good else max(costs)
    tallies = race.tallies()
    for number, row in enumerate(grid):
        tally = tallies[number]
        possible = wilson(sum(row), len(seeds))[1] >= share or sum(row) >= enough
        if costs[number] <= most and possible:
            assert (tally.met, tally.runs) == (sum(row), len(seeds))
        elif costs[number] <= most and tally.runs < len(seeds):
            best = tally.met + len(seeds) - tally.runs
            assert wilson(best, len(seeds))[1] < share
    assert race.runs == sum(tally.runs for tally in tallies.values()) <= len(grid) * len(seeds)


def test_a_hopeless_variant_is_dropped_after_the_failures_that_exclude_it():
    seeds = list(range(50))
    race = Race([[number] for number in range(20)], seeds, 0.95)
    while wanted := race.next(8):
        for number, seed in wanted:
            race.learn(number, seed, number == 19)
    tallies = race.tallies()
    assert wilson(45, 50)[1] >= 0.95 > wilson(44, 50)[1]
    assert [tallies[number].runs for number in range(19)] == [6] * 19
    assert (tallies[19].met, tallies[19].runs) == (50, 50)


def test_variants_of_the_same_cost_as_the_answer_run_with_all_seeds_and_dearer_ones_do_not():
    race = Race([[0], [1, 2], [3]], list(range(10)), 0.9)
    while wanted := race.next(1):
        for number, seed in wanted:
            race.learn(number, seed, number > 0)
    tallies = race.tallies()
    assert [tallies[number].runs for number in (1, 2, 3)] == [10, 10, 0]


def test_seeds_that_failed_with_other_variants_come_first():
    race = Race([[0], [1]], [1, 2, 3, 4], 1)
    for seed in (1, 2, 3, 4):
        race.learn(0, seed, seed != 3)
    assert race.next(1) == [(1, 3)]
