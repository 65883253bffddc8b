"""Several controllers: whatever happens to a minority of them, the cluster goes on."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from pykka import ActorDeadError, Timeout

import wavetank as wt
from helpers.clusters import STEADY
from wavetank.actors.broker.metadata_image import MetadataImage, ProgramCode
from wavetank.model.journal import decode_entry, encode_entry
from wavetank.model.messages.cluster import CreateTopic
from wavetank.model.topics import Topic

SEEDS = 6
FAULTS = ("crash", "power_loss", "pause", "cut", "lossy", "heal", "none", "none")


@pytest.fixture(params=["memory", "disk"])
def three(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A simulated cluster with three controllers, without and with disks."""
    with wt.Cluster.simulated(7, brokers=2, controllers=3, storage=request.param) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def controller(cluster: wt.Cluster, name: str) -> Any:
    return cluster.system.ref(name).host.actor


def active(cluster: wt.Cluster) -> str:
    names = [ref.name for ref in cluster.controllers if ref.is_alive()]
    (name,) = [name for name in names if controller(cluster, name).log.is_active]
    return name


def cut_off(cluster: wt.Cluster, name: str) -> None:
    for node in cluster.system.nodes:
        if node != name:
            cluster.system.network.cut(name, node)


def heal(cluster: wt.Cluster) -> None:
    for ref in cluster.controllers:
        for node in cluster.system.nodes:
            if node != ref.name:
                cluster.system.network.heal(ref.name, node)
        state = cluster.system.nodes[ref.name].state
        if state == "crashed":
            cluster.system.restart(ref.name)
        elif state == "paused":
            cluster.system.resume(ref.name)


@pytest.mark.parametrize("count", [0, 2, 4, 7, True, "3"])
def test_other_numbers_of_controllers_are_refused(count: Any) -> None:
    with pytest.raises(wt.errors.BadValueError, match=f"controllers = {count!r}: expected 1, 3 or"):
        wt.Cluster.simulated(controllers=count)


@pytest.mark.parametrize("fault", ["crash", "power_loss", "pause", "cut"])
def test_another_controller_goes_on_with_the_same_leaders(three: wt.Cluster, fault: str) -> None:
    three.create_topic("orders", 4)
    producer = three.producer("shop")
    producer.send("orders", 0).get()
    before, first = three.metadata(), active(three)
    if fault == "cut":
        cut_off(three, first)
    else:
        getattr(three.system, fault)(first)
    sent = [producer.send("orders", number) for number in range(100)]
    three.run(for_=1)
    assert all(future.get(timeout=0) for future in sent)  # while no controller is active
    three.run(for_=9)
    after = three.metadata()
    assert after.leaders == before.leaders
    assert after.version > before.version
    assert not three.events.of("broker_fenced", "broker_lost")
    heal(three)
    three.run(for_=10)
    assert active(three) != first
    kinds = [event.epoch for event in three.events.of("controller_changed")]
    assert kinds == sorted(set(kinds))
    assert len(kinds) == 2


def test_a_minority_answers_no_change(three: wt.Cluster) -> None:
    first = active(three)
    for ref in three.controllers:
        if ref.name != first:
            three.system.crash(ref.name)
    with pytest.raises(Timeout, match="no active controller has answered within 2 m"):
        three.create_topic("orders")
    heal(three)
    three.run(for_=10)
    three.create_topic("payments")
    assert "payments" in three.metadata().topics


def test_the_quorum_shows_each_controller_and_which_one_is_active(three: wt.Cluster) -> None:
    three.create_topic("orders")
    three.run(for_=1)
    first = active(three)
    views = {view.name: view for view in three.quorum()}
    assert [name for name, view in views.items() if view.is_active] == [first]
    assert sorted(view.state for view in views.values()) == ["Follower", "Follower", "Leader"]
    assert len({(view.term, view.last_index) for view in views.values()}) == 1
    three.system.crash(first)
    three.run(for_=5)
    views = {view.name: view for view in three.quorum()}
    assert (views[first].state, views[first].is_active) == ("crashed", False)
    assert sum(view.is_active for view in views.values()) == 1


def test_without_any_controller_there_is_nobody_to_ask(three: wt.Cluster) -> None:
    for ref in three.controllers:
        three.system.crash(ref.name)
    with pytest.raises(ActorDeadError):
        three.create_topic("orders")


