"""The shell: scripts, single commands, errors, completion and the prompt."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.output.plain_text import PlainTextOutput

import wavetank as wt
from helpers.command_line import wavetank_process
from wavetank.cli.exit_status import BAD_INPUT, FAILURE
from wavetank.cli.shell.command_table import COMMANDS
from wavetank.cli.shell.completion import ShellCompleter
from wavetank.cli.shell.session import ShellSession
from wavetank.cli.shell.shell import run_line, run_prompt, run_script


@pytest.fixture
def session() -> Iterator[ShellSession]:
    """An empty simulated cluster with three brokers."""
    session = ShellSession(3, simulated=True, seed=7)
    with session.cluster:
        yield session


def do(session: ShellSession, script: str) -> list[str]:
    """Run the lines of a script; return all lines that they print."""
    outputs = [run_line(session, line) for line in script.strip().splitlines()]
    return [line for output in outputs if output for line in output.splitlines()]


def error_of(session: ShellSession, line: str) -> str:
    """Run a line that must fail; return its error."""
    with pytest.raises(wt.errors.WavetankError) as caught:
        run_line(session, line)
    return str(caught.value)


def last(session: ShellSession, script: str) -> list[str]:
    """Run a script; return what its last line prints."""
    *before, line = script.strip().splitlines()
    do(session, "\n".join(before))
    return run_line(session, line).splitlines()


SHOP = """
create topic orders partitions=4
create producer desk partitioner=manual
create group billing topics=orders
create consumer ann group=billing
"""

CREW = """
create topic jobs
create producer boss
create group crew topics=jobs delivery=shared max_deliveries=2 dead_letter_topic=undone
create consumer ann group=crew
create consumer bob group=crew
"""

# Scripts

SCRIPT = """\
# Two producers, a group that rebalances, and a replay.
create topic orders partitions=4
create producer desk partitioner=manual
create producer till partitioner=manual
create group billing topics=orders assignor=range
create consumer ann group=billing
create consumer bob group=billing
produce desk orders 'two books' partition=3 key=alice headers=shop:north

