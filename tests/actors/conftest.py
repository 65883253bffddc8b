"""Clusters for tests that use one from outside."""

from collections.abc import Iterator

import pytest

import wavetank as wt


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster of three brokers on each engine in turn."""
    make = getattr(wt.Cluster, request.param)
    with make(
        seed=7, brokers=3, broker_heartbeat_interval_ms=50, broker_session_timeout_ms=400
    ) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def calm() -> Iterator[wt.Cluster]:
    """A simulated cluster with Kafka's own timers."""
    with wt.Cluster.simulated(seed=7, brokers=3) as cluster:
        yield cluster
