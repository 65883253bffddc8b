"""What the tests share: the two engines, as fixtures."""

import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

import wavetank as wt

# A machine under load is no failure.
settings.register_profile("wavetank", deadline=None)
settings.load_profile("wavetank")

# What a shell starts in the background ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "docs/test_pages.py", "analytics/test_cluster.py", "stream/test_stream.py",
    "commands/test_sweep.py", "report/test_report.py", "commands/test_watch.py",
    "sweep/test_sweep.py", "measures/test_latency.py", "analytics/test_session.py",
    "measures/test_monitors.py", "measures/test_lag.py", "measures/test_rebalances.py",
    "docs/test_site.py", "examples/test_scenarios.py", "scenarios/test_runner.py",
)  # fmt: skip
"""Files that take half a minute or more, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: one that begins last keeps one process busy, the other idle."""

    def rank(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((n for n, name in enumerate(LONGEST) if path.endswith(name)), len(LONGEST))

    items.sort(key=rank)


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


INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}  # fmt: skip
"""Spark takes longer to compile a query than to run it on the few rows of a test."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests: starting one takes seconds."""
    from wavetank import analytics

    session = analytics.session("local[2]", brief=True)
    for name, value in INTERPRETED.items():
        session.conf.set(name, value)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The Chromium of this machine; `make test-browser` installs one if it can."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: make test-browser"
    )
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("there is no Chromium: make test-browser")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()
