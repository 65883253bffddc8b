"""How systems end: threads gone, event log whole, whatever happens."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest

import wavetank as wt
from helpers.notebook import Note, Notebook, Pass
from wavetank.model.events.run_directory import read_events, read_info


@attrs.frozen
class Tick:
    """What timers send in these tests."""


def start(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """Run a program of a user's in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        # A shell starts background jobs with Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def interrupt(program: "subprocess.Popen[str]") -> str:
    """Press Ctrl-C once the program says that it runs; what it says to that."""
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "running\n"
        program.send_signal(signal.SIGINT)
        try:
            return program.communicate(timeout=30)[1]
        finally:
            program.kill()


def test_two_hundred_live_systems_leave_no_thread_behind() -> None:
    before = threading.active_count()
    for number in range(200):
        with wt.LiveSystem(seed=number, network=wt.network.constant("100us")) as system:
            a, b = system.spawn(Notebook, "a", node="l"), system.spawn(Notebook, "b", node="r")
            a.tell(Pass(b, "x"))
            if number % 3 == 0:
                system.crash("r")
                system.restart("r")
            if number % 3 == 1:
                system.pause("r")
    assert threading.active_count() == before


def test_the_threads_of_stopped_and_crashed_actors_end_while_the_system_goes_on() -> None:
    with wt.LiveSystem() as system:
        before = threading.active_count()
        books = [system.spawn(Notebook, f"book-{i}", node=f"n{i % 2}") for i in range(10)]
        assert threading.active_count() == before + 10
        for book in books[::2]:
            book.stop()
        system.crash("n1")
        system.run_until(lambda: threading.active_count() == before, timeout=20)


def test_stopping_ends_actors_last_started_first(engine: Any) -> None:
    with engine() as system:
        for name in "abc":
            system.spawn(Notebook, name)
    assert [event.actor for event in system.events.of("closed")] == ["c", "b", "a"]


def test_stopping_gives_up_on_a_live_handler_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wavetank.actors.engine.live.STOP_TIMEOUT_S", 0.05)
    free = threading.Event()

    class Stuck(wt.Actor):
        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            free.wait()

    with wt.LiveSystem() as system:
        system.spawn(Stuck, "stuck").tell(Note(""))
        system.run(for_=0.02)
    assert "Stuck (stuck) is still running" in caplog.text
    assert [event.reason for event in system.events.of("stopped")] == ["stuck"]
    free.set()


def test_an_error_in_the_users_program_closes_the_log_and_is_noted(
    engine: Any, tmp_path: Path
) -> None:
    def users_program(system: Any) -> None:
        with system:
            system.spawn(Notebook, "book").tell(Note("x"))
            system.run_until_idle(timeout=20)
            _ = 1 / 0

    system = engine(seed=4, out=tmp_path / "run")
    with pytest.raises(ZeroDivisionError):
        users_program(system)
    info = read_info(tmp_path / "run")
    assert (info.state, info.error) == ("failed", "ZeroDivisionError: division by zero")
    assert (info.seed, info.engine) == (4, system.engine)
    assert "noted" in read_events(tmp_path / "run")["kind"].to_pylist()
    assert info.digest == system.events.digest


def test_a_run_directory_says_what_was_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with wt.SimulatedSystem(seed=3, out=out, scenario={"name": "test"}) as system:
        system.spawn(Notebook, "book").tell(Note("x"))
        system.run(for_=90)
    info = json.loads((out / "run.json").read_text())
    assert info["scenario"] == {"name": "test"}
    assert (info["seed"], info["engine"], info["state"]) == (3, "simulated", "finished")
    assert info["virtual_us"] == 90_000_000
    assert info["events"] == len(system.events) == 4
    assert set(info["versions"]) >= {"wavetank", "python", "pykka"}


def test_on_disk_and_in_memory_give_the_same_events(tmp_path: Path) -> None:
    logs = []
    for out in (None, tmp_path / "run"):
        with wt.SimulatedSystem(seed=3, out=out) as system:
            a, b = system.spawn(Notebook, "a", node="l"), system.spawn(Notebook, "b", node="r")
            a.tell(Pass(b, "x"))
            system.run_until_idle()
        logs.append(system.events)
    assert list(logs[0]) == list(logs[1])
    assert logs[0].digest == logs[1].digest


LIVE_FOR_EVER = """
import sys
import attrs, wavetank as wt
from helpers.notebook import Note, Notebook

class Clock(Notebook):
    def started(self):
        self.every(1_000, Note("tick"))

with wt.LiveSystem(out=sys.argv[1]) as system:
    clocks = [system.spawn(Clock, f"clock-{i}") for i in range(5)]
    system.run_until(lambda: len(system.events.of("noted")) > 20)
    print("running", flush=True)
    {wait}
"""


