"""Events about records cover ranges of one appended batch, with its append time."""

import pytest

import wavetank as wt
from helpers.random_runs import RUNS, broadcasts, run

OF_RECORDS = (
    "delivered", "acknowledged", "nacked", "ack_timed_out", "dead_lettered", "archived", "lost",
)  # fmt: skip


def strays(events: list[wt.Event]) -> list[str]:
    """Describe every event whose range is not within one batch, or lacks its append time."""
    found, times = [], {}
    for event in events:
        if event.kind == "topic_deleted":
            times = {place: at for place, at in times.items() if place[0] != event.topic}
            continue
        if event.kind != "appended" and event.kind not in OF_RECORDS:
            continue
        first, count = event.base_offset or 0, event.count or 0
        places = [(event.topic, event.partition, first + n) for n in range(count)]
        if event.kind == "appended":
            times |= dict.fromkeys(places, (event.append_time_us, event.sequence))
        elif event.group is not None:
            batches = {times.get(place) for place in places}
            if len(batches) != 1 or None in batches or event.append_time_us != batches.pop()[0]:
                found.append(str(event))
    return found


@pytest.mark.parametrize("what", RUNS)
def test_an_event_about_records_covers_one_batch_and_has_its_append_time(
    what: tuple[str, int],
) -> None:
    _, events, _ = run(*what)
    assert {"delivered", "acknowledged"} <= {event.kind for event in events}
    assert strays(events) == []


def test_dead_lettered_and_lost_records_of_a_broadcast_name_their_consumer() -> None:
    ends = [
        event
        for what in RUNS
        for event in run(*what)[1]
        if event.group in broadcasts(what[0]) and event.kind in ("dead_lettered", "lost")
    ]
    assert {"dead_lettered", "lost"} <= {event.kind for event in ends}
    assert all(event.consumer for event in ends)


def test_ranges_of_a_live_cluster_do_not_span_batches() -> None:
    with wt.Cluster.live(7) as cluster:
        cluster.create_topic("orders")
        groups = [
            cluster.group("ordered", ["orders"]),
            cluster.group("crew", ["orders"], delivery="shared"),
        ]
        consumers = [group.consumer(f"{group.name}-0") for group in groups]
        producer = cluster.producer("shop")
        for number in range(12):
            producer.send("orders", number).get(timeout=20)
        for consumer in consumers:
            got = 0
            while got < 12:
                records = consumer.poll(timeout=5)
                got += len(records)
        consumers[0].commit()
    events = list(cluster.events)
    assert sum(event.count for event in events if event.kind == "delivered") >= 24
    assert strays(events) == []
