"""The shell command that reads a topic without a group."""

from collections.abc import Iterator

import pytest

from wavetank.cli.shell.session import ShellSession
from wavetank.cli.shell.shell import run_line


@pytest.fixture
def session() -> Iterator[ShellSession]:
    """A simulated cluster with a topic of five records."""
    session = ShellSession(3, simulated=True, seed=7)
    with session.cluster:
        run_line(session, "create topic orders partitions=2")
        run_line(session, "create producer desk partitioner=manual")
        for number in range(5):
            run_line(session, f"produce desk orders value-{number} partition={number % 2}")
        yield session


def lines(session: ShellSession, line: str) -> list[str]:
    return run_line(session, line).splitlines()


def test_history_prints_the_last_records(session: ShellSession) -> None:
    assert lines(session, "history orders last=2") == [
        "2 records", "orders-1@1 - value-3", "orders-0@2 - value-4",
    ]  # fmt: skip


def test_history_prints_a_page_and_how_to_go_on(session: ShellSession) -> None:
    first = lines(session, "history orders partition=0 limit=2")
    assert first == [
        "2 records", "orders-0@0 - value-0", "orders-0@1 - value-2",
        "there are more: history orders partition=0 offset=2",
    ]  # fmt: skip
    assert lines(session, "history orders partition=0 offset=2") == [
        "1 record", "orders-0@2 - value-4",
    ]  # fmt: skip
    assert lines(session, "history orders limit=1")[-1] == (
        "there are more: history orders partition=N offset=M"
    )