@pytest.mark.parametrize("moment_us", range(0, 8_000, 1_000))
def test_a_request_that_is_repeated_is_carried_out_once(three: wt.Cluster, moment_us: int) -> None:
    first, create = active(three), CreateTopic(77, Topic("orders", 2))
    three.system.ref(first).ask(create, block=False)  # the answer gets lost
    three.run(for_=f"{moment_us + 1}us")
    three.system.crash(first)
    answer = three._ask_controller(create)
    assert answer.metadata.topics["orders"].partitions == 2
    with pytest.raises(wt.errors.BadValueError, match="topic 'orders' exists already"):
        three.create_topic("orders")


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_the_only_controller_goes_on_after_a_crash(storage: Any) -> None:
    with wt.Cluster.simulated(7, brokers=2, storage=storage) as cluster:
        cluster.create_topic("orders", 4)
        before = cluster.metadata()
        cluster.system.crash("controller")
        cluster.run(for_=2)
        cluster.system.restart("controller")
        cluster.run(for_=5)
        after = cluster.metadata()
        assert after.leaders == before.leaders
        assert after.version > before.version
        assert not cluster.events.of("broker_fenced", "broker_lost")
        assert [event.epoch for event in cluster.events.of("controller_changed")] == [2]


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_to_controllers_nothing_that_was_promised_is_lost(
    seed: int, storage: Any
) -> None:
    dice = Random(seed)
    with wt.Cluster.simulated(seed, brokers=2, controllers=3, storage=storage) as cluster:
        cluster.create_topic("orders", 4)
        producer = cluster.producer("shop", delivery_timeout_ms=600_000)
        group = cluster.group("billing", ["orders"])
        group.consumer("ann", lambda record: None, auto_commit_interval_ms=200)
        names, created, tries = [ref.name for ref in cluster.controllers], ["orders"], 0
        for number in range(30):
            producer.send("orders", number, key=number)
            disturb(cluster, dice, dice.choice(names))
            if dice.random() < 0.3:
                tries += 1
                try:
                    created.append(cluster.create_topic(f"topic-{tries}", 2).name)
                except (Timeout, ActorDeadError, wt.errors.BadValueError):
                    pass  # it is refused while no broker is active, as in Kafka
            cluster.run(for_=dice.choice(["10ms", "200ms", 1, 3, 8]))
        heal(cluster)
        cluster.run(for_=30)
        metadata = cluster.metadata()
        assert set(created) <= set(metadata.topics)
        assert all(leader.ref is not None for leader in metadata.leaders.values())
        images = [list(controller(cluster, name).image.entries()) for name in names]
        assert images[0] == images[1] == images[2]
        offsets = controller(cluster, names[0]).image.group_offsets["billing"]
        ends = {tp: cluster.inspect(tp).end_offset for tp in offsets}
        assert offsets == ends
        terms = [event.epoch for event in cluster.events.of("controller_changed")]
        assert terms == sorted(set(terms))  # never two of one term
        if storage == "disk":
            assert not cluster.events.of("lost")
        assert not cluster.events.of("failed", "unhandled")


def disturb(cluster: wt.Cluster, dice: Random, name: str) -> None:
    system = cluster.system
    state = system.nodes[name].state
    fault = dice.choice(FAULTS)
    if state == "crashed":
        system.restart(name)
    elif state == "paused":
        system.resume(name)
    elif fault == "cut":
        cut_off(cluster, name)
    elif fault == "lossy":
        for node in [*cluster.brokers, *(ref.name for ref in cluster.controllers)]:
            if node != name:
                system.network.disturb(name, node, drop=0.3, duplicate=0.2)
    elif fault == "heal":
        for node in system.nodes:
            if node != name:
                system.network.heal(name, node)
    elif fault != "none":
        getattr(system, fault)(name)


def test_a_live_cluster_goes_on_without_its_active_controller() -> None:
    with wt.Cluster.live(
        brokers=2, controllers=3, controller_quorum_election_timeout_ms=200,
        controller_quorum_fetch_timeout_ms=400, **STEADY,
    ) as cluster:  # fmt: skip
        cluster.create_topic("orders", 2)
        cluster.system.crash(active(cluster))
        cluster.create_topic("payments", 2)
        assert set(cluster.metadata().topics) == {"orders", "payments"}


def time_without_controller(**settings: int) -> float:
    """How long nobody is active after a crash, in seconds."""
    with wt.Cluster.simulated(3, controllers=3, **settings) as cluster:
        cluster.run(for_=5)
        cluster.system.crash(active(cluster))
        crashed = cluster.now
        cluster.run(for_=60)
        return cluster.events.of("controller_changed")[-1].time_us / 1e6 - crashed


def test_the_fetch_timeout_decides_when_a_silent_controller_is_given_up() -> None:
    assert time_without_controller(controller_quorum_election_timeout_ms=100) < 2.3
    patient = time_without_controller(
        controller_quorum_election_timeout_ms=100, controller_quorum_fetch_timeout_ms=20_000
    )
    assert 17 < patient < 20.3


def test_the_election_timeout_decides_how_much_later_another_one_stands() -> None:
    waits = [
        time_without_controller(
            controller_quorum_election_timeout_ms=timeout, controller_quorum_fetch_timeout_ms=500
        )
        for timeout in (10, 10_000)
    ]
    assert waits[0] < 0.6 < waits[1]


def test_a_real_disk_can_keep_all_metadata() -> None:
    with wt.Cluster.simulated(7, brokers=2, storage="memory") as cluster:
        cluster.create_topic("orders", 4)
        cluster.group("billing", ["orders"]).consumer("ann")
        cluster.producer("shop").send("orders", 1).get()
        cluster.run(for_=5)
        image = controller(cluster, "controller").image
        again = MetadataImage(cluster.system.refs.get, ProgramCode())
        for entry in image.entries():
            again.apply(decode_entry(encode_entry(entry)[8:]))
        assert list(again.entries()) == list(image.entries())
        assert again.group_logs == image.group_logs
        assert again.replication == image.replication