@pytest.mark.parametrize(
    "wait",
    [
        "system.run(for_=600)",
        "system.run_until(lambda: False)",
        "clocks[0].ask(Note('no answer'))",
    ],
)
def test_ctrl_c_ends_a_live_system_cleanly_whatever_it_waits_for(tmp_path: Path, wait: str) -> None:
    program = start(LIVE_FOR_EVER.replace("{wait}", wait), str(tmp_path / "run"))
    errors = interrupt(program)
    assert program.returncode == -signal.SIGINT
    assert errors.strip().endswith("KeyboardInterrupt")
    info = read_info(tmp_path / "run")
    assert info.state == "interrupted"
    events = read_events(tmp_path / "run")
    assert len(events) == info.events
    assert events["kind"].to_pylist().count("closed") == 5


def test_ctrl_c_ends_a_simulation_and_leaves_its_log_whole(tmp_path: Path) -> None:
    code = LIVE_FOR_EVER.replace("LiveSystem", "SimulatedSystem").replace(
        "{wait}", "system.run(for_=10**7)"
    )
    program = start(code, str(tmp_path / "run"))
    interrupt(program)
    assert program.returncode == -signal.SIGINT
    assert read_info(tmp_path / "run").state == "interrupted"
    assert len(read_events(tmp_path / "run")) == read_info(tmp_path / "run").events


def test_a_system_that_nobody_stops_lets_the_program_end_with_a_whole_log(
    tmp_path: Path,
) -> None:
    code = """
import sys, wavetank as wt
from helpers.notebook import Note, Notebook
system = wt.LiveSystem(out=sys.argv[1])
book = system.spawn(Notebook, "book")
book.tell(Note("x"))
system.run_until(lambda: system.events.of("noted"))
"""
    program = start(code, str(tmp_path / "run"))
    _, errors = program.communicate(timeout=30)
    assert (program.returncode, errors) == (0, "")
    assert read_info(tmp_path / "run").state == "interrupted"
    assert "noted" in read_events(tmp_path / "run")["kind"].to_pylist()


def test_a_full_disk_at_the_exit_of_a_program_is_one_line(tmp_path: Path) -> None:
    code = """
import resource, sys, wavetank as wt
system = wt.SimulatedSystem(out=sys.argv[1])
system.spawn(wt.Actor, "idler")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
"""
    program = start(code, str(tmp_path / "run"))
    _, errors = program.communicate(timeout=30)
    assert program.returncode == 0
    assert re.fullmatch(r"cannot write \S+: File too large\n", errors)


def test_a_simulation_that_nobody_stops_leaves_a_whole_log_too(tmp_path: Path) -> None:
    code = """
import sys, wavetank as wt
system = wt.SimulatedSystem(out=sys.argv[1])
system.spawn(wt.Actor, "idler")
"""
    program = start(code, str(tmp_path / "run"))
    _, errors = program.communicate(timeout=30)
    assert (program.returncode, errors) == (0, "")
    assert read_events(tmp_path / "run")["kind"].to_pylist() == ["started"]


def test_a_live_run_can_be_followed_on_disk_while_it_goes_on(tmp_path: Path) -> None:
    with wt.LiveSystem(out=tmp_path / "run") as system:
        system.spawn(Notebook, "book").tell(Note("x"))
        system.run_until(lambda: len(read_events(tmp_path / "run", ["noted"])) == 1, timeout=20)
        assert read_info(tmp_path / "run").state == "running"


def test_a_handler_that_cannot_spawn_because_its_system_stops_has_not_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = threading.Event()

    class Late(wt.Actor):
        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            running.set()
            while not system.stopped:
                pass
            self.spawn(Notebook, "too late")

    with wt.LiveSystem() as system:
        system.spawn(Late, "late").tell(Note(""))
        assert running.wait(20)
    assert not system.events.of("failed")
    assert not caplog.records
    assert [event.reason for event in system.events.of("stopped")] == ["stopped"]


MANY = """
import resource
import attrs, wavetank as wt

@attrs.frozen
class Hello:
    pass

class Polite(wt.Actor):
    def __init__(self, neighbour):
        self.neighbour = neighbour
        self.greeted = 0

    def started(self):
        self.after(1_000, Hello())

    @wt.receives(Hello)
    def on_hello(self, hello):
        self.greeted += 1
        if self.neighbour is not None and self.greeted < 3:
            self.send(self.neighbour, hello)

with wt.SimulatedSystem(seed=1) as system:
    ref = None
    for number in range(100_000):
        ref = system.spawn(Polite, f"polite-{number}", ref, node=f"node-{number % 100}")
    system.run_until_idle()
    greeted = sum(ref.host.actor.greeted for ref in system.refs.values())
print(greeted, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, len(system.events))
"""


def test_a_hundred_thousand_actors_work_in_less_than_a_gigabyte() -> None:
    program = start(MANY)
    output, errors = program.communicate(timeout=110)
    assert errors == ""
    greeted, megabytes, events = map(int, output.split())
    assert greeted > 200_000
    assert events == 200_000
    assert megabytes < 1_024
