"""What the tests share: the two engines, as fixtures."""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

import wavetank as wt

# A machine under load is no failure.
settings.register_profile("wavetank", deadline=None)
settings.load_profile("wavetank")

# What a shell starts in the background ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

Engine: TypeAlias = type[wt.SimulatedSystem] | type[wt.LiveSystem]

DEADLINE = 20
"""Seconds after which a live test gives up: far more than any needs."""


@pytest.fixture(params=["simulated", "live"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    return {"simulated": wt.SimulatedSystem, "live": wt.LiveSystem}[request.param]


@pytest.fixture
def system(engine: Engine) -> Iterator[Any]:
    """A system on each engine in turn."""
    with engine(seed=7) as system:
        yield system


@pytest.fixture
def simulated() -> Iterator[wt.SimulatedSystem]:
    """A simulated system."""
    with wt.SimulatedSystem(seed=7) as system:
        yield system


@pytest.fixture
def settle() -> Callable[[Any], None]:
    """Let a system work until nothing is left to do."""

    def run(system: Any) -> None:
        system.run_until_idle(timeout=DEADLINE)

    return run


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests: starting one takes seconds."""
    from wavetank import analytics

    session = analytics.session("local[2]", brief=True)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium: that of the system, or the one that playwright has installed."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: make test-browser"
    )
    found = shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as started:
        if found is None and not Path(started.chromium.executable_path).exists():
            pytest.skip("there is no Chromium: make test-browser")
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()
