"""What a partition has after its broker has lost its power, by how it is flushed."""

import pytest

import wavetank as wt


def after_power_loss(seed: int, **settings: object) -> tuple[int, int]:
    """The records that are there, and those that are recorded as lost, of a hundred."""
    model = wt.DiskModel(write="50us")
    with wt.Cluster.simulated(seed, storage="disk", disk=model, **settings) as cluster:  # type: ignore[arg-type]
        cluster.create_topic("orders")
        shop = cluster.producer("shop", linger_ms=0)
        for number in range(100):
            shop.send("orders", f"order {number}").get()
        cluster.run("100ms")
        cluster.system.power_loss("broker-0")
        cluster.system.restart("broker-0")
        view = cluster.inspect(wt.TopicPartition("orders", 0))
        lost = sum(event.count or 0 for event in cluster.events if event.kind == "lost")
        return view.end_offset - view.start_offset, lost


@pytest.mark.parametrize("seed", range(4))
def test_a_flush_after_every_record_makes_the_log_and_its_name_durable(seed: int) -> None:
    assert after_power_loss(seed, log_flush_interval_messages=1) == (100, 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_flush_after_a_time_makes_the_log_and_its_name_durable(seed: int) -> None:
    assert after_power_loss(seed, log_flush_interval_ms=50) == (100, 0)


@pytest.mark.parametrize("seed", range(8))
def test_a_record_that_was_never_acknowledged_is_not_lost(seed: int) -> None:
    with wt.Cluster.simulated(
        seed, storage="disk", flush="commit", disk=wt.DiskModel(sync="10ms")
    ) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer("shop", linger_ms=0)
        shop.send("orders", "tea").get()
        sent = shop.send("orders", "milk")
        cluster.run("5ms")
        cluster.system.power_loss("broker-0")
        cluster.system.restart("broker-0")
        assert sent.get().offset == 1
        assert [event for event in cluster.events if event.kind == "lost"] == []


def test_records_of_a_file_whose_name_was_not_synced_are_recorded_as_lost() -> None:
    found = [after_power_loss(seed) for seed in range(8)]
    assert [there + lost for there, lost in found] == [100] * 8
    assert 0 in [there for there, _ in found]
