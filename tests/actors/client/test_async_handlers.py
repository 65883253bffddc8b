"""Handlers that are async, on both engines; and functions that would do nothing when called."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import wavetank as wt
from wavetank.model.errors import BadValueError

DEADLINE = 20


def start(cluster: wt.Cluster, handler: Any, records: int = 3, **options: Any) -> wt.ConsumerGroup:
    """A topic of one partition with some records, and a consumer with this handler."""
    cluster.create_topic("jobs")
    group = cluster.group("workers", ["jobs"], retry_backoff_ms=10)
    producer = cluster.producer("shop", linger_ms=0)
    for number in range(records):
        producer.send("jobs", number).get(timeout=DEADLINE)
    group.consumer("worker", handler, max_poll_records=1, **options)
    return group


class Counter:
    """Counts values in an async call."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def __call__(self, records: wt.Records) -> None:
        await asyncio.sleep(0.001)
        self.seen += [record.value for record in records]

    async def method(self, records: wt.Records, unused: int = 0) -> None:
        await self(records)


SHAPES: dict[str, Callable[[Counter], Any]] = {
    "method": lambda counter: counter.method,
    "object": lambda counter: counter,
    "partial": lambda counter: partial(counter.method, unused=1),
    "lambda": lambda counter: lambda records: counter.method(records),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_async_handler_runs_to_its_end(cluster: wt.Cluster, shape: str) -> None:
    counter = Counter()
    start(cluster, SHAPES[shape](counter))
    cluster.run_until(lambda: len(counter.seen) >= 3, DEADLINE)
    assert counter.seen == [0, 1, 2]


def test_records_are_acknowledged_only_after_an_async_handler_has_ended(calm: wt.Cluster) -> None:
    async def handler(records: wt.Records) -> None:
        await asyncio.sleep(10)

    group = start(calm, handler, records=1, enable_auto_commit=False)
    before = calm.now
    calm.run(for_=9)
    assert sum(group.lag().values()) == 1
    calm.run_until(lambda: sum(group.lag().values()) == 0)
    assert 10 <= calm.now - before <= 10.2


def test_a_simulated_async_handler_sleeps_in_virtual_time(calm: wt.Cluster) -> None:
    times = []

    async def handler(records: wt.Records) -> None:
        times.append(asyncio.get_running_loop().time())
        await asyncio.gather(asyncio.sleep(2), asyncio.sleep(0.000_250))
        times.append(asyncio.get_running_loop().time())

    start(calm, handler, records=1)
    calm.run(for_=60)
    began, ended = times
    assert round(ended - began, 6) == 2.0


def test_timeouts_tasks_locks_and_queues_work_in_virtual_time(calm: wt.Cluster) -> None:
    heard: list[Any] = []

    async def handler(records: wt.Records) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()
        lock = asyncio.Lock()

        async def fill() -> None:
            async with lock:
                await asyncio.sleep(1)
                await queue.put(7)

        async with asyncio.TaskGroup() as group:
            group.create_task(fill())
            heard.append(await queue.get())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.sleep(100)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        heard.append(asyncio.get_running_loop().time())

    start(calm, handler, records=1)
    before = calm.now
    calm.run(for_=60)
    assert heard[0] == 7
    assert heard[1] - before == pytest.approx(9, abs=0.2)


def test_one_seed_gives_one_run_with_async_handlers() -> None:
    def digest() -> str:
        async def handler(records: wt.Records) -> None:
            await asyncio.gather(*(asyncio.sleep(0.01 * record.value) for record in records))
            if records[0].value % 2:
                raise RuntimeError("odd")

        with wt.Cluster.simulated(seed=3) as cluster:
            group = start(cluster, handler, records=4, max_deliveries=2)
            group.consumer("other", handler)
            cluster.run(for_=5)
        return cluster.events.digest

    assert digest() == digest()


def test_an_async_handler_that_raises_gets_its_records_again(cluster: wt.Cluster) -> None:
    seen: list[int] = []

    async def handler(records: wt.Records) -> None:
        await asyncio.sleep(0)
        seen.extend(record.value for record in records)
        if len(seen) == 1:
            raise RuntimeError("not now")

    start(cluster, handler)
    cluster.run_until(lambda: len(seen) >= 4, DEADLINE)
    assert seen == [0, 0, 1, 2]
    assert [e.detail for e in cluster.events.of("handler_failed")] == ["RuntimeError: not now"]


def test_an_async_handler_can_await_what_it_sends(cluster: wt.Cluster) -> None:
    stored: list[wt.RecordMetadata] = []
    cluster.create_topic("results")
    results = cluster.producer("results", linger_ms=0)

    async def handler(records: wt.Records) -> None:
        for record in records:
            stored.append(await results.send("results", record.value * 2))

    start(cluster, handler)
    cluster.run_until(lambda: len(stored) >= 3, DEADLINE)
    assert [metadata.offset for metadata in stored] == [0, 1, 2]


def test_a_failed_send_raises_where_an_async_handler_awaits_it(calm: wt.Cluster) -> None:
    def bad(key: object, value: object, partitions: int) -> int:
        raise RuntimeError("no partition")

    calm.create_topic("results")
    results = calm.producer("results", bad)
    caught: list[str] = []

    async def handler(records: wt.Records) -> None:
        try:
            await results.send("results", 1)
        except RuntimeError as error:
            caught.append(str(error))

    start(calm, handler, records=1)
    calm.run(for_=1)
    assert caught == ["no partition"]


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda: asyncio.to_thread(print), "run_in_executor"),
        (lambda: asyncio.open_connection("localhost", 1), "create_connection"),
        (lambda: asyncio.create_subprocess_shell("true"), "subprocess_shell"),
    ],
)
def test_real_input_and_output_is_refused_in_a_simulation(
    calm: wt.Cluster, use: Callable[[], Any], name: str
) -> None:
    async def handler(records: wt.Records) -> None:
        await use()

    start(calm, handler, records=1)
    calm.run(for_=1)
    details = {event.detail for event in calm.events.of("handler_failed")}
    assert len(details) == 1
    assert f"cannot use {name}" in details.pop()


