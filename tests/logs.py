"""Event logs for the measures: tiny ones by hand, and several random runs merged into one.

Spark takes long over each job and little over each row, so that many runs are measured as one:
their events in the order of time, and names that say which run they are of.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import attrs
import delivery
import pyarrow as pa
import storm
from running import QUICK, quick

import wavetank as wt
from wavetank.actors.runner import Runner
from wavetank.model.counters import Counters
from wavetank.model.events import SCHEMA
from wavetank.model.summary import Summary

NAMES = ("node", "actor", "topic", "group", "member", "producer")
PLAIN = pa.schema(
    [
        pa.field(field.name, pa.int64() if field.type == pa.int64() else pa.string())
        for field in SCHEMA
    ]
)
S = 1_000_000


def event(time_us: int, kind: str, **cells: Any) -> wt.Event:
    """An event of a tiny log; its place in the log comes with `frame`."""
    return wt.Event(0, time_us, kind, **cells)


def numbered(events: Iterable[wt.Event]) -> list[wt.Event]:
    """The same events with their places in the log."""
    return [attrs.evolve(each, sequence=place) for place, each in enumerate(events)]


def table(events: Iterable[wt.Event]) -> pa.Table:
    """The events as Arrow, as a run directory has them."""
    return pa.Table.from_pylist([attrs.asdict(each) for each in numbered(events)], PLAIN)


def frame(spark: Any, events: Iterable[wt.Event]) -> Any:
    """The events as a DataFrame."""
    return spark.createDataFrame(table(events))


def rows(measured: Any) -> list[tuple[Any, ...]]:
    """The rows of a measure, as tuples."""
    return [tuple(row) for row in measured.collect()]


def dicts(measured: Any) -> list[dict[str, Any]]:
    """The rows of a measure, by column."""
    return [row.asDict() for row in measured.collect()]


def summary_of(events: list[wt.Event], broadcast: Iterable[str] = ()) -> Summary:
    """What the counters make of the events, up to the last of them."""
    counters = Counters(list(broadcast))
    for batch in table(events).cast(SCHEMA).to_batches():
        counters.add(batch)
    return counters.summary(events[-1].time_us)


@cache
def of_run(kind: str, seed: int) -> tuple[wt.Event, ...]:
    """The events of a random run: a storm, a group that falls behind, or a kind of delivery."""
    if kind == "behind":
        return tuple(falling_behind(seed))
    if kind == "storm":
        cluster = storm.Storm(seed, rough=True, steps=8).run()
    else:
        cluster = delivery.Delivering(seed, kind).run()
    with cluster:
        pass
    return tuple(cluster.events)


def falling_behind(seed: int) -> list[wt.Event]:
    """A run in which there is more to do than can be done, with a crash and an end of the load."""
    billing = wt.GroupPlan(
        "billing", ["orders"], consumers=3, service=wt.ExponentialService("18ms"), settings=QUICK
    )
    timeline = [wt.Crash(4, "billing-0", for_=4), wt.Rate(14, "shop-*", factor=0.1)]
    scenario = quick(duration=25, groups=[billing], timeline=timeline, seed=seed)
    with Runner(scenario).run() as cluster:
        pass
    return list(cluster.events)


@cache
def merged(*runs: tuple[str, int]) -> list[wt.Event]:
    """The events of several runs, as if all of them had been one."""
    found = []
    for kind, seed in runs:
        label = f"{kind}{seed}."
        for each in of_run(kind, seed):
            names = {
                name: label + value for name in NAMES if (value := getattr(each, name)) is not None
            }
            found.append(attrs.evolve(each, **names))
    return numbered(sorted(found, key=lambda each: each.time_us))
