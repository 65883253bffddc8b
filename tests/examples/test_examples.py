"""Every example runs and prints the expected output."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

OUTPUTS = {
    "quickstart.py": [
        "appended to partition 3 at offset 0",
        "a owns orders-0, orders-1, orders-2",
        "b owns orders-3, orders-4, orders-5",
        "20 orders polled, the first one: {'id': 5}",
        "a owns orders-0, orders-2, orders-4",
        "b owns orders-1, orders-3, orders-5",
        "brokers: broker-0, broker-1, broker-2",
        "",
        "partition  leader    epoch  start  end  state    replicas",
        "orders-0   broker-0  0      0      3    in sync  broker-0",
        "orders-1   broker-1  0      0      6    in sync  broker-1",
        "orders-2   broker-2  0      0      4    in sync  broker-2",
        "orders-3   broker-0  0      0      3    in sync  broker-0",
        "orders-4   broker-1  0      0      3    in sync  broker-1",
        "orders-5   broker-2  0      0      1    in sync  broker-2",
        "",
        "group billing: Stable, generation 3, roundrobin (eager)",
        "partition  owner  lag",
        "orders-0   a      0",
        "orders-1   b      0",
        "orders-2   a      0",
        "orders-3   b      0",
        "orders-4   a      0",
        "orders-5   b      0",
    ],
    "live.py": [
        "1000 readings handled, sum 499500, lag 0",
    ],
    "replay.py": [
        "booked [10, 20, 30, 40, 50], lag 0",
        "since noon: [40, 50]",
        "from the start: [10, 20, 30, 40, 50]",
        "lag still 0",
    ],
    "custom_assignor.py": [
        "large: 6 partitions",
        "small-1: 3 partitions",
        "small-2: 3 partitions",
    ],
    "poison.py": [
        "  36000 delivered     0 to 4",
        "  36500 nacked        0 to 4  KeyError: 'cocoa'",
        " 131577 delivered     0 to 0  retry 1",
        " 131577 delivered     1 to 1  retry 1",
        " 131577 delivered     2 to 2  retry 1",
        " 131577 delivered     3 to 3  retry 1",
        " 131577 delivered     4 to 4  retry 1",
        " 132077 acknowledged  0 to 0",
        " 133077 acknowledged  1 to 1",
        " 133077 acknowledged  3 to 4",
        " 133077 nacked        2 to 2  KeyError: 'cocoa'",
        " 333846 delivered     2 to 2  retry 2",
        " 334346 nacked        2 to 2  KeyError: 'cocoa'",
        " 336346 dead_lettered 2 to 2  KeyError: 'cocoa'",
        "paid: {0: 3, 1: 4, 3: 3, 4: 4}, lag: 0",
        "{'id': 2, 'item': 'cocoa'} was delivered 3 times, last error: KeyError: 'cocoa'",
        "cocoa has a price now, 1 order republished",
        "paid: {0: 3, 1: 4, 3: 3, 4: 4, 2: 5}, lag: 0",
    ],
    "hot_key.py": [
        "hottest keys: 0 (13%), 1 (7%), 2 (4%), 3 (3%)",
        "until  4 s: ann 39%, bob 18%, cai 17%, dee 26%; then 7 slots move",
        "until  9 s: ann 27%, bob 22%, cai 25%, dee 26%; then 1 slots move",
        "until 30 s: ann 26%, bob 23%, cai 26%, dee 26%",
        "963 keys, each in order: 955 always with one consumer, 8 with a second one after a move",
    ],
}
"""The output of each example."""


def test_the_output_of_every_example_is_listed_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(OUTPUTS)


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_example_prints_its_expected_output(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == OUTPUTS[name]
    assert "Traceback" not in done.stderr
