"""One program, two engines; one seed, one run."""

import os
import subprocess
import sys
from collections import Counter
from types import ModuleType
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.program as program
import helpers.storms as storm
import wavetank as wt
from helpers.notebook import Notebook


def digest_elsewhere(seed: int, hash_seed: str, script: ModuleType = program) -> str:
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, str(script.__file__), str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()


def test_the_same_program_runs_on_both_engines(system: Any) -> None:
    program.play(system)
    caught = [event.count for event in system.events.of("caught")]
    answered = system.events.of("answered")
    assert caught == list(range(1, program.RALLIES + 1))
    assert [event.count for event in answered] == list(range(1, program.REQUESTS + 1))
    assert answered[-1].bytes == sum(n * n for n in range(1, program.REQUESTS + 1))
    assert system.events.of("retried"), "the server has forgotten some"
    assert not system.events.of("failed", "unhandled", "undeliverable")


def test_one_seed_gives_one_digest_in_any_process_and_another_seed_another() -> None:
    first = digest_elsewhere(3, hash_seed="1")
    assert digest_elsewhere(3, hash_seed="2") == first
    assert program.digest(3) == first
    assert program.digest(4) != first


@pytest.mark.parametrize("seed", [3, 8])
def test_a_whole_storm_over_a_cluster_replays_in_any_process(seed: int) -> None:
    first = digest_elsewhere(seed, "1", storm)
    assert digest_elsewhere(seed, "2", storm) == first
    assert digest_elsewhere(seed + 1, "2", storm) != first


@settings(max_examples=20)
@given(st.integers())
def test_any_seed_replays(seed: int) -> None:
    assert program.digest(seed) == program.digest(seed)


def test_systems_in_one_process_do_not_touch_each_other() -> None:
    alone = program.digest(5)
    with (
        wt.SimulatedSystem(5, network=wt.network.lognormal("300us")) as one,
        wt.SimulatedSystem(6, network=wt.network.lognormal("300us")) as other,
        wt.LiveSystem(5) as live,
    ):
        program.play(other)
        program.play(live)
        program.play(one)
    assert one.events.digest == alone
    assert other.events.digest == program.digest(6)


def test_a_constant_network_gives_the_run_of_any_function_that_says_the_same() -> None:
    def digest(network: Any) -> str:
        with wt.SimulatedSystem(5, network=network) as system:
            program.play(system)
        return system.events.digest

    assert digest(wt.network.constant("300us")) == digest(lambda *judged: 300)
    assert digest(wt.network.constant("300us")) != digest(lambda *judged: 301)


def test_one_more_actor_changes_nothing_for_the_others() -> None:
    def events(extra: bool) -> list[Any]:
        with wt.SimulatedSystem(9, network=wt.network.uniform("1ms", "2ms")) as system:
            if extra:
                system.spawn(Notebook, "bystander", node="elsewhere")
            program.play(system)
            return [
                (event.time_us, event.kind, event.actor, event.count)
                for event in system.events.of("caught", "answered", "retried")
            ]

    assert events(extra=True) == events(extra=False)


@attrs.frozen
class Word:
    """A numbered message."""

    number: int


class Gossip(wt.Actor):
    """Passes each word on to a few others, recording both ends of every message."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.friends: list[wt.Ref] = []

    @wt.receives(Word)
    def on_word(self, word: Word) -> None:
        self.record("heard", count=word.number)
        if word.number < 2_000:
            for friend in self.random.sample(self.friends, 2):
                number = word.number * 2 + self.friends.index(friend) % 2
                self.record("said", count=number)
                self.send(friend, Word(number))


@pytest.mark.parametrize("seed", range(3))
def test_lamport_time_grows_along_every_message_and_within_every_actor(
    engine: Any, seed: int
) -> None:
    with engine(seed=seed) as system:
        names = [f"gossip-{number}" for number in range(6)]
        refs = [system.spawn(Gossip, name, 6, node=f"node-{i % 3}") for i, name in enumerate(names)]
        for ref in refs:
            ref.host.actor.friends = refs
        refs[0].tell(Word(1))
        system.run_until_idle(timeout=60)
        said: dict[int, list[int]] = {}
        latest: Counter[str] = Counter()
        heard = 0
        for event in system.events:
            if event.actor is None:
                continue
            assert event.lamport > latest[event.actor], event
            latest[event.actor] = event.lamport
            if event.kind == "said":
                said.setdefault(event.count, []).append(event.lamport)
        for event in system.events.of("heard"):
            if event.count > 1:
                heard += 1
                assert event.lamport > min(said[event.count]) + 1
    assert heard > 1_000
