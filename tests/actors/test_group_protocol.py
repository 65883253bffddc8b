"""The group protocol in storms: invariants over the event logs of hundreds of random runs."""

import pytest
from storm import Storm, deliveries, out_of_order, owners_overlap, unfenced


def check(storm: Storm) -> None:
    with storm.run() as cluster:
        lag = storm.group.lag()
        shares = storm.group.assignment()
        events = list(cluster.events)
    why = "\n".join(storm.log)
    failures = [e for e in events if e.kind in ("failed", "unhandled", "given_up")]
    assert not failures, f"{failures[0]}\n{why}"
    assert owners_overlap(events) == [], why
    assert unfenced(events) == [], why
    assert out_of_order(events) == [], why
    assert sorted(tp for share in shares.values() for tp in share) == sorted(lag), why
    assert set(lag.values()) <= {0}, why
    times = [count for counts in deliveries(events).values() for count in counts]
    assert min(times) >= 1, why
    if not storm.rough:
        assert max(times) == 1, why


@pytest.mark.parametrize("seed", range(100))
def test_in_a_gentle_storm_everything_is_delivered_exactly_once(seed: int) -> None:
    check(Storm(seed, rough=False))


@pytest.mark.parametrize("seed", range(100))
def test_in_a_rough_storm_everything_is_delivered_at_least_once(seed: int) -> None:
    check(Storm(seed, rough=True))