def test_an_await_that_can_never_end_fails_the_handler(calm: wt.Cluster) -> None:
    async def handler(records: wt.Records) -> None:
        await asyncio.Event().wait()

    start(calm, handler, records=1)
    calm.run(for_=1)
    assert "never happens in a simulation" in calm.events.of("handler_failed")[0].detail


def test_a_crash_ends_a_sleeping_handler(cluster: wt.Cluster) -> None:
    seen: list[str] = []

    async def handler(records: wt.Records) -> None:
        seen.append("begun")
        await asyncio.sleep(0.05)
        seen.append("ended")

    quick = {"session_timeout_ms": 500, "heartbeat_interval_ms": 50, "auto_commit_interval_ms": 50}
    group = start(cluster, handler, records=1, **quick)
    cluster.run_until(lambda: bool(seen), DEADLINE)
    cluster.system.crash("worker")
    if cluster.system.engine == "simulated":
        cluster.run(for_=10)
        assert seen == ["begun"]
    cluster.system.restart("worker")
    cluster.run_until(lambda: seen.count("ended") >= 1 and not sum(group.lag().values()), DEADLINE)


def generator(records: wt.Records) -> Any:
    yield from records


async def async_generator(records: wt.Records) -> Any:
    yield records


@pytest.mark.parametrize("handler", [generator, async_generator, partial(generator)])
def test_a_generator_is_refused_as_a_handler(calm: wt.Cluster, handler: Any) -> None:
    with pytest.raises(BadValueError, match=r"handler = .*generator: expected a function without"):
        calm.group("workers", []).consumer("worker", handler)


def test_a_handler_that_cannot_be_called_is_refused(calm: wt.Cluster) -> None:
    with pytest.raises(BadValueError, match="handler = 5: expected a function"):
        calm.group("workers", []).consumer("worker", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("result", [lambda records: (r for r in records), partial(map, print)])
def test_a_handler_that_returns_an_iterator_acknowledges_nothing(
    calm: wt.Cluster, result: Any
) -> None:
    group = start(calm, result, records=1)
    calm.run(for_=1)
    assert sum(group.lag().values()) == 1
    assert "does nothing until it is iterated" in calm.events.of("handler_failed")[0].detail


async def late(*arguments: object) -> Any:
    return 0


class LateService:
    """A service time that is async."""

    async def batch_us(self, count: int, random: object) -> int:
        return 5


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("partitioner", lambda cluster: cluster.producer("shop", late)),
        ("assignor", lambda cluster: cluster.group("workers", [], assignor=late)),
        ("assignor", lambda cluster: wt.cooperative(late)),
        ("service", lambda cluster: cluster.group("w", []).consumer("w", service=LateService())),
        ("condition", lambda cluster: cluster.run_until(late)),
        ("condition", lambda cluster: cluster.system.run_until(late)),
        ("network", lambda cluster: wt.Cluster.simulated(network=late)),
        ("listener", lambda cluster: wt.Cluster.simulated(listener=late)),
    ],
)
def test_other_functions_must_not_be_async(
    calm: wt.Cluster, name: str, use: Callable[[wt.Cluster], Any]
) -> None:
    with pytest.raises(BadValueError, match=f"{name} = .*: expected a plain function, not async"):
        use(calm)
