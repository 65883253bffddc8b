"""The group protocol in random runs: invariants that hold in the event log of each."""

import pytest

from helpers.storms import MORE, Storm, deliveries, out_of_order, owners_overlap, unfenced


def check(storm: Storm) -> None:
    with storm.run() as cluster:
        lag = storm.group.lag()
        assignment = storm.group.assignment()
        events = list(cluster.events)
    steps = "\n".join(storm.log)
    failures = [e for e in events if e.kind in ("failed", "unhandled", "given_up")]
    assert not failures, f"{failures[0]}\n{steps}"
    assert owners_overlap(events) == [], steps
    assert unfenced(events) == [], steps
    assert out_of_order(events) == [], steps
    assert sorted(tp for owned in assignment.values() for tp in owned) == sorted(lag), steps
    assert set(lag.values()) <= {0}, steps
    times = [count for counts in deliveries(events).values() for count in counts]
    assert min(times) >= 1, steps
    if not storm.rough:
        assert max(times) == 1, steps


@pytest.mark.parametrize("seed", range(50 * MORE))
def test_without_faults_every_record_is_delivered_exactly_once(seed: int) -> None:
    check(Storm(seed, rough=False))


@pytest.mark.parametrize("seed", range(50 * MORE))
def test_with_faults_every_record_is_delivered_at_least_once(seed: int) -> None:
    check(Storm(seed, rough=True))
