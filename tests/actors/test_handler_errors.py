"""What becomes of an exception in a handler, with each `on_handler_error` and on both engines."""

import asyncio
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import wavetank as wt
from wavetank.model.errors import BadValueError, HandlerError
from wavetank.model.events.run_directory import read_info

DEADLINE = 20


@pytest.fixture(params=["simulated", "live"])
def make(request: pytest.FixtureRequest) -> Callable[..., wt.Cluster]:
    """Makes clusters on each engine in turn."""
    made: Callable[..., wt.Cluster] = getattr(wt.Cluster, request.param)
    return made


def check(records: wt.Records) -> None:
    for record in records:
        assert record.value < 2, "too large"


def start(cluster: wt.Cluster, handler: Any = check, **options: Any) -> wt.ConsumerGroup:
    cluster.create_topic("jobs")
    group = cluster.group("workers", ["jobs"], retry_backoff_ms=10)
    group.consumer("worker", handler, **options)
    group.assignment()
    shop = cluster.producer("shop", linger_ms=0)
    for number in range(3):
        shop.send("jobs", number)
    return group


WAITS: dict[str, Callable[[wt.Cluster, wt.ConsumerGroup], Any]] = {
    "run": lambda cluster, group: cluster.run(for_=DEADLINE),
    "run_until": lambda cluster, group: cluster.run_until(lambda: False, DEADLINE),
    "poll": lambda cluster, group: cluster.group("others", []).consumer("o").poll(timeout=DEADLINE),
    "system": lambda cluster, group: cluster.system.run_until(lambda: False, DEADLINE),
}


@pytest.mark.parametrize("how", WAITS)
def test_an_assert_in_a_handler_is_raised_by_the_waiting_call(
    make: Callable[..., wt.Cluster], how: str
) -> None:
    with make(seed=1, on_handler_error="raise") as cluster:
        group = start(cluster)
        with pytest.raises(
            HandlerError, match=r"handler of worker failed on jobs-0 .*too large"
        ) as it:
            WAITS[how](cluster, group)
        cause = it.value.__cause__
        assert isinstance(cause, AssertionError)
        assert "in check" in "".join(traceback.format_exception(cause))
    assert cluster.events.of("handler_failed")


def test_the_end_of_the_block_raises_what_no_wait_has_raised(
    make: Callable[..., wt.Cluster],
) -> None:
    failed = []

    def handler(records: wt.Records) -> None:
        failed.append(1)
        raise AssertionError("late")

    def use() -> None:
        with make(seed=1, on_handler_error="raise") as cluster:
            start(cluster, handler)
            while not failed:
                cluster.run(for_="1ms")

    with pytest.raises(HandlerError, match="late"):
        use()


def test_an_error_that_the_consumer_never_hears_of_is_raised_at_the_end() -> None:
    working, go_on = threading.Event(), threading.Event()

    def handler(records: wt.Records) -> None:
        working.set()
        go_on.wait(DEADLINE)
        raise AssertionError("late")

    def use() -> None:
        with wt.Cluster.live(seed=1, on_handler_error="raise") as cluster:
            start(cluster, handler)
            assert working.wait(DEADLINE)
            cluster.system.pause("worker")
            go_on.set()

    with pytest.raises(HandlerError, match="late"):
        use()


def test_an_error_in_the_block_hides_a_handler_error_at_its_end(
    make: Callable[..., wt.Cluster],
) -> None:
    def use() -> None:
        with make(seed=1, on_handler_error="raise") as cluster:
            start(cluster)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        use()


def test_an_async_handler_raises_as_well(make: Callable[..., wt.Cluster]) -> None:
    async def handler(records: wt.Records) -> None:
        await asyncio.sleep(0.001)
        check(records)

    with make(seed=1, on_handler_error="raise") as cluster:
        start(cluster, handler)
        with pytest.raises(HandlerError, match="too large"):
            cluster.run(for_=DEADLINE)


def test_pytest_fail_in_a_handler_is_raised(make: Callable[..., wt.Cluster]) -> None:
    def handler(records: wt.Records) -> None:
        pytest.fail("wrong")

    with make(seed=1, on_handler_error="raise") as cluster:
        start(cluster, handler)
        with pytest.raises(HandlerError, match="wrong"):
            cluster.run(for_=DEADLINE)


def test_a_cluster_goes_on_after_a_handler_error_was_raised(
    make: Callable[..., wt.Cluster],
) -> None:
    failed: list[int] = []
    seen: list[int] = []

    def handler(records: wt.Records) -> None:
        values = [record.value for record in records]
        if 2 in values and not failed:
            failed.append(2)
            raise AssertionError("once")
        seen.extend(values)

    with make(seed=1, on_handler_error="raise") as cluster:
        start(cluster, handler)
        with pytest.raises(HandlerError, match="once"):
            cluster.run(for_=DEADLINE)
        cluster.run_until(lambda: seen[-1:] == [2], DEADLINE)
    assert seen == [0, 1, 2]


def test_by_default_an_error_only_has_the_records_delivered_again(
    make: Callable[..., wt.Cluster],
) -> None:
    with make(seed=1) as cluster:
        start(cluster)
        cluster.run_until(lambda: len(cluster.events.of("handler_failed")) > 2, DEADLINE)


def test_a_consumer_can_have_another_policy_than_its_cluster(
    make: Callable[..., wt.Cluster],
) -> None:
    with make(seed=1, on_handler_error="raise") as cluster:
        start(cluster, on_handler_error="redeliver")
        cluster.run_until(lambda: len(cluster.events.of("handler_failed")) > 2, DEADLINE)
    with make(seed=1) as cluster:
        start(cluster, on_handler_error="raise")
        with pytest.raises(HandlerError):
            cluster.run(for_=DEADLINE)


def test_a_run_that_a_handler_error_ends_is_recorded_as_failed(tmp_path: Any) -> None:
    out = tmp_path / "run"

    def use() -> None:
        with wt.Cluster.simulated(seed=1, out=out, on_handler_error="raise") as cluster:
            start(cluster)
            cluster.run(for_=DEADLINE)

    with pytest.raises(HandlerError):
        use()
    info = read_info(out)
    assert (info.state, "too large" in str(info.error)) == ("failed", True)


def test_an_unknown_policy_is_refused(calm: wt.Cluster) -> None:
    expected = "on_handler_error = 'ignore': expected 'redeliver' or 'raise'"
    with pytest.raises(BadValueError, match=expected):
        wt.Cluster.simulated(on_handler_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(BadValueError, match=expected):
        calm.group("workers", []).consumer("worker", check, on_handler_error="ignore")