parallel produce (desk, orders, tea, partition=0), (till, orders, "milk, fresh", partition=2)
parallel consume (ann, orders-0), (bob, orders-2, 1)
consume bob
rebalance billing roundrobin
replay ann orders-3 offset=0
delete consumer bob
show lag billing
exit
this is never read
"""

OUTPUT = """\
topic orders has 4 partitions
producer desk has partitioner manual
producer till has partitioner manual
group billing consumes orders
ann owns orders-0, orders-1, orders-2, orders-3
ann owns orders-0, orders-1
bob owns orders-2, orders-3
stored at orders-3@0
desk: stored at orders-0@0
till: stored at orders-2@0
ann: orders-0@0 - tea
bob: orders-2@0 - milk, fresh
orders-3@0 alice two books [shop:north]
ann owns orders-0, orders-2
bob owns orders-1, orders-3
orders-3@0 alice two books [shop:north]
consumer bob deleted
ann owns orders-0, orders-1, orders-2, orders-3
partition  lag
orders-0   0
orders-1   0
orders-2   0
orders-3   0
total      0
"""


@pytest.mark.parametrize("options", [("--simulated",), ()])
def test_a_piped_script_prints_the_output_of_its_commands(options: tuple[str, ...]) -> None:
    result = wavetank_process("shell", *options, input=SCRIPT)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == OUTPUT


def test_a_script_stops_at_its_first_error_and_prints_the_line_number(tmp_path: Path) -> None:
    (tmp_path / "script.txt").write_text("create topic a\n# text\nshow topik a\ncreate topic b")
    result = wavetank_process("shell", "--simulated", "script.txt", cwd=tmp_path)
    assert result.returncode == FAILURE
    assert result.stdout == "topic a has 1 partition\n"
    hint = "unknown command 'show topik': did you mean 'show topic'?"
    assert result.stderr == f"script.txt, line 3: {hint}\n"


# Topics and producers


def test_values_have_the_type_of_their_topic(session: ShellSession) -> None:
    do(session, "create producer p")
    json = ("json", "'[1, null]'", [1, None])
    for kind, text, value in [("str", "12", "12"), ("int", "12", 12), ("float", "1.5", 1.5), json]:
        do(session, f"create topic {kind}s type={kind}\nproduce p {kind}s {text}")
        ((record,),) = session.cluster.topic(f"{kind}s").contents
        assert record.value == value
        assert type(record.value) is type(value)


def test_a_value_of_another_type_is_refused(session: ShellSession) -> None:
    do(session, "create producer p\ncreate topic n type=int\ncreate topic j type=json")
    assert (
        error_of(session, "produce p n dozen")
        == "value = 'dozen': expected int, the type of topic n"
    )
    usage = COMMANDS["produce",].usage
    assert error_of(session, 'produce p j {"a": 1}').endswith(
        f"unexpected argument '1}}'; usage: {usage}"
    )
    assert error_of(session, "produce p j {a}").endswith("the type of topic j, in single quotes")


def test_a_recreated_topic_takes_values_of_its_new_type(session: ShellSession) -> None:
    script = "create topic n type=int\ncreate producer p\nproduce p n 1\ndelete topic n"
    do(session, script + "\ncreate topic n")
    assert do(session, "produce p n one") == ["stored at n-0@0"]


def test_a_value_may_look_like_an_option(session: ShellSession) -> None:
    do(session, "create topic t\ncreate producer p\nproduce p t key=5 key=a")
    ((record,),) = session.cluster.topic("t").contents
    assert (record.key, record.value) == ("a", "key=5")


def test_the_lines_of_a_file_become_records_in_order(session: ShellSession, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo words\n#three\n")
    do(session, "create topic t\ncreate producer p")
    assert do(session, f"produce from {tmp_path}/lines p t") == ["stored 3 records in t"]
    assert [r.value for r in session.cluster.topic("t").contents[0]] == [
        "one",
        "two words",
        "#three",
    ]


def test_no_line_of_a_file_is_sent_if_one_is_invalid(session: ShellSession, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("1\n2\nx\n")
    do(session, "create topic t type=int\ncreate producer p")
    assert "lines, line 3: value = 'x': expected int" in error_of(
        session, f"produce from {tmp_path}/lines p t"
    )
    assert session.cluster.topic("t").contents == ((),)


def test_records_produced_in_parallel_are_stored_at_the_same_time(session: ShellSession) -> None:
    do(session, SHOP + "create producer till partitioner=manual\nrun 1")
    do(session, "parallel produce (desk, orders, a, partition=0), (till, orders, b, partition=1)")
    first, second, *_ = session.cluster.topic("orders").contents
    assert first[0].timestamp_us == second[0].timestamp_us
    assert (first[0].producer, second[0].producer) == ("desk", "till")


def test_records_can_be_sent_to_new_partitions(session: ShellSession) -> None:
    do(session, SHOP)
    assert "expected 0 to 3 of orders" in error_of(session, "produce desk orders x partition=5")
    assert last(session, "add partitions orders 6\nproduce desk orders x partition=5") == [
        "stored at orders-5@0"
    ]


def test_line_breaks_and_control_characters_in_a_value_are_escaped(session: ShellSession) -> None:
    do(session, SHOP)
    run_line(session, "produce desk orders 'a\nb\x1b[31m' partition=0")
    assert do(session, "consume ann") == ['orders-0@0 - "a\\nb\\u001b[31m"']


# Groups and consumers


def test_consume_can_be_limited_to_a_number_and_a_partition(session: ShellSession) -> None:
    do(session, SHOP)
    for value in "abc":
        for partition in (0, 1):
            do(session, f"produce desk orders {value} partition={partition}")
    assert do(session, "consume ann 2 partition=orders-1") == ["orders-1@0 - a", "orders-1@1 - b"]
    assert do(session, "consume ann partition=orders-1") == ["orders-1@2 - c"]
    assert len(do(session, "consume ann")) == 3
    assert do(session, "consume ann timeout=100ms") == ["no records for ann"]
    assert "expected 0 to 3 of orders" in error_of(session, "consume ann partition=orders-9")


def test_a_paused_partition_stays_paused_while_another_is_consumed(session: ShellSession) -> None:
    do(session, SHOP + "pause ann orders-0")
    do(session, "produce desk orders a partition=0\nproduce desk orders b partition=1")
    assert do(session, "consume ann partition=orders-1") == ["orders-1@0 - b"]
    assert do(session, "consume ann") == ["no records for ann"]
    assert last(session, "resume ann orders-0\nconsume ann") == ["orders-0@0 - a"]


def test_committed_records_are_not_consumed_again_after_a_crash(session: ShellSession) -> None:
    do(session, SHOP)
    do(session, "\n".join(f"produce desk orders {value} partition=0" for value in "abc"))
    assert last(session, "consume ann 2\ncommit ann")[0].startswith("committed orders-0@2,")
    do(session, "consume ann\ncrash node ann\nrestart node ann")
    assert do(session, "consume ann timeout=60") == ["orders-0@2 - c"]


def test_a_rebalance_waits_for_a_consumer_that_is_processing_records(session: ShellSession) -> None:
    do(session, SHOP + "produce desk orders a partition=0\nconsume ann 1")
    waits = "billing will rebalance: waiting for ann to consume again or commit"
    assert do(session, "create consumer bob group=billing") == [waits]
    assert last(session, "commit ann\nrun 5\nshow group billing") == [
        "group billing: Stable, generation 2, range (eager)",
        "partition  owner  lag",
        "orders-0   ann    0",
        "orders-1   ann    0",
        "orders-2   bob    0",
        "orders-3   bob    0",
    ]


def test_seek_and_replay_read_earlier_records(session: ShellSession) -> None:
    do(session, SHOP + "produce desk orders a partition=0\nrun 60")
    do(session, "produce desk orders b partition=0\nconsume ann")
    assert do(session, "replay ann orders-0 since=60") == ["orders-0@1 - b"]
    assert do(session, "replay ann orders-1 offset=0") == ["no records to replay in orders-1"]
    assert do(session, "seek ann orders-0 1") == ["ann continues at orders-0@1"]
    assert do(session, "consume ann") == ["orders-0@1 - b"]
    assert last(session, "seek ann orders-0 earliest\nconsume ann 1") == ["orders-0@0 - a"]
    assert "expected 0 to 2" in error_of(session, "seek ann orders-0 9")


def test_a_consumer_leaves_joins_and_changes_its_topics(session: ShellSession) -> None:
    do(session, SHOP + "create topic refunds\ncreate consumer bob group=billing")
    all_partitions = "bob owns orders-0, orders-1, orders-2, orders-3"
    assert do(session, "leave ann") == ["ann left billing", all_partitions]
    assert do(session, "join ann")[0] == "ann owns orders-0, orders-1"
    assert do(session, "subscribe ann refunds") == ["ann owns refunds-0", all_partitions]
    assert do(session, "unsubscribe ann") == ["ann has no topics", all_partitions]
    assert do(session, "subscribe ann orders")[0] == "ann owns orders-0, orders-1"


def test_a_new_group_can_start_with_the_next_record(session: ShellSession) -> None:
    do(session, SHOP + "produce desk orders old partition=0")
    do(session, "create group late topics=orders start=latest\ncreate consumer eve group=late")
    assert last(session, "produce desk orders new partition=0\nconsume eve") == ["orders-0@1 - new"]


def test_records_are_acked_and_nacked_one_by_one(session: ShellSession) -> None:
    do(session, CREW + "produce boss jobs dig\nproduce boss jobs fly key=x")
    assert do(session, "consume ann") == ["jobs-0@0 - dig", "jobs-0@1 x fly"]
    assert do(session, "ack ann jobs-0@0") == ["ann acknowledged 1 record"]
    assert do(session, "nack ann delay=5 reason='no wings'") == ["ann nacked 1 record"]
    assert error_of(session, "ack ann") == "ann has no records to acknowledge: consume some first"
    assert do(session, "consume bob timeout=1") == ["no records for bob"]
    assert do(session, "consume bob timeout=5") == ["jobs-0@1 x fly (retry 1)"]
    assert do(session, "nack bob reason='no wings'\nrun 1\nshow dead letters crew")[2:] == [
        "undone-0@0 x fly from jobs-0@1, 2 deliveries: no wings"
    ]


def test_records_of_a_deleted_topic_need_no_acknowledgement(session: ShellSession) -> None:
    do(session, CREW + "produce boss jobs dig\nconsume ann\ndelete topic jobs")
    assert error_of(session, "ack ann") == "ann has no records to acknowledge: consume some first"


def test_a_deleted_consumer_can_be_created_again(session: ShellSession) -> None:
    do(session, SHOP + "delete consumer ann")
    assert error_of(session, "consume ann") == "unknown consumer 'ann': there is no consumer yet"
    assert do(session, "create consumer ann group=billing") == [
        "ann owns orders-0, orders-1, orders-2, orders-3"
    ]


# Views and faults


def test_topics_groups_and_events_can_be_shown(session: ShellSession) -> None:
    assert do(session, "show topics\nshow groups") == ["no topics", "no groups"]
    do(session, SHOP + "produce desk orders tea partition=1 key=x")
    assert do(session, "show topics") == [
        "topic   partitions  type  cleanup",
        "orders  4           str   delete",
    ]
    assert do(session, "show groups") == [
        "group    topics  delivery   consumers",
        "billing  orders  exclusive  ann",
    ]
    assert do(session, "show topic orders")[:3] == [
        "orders-0 on broker-0: offsets 0 to 0",
        "orders-1 on broker-1: offsets 0 to 1",
        "  orders-1@0 x tea",
    ]
    assert do(session, "show lag billing")[-1] == "total      1"
    (event,) = do(session, "show events 1")
    assert event.endswith("appended broker-1 orders-1 0 to 0 desk")
    assert len(do(session, "show events")) == 10


def test_a_cluster_can_be_shown_while_a_broker_is_down(session: ShellSession) -> None:
    do(session, SHOP + "crash node broker-1")
    shown = do(session, "show cluster")
    assert shown[1] == "nodes down: broker-1 (crashed)"
    before = session.cluster.now
    silent = "orders-1 broker-1 does not answer; in sync: broker-1 (down)"
    assert silent in do(session, "show topic orders")
    assert session.cluster.now - before < 0.1
    do(session, "run 20")
    offline = "orders-1 no leader; offline: broker-1 (down, eligible)"
    assert offline in do(session, "show topic orders"), "no other broker has its files"
    shown = last(session, "restart node broker-1\nrun 1\nshow cluster")
    assert shown[1].startswith("brokers: ")
    assert last(session, "show topic orders")[1].startswith("orders-1 on broker-1")


def test_replicas_can_be_shown_and_moved(session: ShellSession) -> None:
    do(session, "create topic orders replication_factor=2 min_insync_replicas=2")
    assert do(session, "show topic orders") == [
        "orders-0 on broker-0: offsets 0 to 0; in sync: broker-0, broker-1"
    ]
    moving = do(session, "reassign orders-0 broker-2,broker-0 throttle=1000")
    assert moving == [
        "orders-0 led by broker-0; reassigning: broker-2 (being added, not in sync), broker-0, "
        "broker-1 (being removed)"
    ]
    assert last(session, "run 1\nelect preferred orders-0") == [
        "orders-0 led by broker-2; in sync: broker-2, broker-0"
    ]
    assert do(session, "elect preferred") == ["preferred leaders lead where they are in sync"]
    error = error_of(session, "cancel reassignment orders-0")
    assert error == "partition orders-0 is not being reassigned"
    assert do(session, "remove broker broker-2") == ["broker-2 is removed"]
    assert do(session, "show topic orders") == [
        "orders-0 on broker-1: offsets 0 to 0; in sync: broker-1, broker-0"
    ]
    assert error_of(session, "remove broker broker-2").startswith("unknown broker 'broker-2'")
    assert error_of(session, "elect unclean orders-0").startswith("partition orders-0 is led by")


def test_the_error_of_a_node_that_is_down_says_how_to_fix_it(session: ShellSession) -> None:
    do(session, SHOP + "crash node desk\npause node ann")
    assert error_of(session, "produce desk orders x") == "desk is crashed: restart node desk first"
    assert error_of(session, "consume ann") == "ann is paused: resume node ann first"
    assert do(session, "resume node ann\nconsume ann") == ["ann is up", "no records for ann"]


def test_a_cut_link_holds_records_until_it_is_healed(session: ShellSession) -> None:
    do(session, SHOP + "cut desk broker-0 hold")
    late = "not stored within 10 s; desk keeps retrying"
    assert error_of(session, "produce desk orders x partition=0") == late
    assert last(session, "heal desk broker-0\nrun 1\nconsume ann") == ["orders-0@0 - x"]


def test_a_broker_can_join_and_time_can_pass(session: ShellSession) -> None:
    assert do(session, "add broker") == ["broker-3 joined"]
    now = session.cluster.now
    assert do(session, "run 2h") == [f"time: {now + 7200:.3f} s"]


def test_no_broker_can_be_added_while_another_is_down(session: ShellSession) -> None:
    do(session, "crash node broker-1")
    reason = "broker-1 is crashed: restart node broker-1 first"
    assert error_of(session, "add broker") == reason
    assert last(session, "restart node broker-1\nadd broker") == ["broker-3 joined"]


def test_the_error_of_a_timeout_lists_the_nodes_that_are_down(session: ShellSession) -> None:
    do(session, "pause node controller")
    reason = "timed out; nodes down: controller (paused)"
    assert error_of(session, "create topic a") == reason


# Errors


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("creat topic x", "unknown command 'creat': did you mean 'create'?"),
        ("create", "incomplete command 'create': expected create topic, create producer, "),
        ("create topic", "create topic: NAME is missing; usage: create topic NAME [partitions=N]"),
        ("create topic a b", "create topic: unexpected argument 'b'"),
        ("create topic a partitons=3", "unknown option of create topic 'partitons': did you mean"),
        ("create topic a partitions=x", "partitions = 'x': expected a whole number"),
        ("create topic a partitions=0", "topic 'a': partitions = 0: expected 1 or more"),
        ("create topic a partitions=1 partitions=2", "create topic: partitions is given twice"),
        ("create topic a type=strr", "unknown type 'strr': did you mean 'str'?"),
        ("create topic orders", "topic 'orders' exists already"),
        ("create topic 'a b'", "topic = 'a b': expected letters, digits"),
        ("create topic a 'b", '"create topic a \'b": no closing quotation'),
        ("create producer ann", "producer = 'ann': this name is already in use"),
        ("create producer from", "producer = 'from': expected letters"),
        ("create group g", "create group: topics=A,B is missing"),
        ("create group g topics=order", "unknown topic 'order': did you mean 'orders'?"),
        ("create group g topics=orders sesion_timeout_ms=5", "unknown option of create group"),
        ("create group g topics=orders max_poll_records=x", "max_poll_records = 'x': expected"),
        ("create consumer c", "create consumer: group=GROUP is missing"),
        ("create consumer c group=biling", "unknown group 'biling': did you mean 'billing'?"),
        ("produce desk orders", "produce: VALUE is missing"),
        ("produce desk orders x", "partition = None: expected a number from 0 to 3, as the"),
        ("produce desk orders x headers=a", "headers = 'a': expected pairs such as a:b,c:d"),
        ("produce from nowhere.txt desk orders", "nowhere.txt: No such file or directory"),
        ("parallel produce desk orders x", "parallel produce: expected arguments in parentheses"),
        ("parallel produce (desk, orders)", "(desk, orders): expected (PRODUCER, TOPIC, VALUE)"),
        ("parallel consume (ann), (ann)", "parallel consume: expected each consumer once"),
        ("consume anne", "unknown consumer 'anne': did you mean 'ann'?"),
        ("consume ann 0", "N = 0: expected 1 or more"),
        ("consume ann timeout=soon", "timeout = 'soon': expected seconds or a text"),
        (
            "consume ann partition=orders",
            "partition = 'orders': expected TOPIC-NUMBER",
        ),
        ("ack ann", "group 'billing' commits offsets: expected a group created with acks"),
        ("replay ann orders-0", "replay: expected either since (a time) or offset"),
        ("rebalance billing rang", "unknown ASSIGNOR 'rang': did you mean 'range'?"),
        ("crash node brokr-0", "unknown node 'brokr-0': did you mean 'broker-0'?"),
        ("cut ann ann", "link 'ann' to 'ann': expected two different nodes"),
        ("restart node ann", "node 'ann' is up: only a crashed one restarts"),
        ("run -1", "SECONDS = -1.0: expected zero or more"),
        ("show dead letters billing", "group 'billing' has no dead_letter_topic"),
        ("help me", "unknown command 'me'"),
    ],
)
def test_an_error_is_one_line_and_changes_nothing(
    session: ShellSession, line: str, error: str
) -> None:
    do(session, SHOP)
    printed = error_of(session, line)
    assert printed.startswith(error)
    assert "\n" not in printed
    assert do(session, "consume ann timeout=0") == ["no records for ann"]


WORDS = [
    *sorted({word for words in COMMANDS for word in words}),
    "orders", "orders-0", "ann", "desk", "billing", "broker-0", "0", "3", "-1", "x", "''", '"', "(",
    "),", "partitions=2", "topics=orders", "group=billing", "=", "key=", "timeout=0", "offset=0",
    "orders-0@0", "roundrobin", "a,b", "#", "\\",
]  # fmt: skip


LINES = st.builds(
    lambda words, more: " ".join([*words, *more]),
    st.sampled_from(sorted(COMMANDS)),
    st.lists(st.sampled_from(WORDS), max_size=5),
)


@settings(max_examples=100)
@given(st.lists(LINES, min_size=1, max_size=12))
def test_any_line_either_runs_or_is_refused(lines: list[str]) -> None:
    session = ShellSession(2, simulated=True, seed=7)
    with session.cluster:
        do(session, SHOP)
        for line in lines:
            with suppress(wt.errors.WavetankError):
                assert isinstance(run_line(session, line), str)


# Disks


@pytest.fixture
def on_disk() -> Iterator[ShellSession]:
    """A simulated broker with its partitions on a disk, and an order in one of them."""
    session = ShellSession(1, simulated=True, seed=1, storage="disk")
    with session.cluster:
        settings = "delivery_timeout_ms=1000 request_timeout_ms=500"
        do(session, f"create topic orders\ncreate producer desk {settings}")
        do(session, "produce desk orders tea")
        yield session


def test_a_power_loss_takes_what_was_not_synced_and_a_crash_does_not(on_disk: ShellSession) -> None:
    shown = do(on_disk, "crash node broker-0\nrestart node broker-0\nrun 1\nshow topic orders")
    assert shown[-1] == "  orders-0@0 - tea"
    lost = do(on_disk, "power loss broker-0\nrestart node broker-0\nrun 1\nshow topic orders")
    assert lost[0] == "broker-0 is without power"
    assert "tea" not in lost[-1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fill disk broker-0", "the disk of broker-0 is full"),
        ("fail writes broker-0", "writes to the disk of broker-0 fail"),
    ],
)
def test_nothing_is_stored_on_a_faulty_disk_until_it_is_healed(
    on_disk: ShellSession, line: str, said: str
) -> None:
    assert do(on_disk, line) == [said]
    assert "given up after 4 attempts" in error_of(on_disk, "produce desk orders milk")
    assert do(on_disk, "heal disk broker-0\nproduce desk orders bread") == [
        "the disk of broker-0 works",
        "stored at orders-0@1",
    ]


def test_a_slow_disk_and_failing_syncs_are_faults_until_the_disk_is_healed(
    on_disk: ShellSession,
) -> None:
    assert do(on_disk, "slow disk broker-0 10\nfail syncs broker-0\nheal disk broker-0") == [
        "the disk of broker-0 takes 10 times as long",
        "syncs of the disk of broker-0 fail",
        "the disk of broker-0 works",
    ]
    faults = [e.detail for e in on_disk.cluster.events if e.kind in ("disk_changed", "disk_healed")]
    assert faults == ["slow 10.0", "slow 10.0, fail_syncs True", "healthy"]


def test_a_flipped_bit_damages_a_file(on_disk: ShellSession) -> None:
    log = "orders-0/00000000000000000000.log"
    assert do(on_disk, "flip bit broker-0") == [f"{log} is damaged at byte 0"]
    assert "unknown file 'x'" in error_of(on_disk, "flip bit broker-0 x")
    do(on_disk, "crash node broker-0\nrestart node broker-0\nrun 1")
    assert [e.kind for e in on_disk.cluster.events].count("log_truncated") == 1


def test_only_nodes_with_files_have_disk_faults(on_disk: ShellSession) -> None:
    in_memory = ShellSession(1, simulated=True, seed=1, storage="memory")
    with in_memory.cluster:
        assert error_of(in_memory, "fill disk broker-0") == (
            "node 'broker-0' has no files: expected a shell with --data-dir, or a simulated one "
            "without --storage memory"
        )
    assert "unknown node with a disk 'desk'" in error_of(on_disk, "power loss desk")
    assert "FACTOR = 'x': expected a number" in error_of(on_disk, "slow disk broker-0 x")


def test_completion_knows_the_nodes_with_disks(on_disk: ShellSession) -> None:
    completions = ShellCompleter(on_disk).get_completions(Document("power loss "), CompleteEvent())
    assert [completion.text for completion in completions] == ["broker-0", "controller"]


def test_a_shell_goes_on_where_the_last_one_on_its_data_directory_ended(tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = "create topic orders partitions=2\ncreate producer desk\nproduce desk orders tea\n"
    made = wavetank_process("shell", "--data-dir", data, "--brokers", 2, input=first)
    assert made.stdout.splitlines()[:2] == [f"{data}:", "no topics"]
    again = "create producer till\nproduce till orders milk\nshow topic orders\n"
    found = wavetank_process("shell", "--data-dir", data, input=again)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines()[:3] == [
        f"{data}:",
        "topic   partitions  records",
        "orders  2           1",
    ]
    assert "tea" in found.stdout


def test_a_second_shell_on_a_data_directory_gets_one_line(tmp_path: Path) -> None:
    with ShellSession(data_dir=tmp_path).cluster:
        refused = wavetank_process("shell", "--data-dir", tmp_path, input="")
    assert refused.returncode == BAD_INPUT
    assert refused.stderr.splitlines() == [
        f"wavetank: data_dir = '{tmp_path}': another cluster is using it; stop that one first"
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--simulated", "--data-dir", "x"], "--data-dir x: expected a live cluster"),
        (["--storage", "disk"], "--storage disk: expected --simulated, or --data-dir DIR"),
        (["--storage", "memory", "--data-dir", "x"], "--data-dir x: expected no --storage memory"),
    ],
)
def test_options_of_the_shell_that_do_not_fit_are_refused(options: list[str], text: str) -> None:
    refused = wavetank_process("shell", *options, input="")
    assert refused.returncode == BAD_INPUT
    assert text in refused.stderr


# Help and completion


def test_every_command_has_help_with_an_example(session: ShellSession) -> None:
    listed = run_line(session, "help")
    for words, command in COMMANDS.items():
        assert command.name in listed
        assert f"example: {command.example}" in run_line(session, f"help {command.name}")
        assert command.example.split()[: len(words)] == list(words)
    assert run_line(session, "help show").count("example: ") == 8


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("cre", ["create"]),
        ("create ", ["consumer", "group", "producer", "topic"]),
        ("help show to", ["topic", "topics"]),
        ("consume ", ["ann"]),
        ("consume ann ", ["partition=", "timeout="]),
        ("pause ", ["ann", "node"]),
        ("produce ", ["desk", "from"]),
        ("produce desk o", ["orders"]),
        ("create topic t ty", ["type="]),
        ("create topic t type=j", ["type=json"]),
        ("create topic t type=int pa", ["partitions="]),
        ("create group g topics=orders,re", ["topics=orders,refunds"]),
        ("create group g a", ["ack_timeout_ms=", "acks", "assignor=", "auto_commit_interval_ms=",
                              "auto_offset_reset="]),
        ("create consumer c group=", ["group=billing"]),
        ("rebalance billing r", ["range", "roundrobin"]),
        ("heal ", ["ann", "broker-0", "broker-1", "broker-2", "controller", "desk", "disk"]),
        ("power loss ", ["broker-0", "broker-1", "broker-2", "controller"]),
        ("slow ", ["disk"]),
        ("crash node b", ["broker-0", "broker-1", "broker-2"]),
        ("subscribe ann orders ", ["refunds"]),
        ("consume ann timeout=2 ", ["partition="]),
        ("consume ann 5 partition=orders-3", ["partition=orders-3"]),
        ("produce desk orders hi partition=r", ["partition=refunds-0"]),
        ("seek ann o", ["orders-0", "orders-1", "orders-2", "orders-3"]),
        ("seek ann orders-0 ", ["earliest", "latest"]),
        ("pause ann orders-0 orders-2 orders-", ["orders-1", "orders-3"]),
        ("ack ", ["ann"]),
        ("parallel consume (", ["(ann"]),
        ("parallel consume (ann, r", ["refunds-0"]),
        ("parallel consume (ann,r", ["(ann,refunds-0"]),
        ("parallel produce (desk, orders, tea), (", ["(desk"]),
        ("parallel produce (desk, orders, tea) ", []),
        ("nonsense ", []),
    ],
)  # fmt: skip
def test_completion_knows_commands_options_and_names(
    session: ShellSession, typed: str, expected: list[str]
) -> None:
    do(session, SHOP + "create topic refunds")
    completions = ShellCompleter(session).get_completions(Document(typed), CompleteEvent())
    assert [completion.text for completion in completions] == expected


def test_completion_knows_the_records_to_acknowledge(session: ShellSession) -> None:
    do(session, CREW + "produce boss jobs a\nproduce boss jobs b\nconsume ann")
    completions = ShellCompleter(session).get_completions(Document("ack ann "), CompleteEvent())
    assert [completion.text for completion in completions] == ["jobs-0@0", "jobs-0@1"]


@pytest.mark.parametrize(
    "line",
    [
        "produce desk orders hi partition=orders-1",
        "produce desk orders hi partition=1",
        "parallel produce (desk, orders, hi, partition=orders-1)",
    ],
)
def test_a_partition_is_named_in_the_same_way_everywhere(session: ShellSession, line: str) -> None:
    do(session, SHOP + line)
    assert do(session, "consume ann 1 partition=orders-1") == ["orders-1@0 - hi"]
    assert do(session, "seek ann orders-1 0") == ["ann continues at orders-1@0"]
    assert do(session, "replay ann orders-1 offset=0") == ["orders-1@0 - hi"]
    assert do(session, "pause ann orders-1") == ["ann paused orders-1"]
    wrong = error_of(session, "produce desk orders hi partition=refunds-0")
    assert wrong.endswith("unknown topic 'refunds': there is 'orders'")


# The prompt


def type_at_prompt(session: ShellSession, keys: str) -> str:
    """Type these keys; return everything that is printed."""
    screen = StringIO()
    with create_pipe_input() as keyboard:
        keyboard.send_text(keys)
        with create_app_session(input=keyboard, output=PlainTextOutput(screen)):
            run_prompt(session)
    return screen.getvalue()


def test_the_prompt_continues_after_errors_and_ctrl_c_until_ctrl_d(session: ShellSession) -> None:
    seen = type_at_prompt(session, "create topic a\rshow topik a\rrubbish\x03show topics\r\x04")
    assert "topic a has 1 partition" in seen
    assert "did you mean 'show topic'?" in seen
    assert "a      1           str   delete" in seen


def test_the_tab_key_completes_a_name(session: ShellSession) -> None:
    with create_pipe_input() as keyboard:
        keyboard.send_text("create topic orders\rdelete topic o\t\rexit\r")
        with create_app_session(input=keyboard, output=DummyOutput()):
            run_prompt(session)
    assert len(session.cluster.events.of("topic_deleted")) == 1


def press_ctrl_c_during_run(session: ShellSession, monkeypatch: pytest.MonkeyPatch) -> None:
    system = session.cluster.system
    run = system.run

    def interrupted(*arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        run(*arguments, **options)

    monkeypatch.setattr(system, "run", interrupted)


@pytest.mark.parametrize("simulated", [True, False])
def test_ctrl_c_ends_a_command_but_not_the_shell(
    simulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ShellSession(1, simulated=simulated, seed=7)
    with session.cluster:
        do(session, "create topic a")
        press_ctrl_c_during_run(session, monkeypatch)
        assert "interrupted" in type_at_prompt(session, "run 30d\rshow topics\rexit\r")
        assert session.cluster.now < 60
        monkeypatch.undo()
        assert do(session, "delete topic a") == ["topic a deleted"]


def test_ctrl_c_ends_a_script(
    monkeypatch: pytest.MonkeyPatch, session: ShellSession, capsys: pytest.CaptureFixture[str]
) -> None:
    press_ctrl_c_during_run(session, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run_script(session, ["run 1h", "create topic a"], "script.txt")
    assert session.topics == {}
