"""Clusters for tests that use one from outside."""

from collections.abc import Iterator

import pytest

import wavetank as wt
from helpers.clusters import STEADY


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster of three brokers on each engine in turn."""
    with getattr(wt.Cluster, request.param)(seed=7, brokers=3, **STEADY) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def calm() -> Iterator[wt.Cluster]:
    """A simulated cluster with Kafka's own timers."""
    with wt.Cluster.simulated(seed=7, brokers=3) as cluster:
        yield cluster
