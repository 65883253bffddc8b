"""The shell as its users meet it: through a pipe, from a file, at a prompt, line by line."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.output.plain_text import PlainTextOutput

import wavetank as wt
from wavetank import shell
from wavetank.shell import Names, run_line
from wavetank.shell_language import COMMANDS
from wavetank.shell_session import Session


@pytest.fixture
def session() -> Iterator[Session]:
    """A simulated cluster of three brokers, with nothing in it."""
    session = Session(3, simulated=True, seed=7)
    with session.cluster:
        yield session


def do(session: Session, script: str) -> list[str]:
    """Carry out lines; what they print, line by line."""
    said = [run_line(session, line) for line in script.strip().splitlines()]
    return [line for text in said if text for line in text.splitlines()]


def refused(session: Session, line: str) -> str:
    with pytest.raises(wt.WavetankError) as caught:
        run_line(session, line)
    return str(caught.value)


def last(session: Session, script: str) -> list[str]:
    """What the last line of a script prints."""
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

# Through a pipe and from a file

TRIBUTARY = """\
# Two kinds of producers, a group that rebalances, a controlled replay.
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
replay ann orders 3 offset=0
delete consumer bob
show lag billing
exit
this is never read
"""

TOLD = """\
topic orders has 4 partitions
producer desk allocates by manual
producer till allocates by manual
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
consumer bob is gone
ann owns orders-0, orders-1, orders-2, orders-3
partition  lag
orders-0   0
orders-1   0
orders-2   0
orders-3   0
all        0
"""


def run_shell(*arguments: str, script: str = "", cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wavetank.shell", *arguments],
        cwd=cwd, input=script, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_a_script_through_a_pipe_prints_answers_and_nothing_else(tmp_path: Path) -> None:
    done = run_shell("--simulated", script=TRIBUTARY, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == TOLD


def test_a_script_on_threads_says_the_same(tmp_path: Path) -> None:
    done = run_shell(script=TRIBUTARY, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == TOLD


def test_a_file_stops_at_its_first_error_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text(
        "create topic a\n# fine so far\nshow topik a\ncreate topic b"
    )
    done = run_shell("--simulated", "play.txt", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == "topic a has 1 partition\n"
    hint = "unknown command 'show topik': did you mean 'show topic'?"
    assert done.stderr == f"play.txt, line 3: {hint}\n"


@pytest.mark.parametrize(
    ("content", "brokers", "reason"),
    [
        (None, 1, "play.txt: No such file or directory"),
        (b"\xff\xfe", 1, "play.txt: expected text in UTF-8"),
        (b"show topics", 0, "brokers = 0: expected 1 or more"),
    ],
)
def test_what_cannot_start_says_why(
    content: bytes | None,
    brokers: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("play.txt").write_bytes(content)
    assert shell.main("play.txt", brokers, True, 7) == 1
    assert capsys.readouterr().err.startswith(reason)


# Topics and producers


def test_values_are_read_as_the_type_of_their_topic(session: Session) -> None:
    do(session, "create producer p")
    json = ("json", "'[1, null]'", [1, None])
    for kind, text, value in [("str", "12", "12"), ("int", "12", 12), ("float", "1.5", 1.5), json]:
        do(session, f"create topic {kind}s type={kind}\nproduce p {kind}s {text}")
        ((record,),) = session.cluster.topic(f"{kind}s").contents
        assert record.value == value
        assert type(record.value) is type(value)


def test_a_value_of_another_type_is_refused(session: Session) -> None:
    do(session, "create producer p\ncreate topic n type=int\ncreate topic j type=json")
    assert refused(session, "produce p n dozen") == "value = 'dozen': expected int, as n has it"
    assert refused(session, 'produce p j {"a": 1}').endswith(
        "'1}' is too much; " + usage("produce")
    )
    assert refused(session, "produce p j {a}").endswith("as j has it, put into single quotes")


def usage(name: str) -> str:
    return f"usage: {COMMANDS[tuple(name.split())].usage}"


def test_a_topic_made_again_takes_values_of_its_new_type(session: Session) -> None:
    script = "create topic n type=int\ncreate producer p\nproduce p n 1\ndelete topic n"
    do(session, script + "\ncreate topic n")
    assert do(session, "produce p n one") == ["stored at n-0@0"]


def test_a_value_may_look_like_an_option(session: Session) -> None:
    do(session, "create topic t\ncreate producer p\nproduce p t key=5 key=a")
    ((record,),) = session.cluster.topic("t").contents
    assert (record.key, record.value) == ("a", "key=5")


def test_a_file_of_lines_becomes_records_in_order(session: Session, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo words\n#three\n")
    do(session, "create topic t\ncreate producer p")
    assert do(session, f"produce from {tmp_path}/lines p t") == ["stored 3 records in t"]
    assert [r.value for r in session.cluster.topic("t").contents[0]] == [
        "one",
        "two words",
        "#three",
    ]


def test_no_line_of_a_file_is_sent_if_one_is_wrong(session: Session, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("1\n2\nx\n")
    do(session, "create topic t type=int\ncreate producer p")
    assert "lines, line 3: value = 'x': expected int" in refused(
        session, f"produce from {tmp_path}/lines p t"
    )
    assert session.cluster.topic("t").contents == ((),)


def test_records_produced_in_parallel_are_stored_at_the_same_time(session: Session) -> None:
    do(session, SHOP + "create producer till partitioner=manual\nrun 1")
    do(session, "parallel produce (desk, orders, a, partition=0), (till, orders, b, partition=1)")
    first, second, *_ = session.cluster.topic("orders").contents
    assert first[0].timestamp_us == second[0].timestamp_us
    assert (first[0].producer, second[0].producer) == ("desk", "till")


def test_new_partitions_take_records(session: Session) -> None:
    do(session, SHOP)
    assert "expected 0 to 3 of orders" in refused(session, "produce desk orders x partition=5")
    assert last(session, "add partitions orders 6\nproduce desk orders x partition=5") == [
        "stored at orders-5@0"
    ]


def test_a_value_stays_on_its_line(session: Session) -> None:
    do(session, SHOP)
    run_line(session, "produce desk orders 'a\nb\x1b[31m' partition=0")
    assert do(session, "consume ann") == ['orders-0@0 - "a\\nb\\u001b[31m"']


# Groups and consumers


def test_consuming_is_limited_to_a_number_and_a_partition(session: Session) -> None:
    do(session, SHOP)
    for value in "abc":
        for partition in (0, 1):
            do(session, f"produce desk orders {value} partition={partition}")
    assert do(session, "consume ann 2 partition=orders-1") == ["orders-1@0 - a", "orders-1@1 - b"]
    assert do(session, "consume ann partition=orders-1") == ["orders-1@2 - c"]
    assert len(do(session, "consume ann")) == 3
    assert do(session, "consume ann timeout=100ms") == ["nothing for ann"]
    assert "expected 0 to 3 of orders" in refused(session, "consume ann partition=orders-9")


def test_what_is_paused_stays_paused_while_one_partition_is_consumed(session: Session) -> None:
    do(session, SHOP + "pause ann orders-0")
    do(session, "produce desk orders a partition=0\nproduce desk orders b partition=1")
    assert do(session, "consume ann partition=orders-1") == ["orders-1@0 - b"]
    assert do(session, "consume ann") == ["nothing for ann"]
    assert last(session, "resume ann orders-0\nconsume ann") == ["orders-0@0 - a"]


def test_what_is_committed_is_not_consumed_again_after_a_crash(session: Session) -> None:
    do(session, SHOP)
    do(session, "\n".join(f"produce desk orders {value} partition=0" for value in "abc"))
    assert last(session, "consume ann 2\ncommit ann")[0].startswith("committed orders-0@2,")
    do(session, "consume ann\ncrash node ann\nrestart node ann")
    assert do(session, "consume ann timeout=60") == ["orders-0@2 - c"]


def test_a_rebalance_waits_for_who_is_in_the_middle_of_records(session: Session) -> None:
    do(session, SHOP + "produce desk orders a partition=0\nconsume ann 1")
    waits = "billing rebalances once ann has consumed again or committed"
    assert do(session, "create consumer bob group=billing") == [waits]
    assert last(session, "commit ann\nrun 5\nshow group billing") == [
        "group billing: Stable, generation 2, range (eager)",
        "partition  owner  lag",
        "orders-0   ann    0",
        "orders-1   ann    0",
        "orders-2   bob    0",
        "orders-3   bob    0",
    ]


def test_seek_and_replay_go_back(session: Session) -> None:
    do(session, SHOP + "produce desk orders a partition=0\nrun 60")
    do(session, "produce desk orders b partition=0\nconsume ann")
    assert do(session, "replay ann orders 0 since=60") == ["orders-0@1 - b"]
    assert do(session, "replay ann orders 1 offset=0") == ["nothing to replay in orders-1"]
    assert do(session, "seek ann orders 0 1") == ["ann goes on at orders-0@1"]
    assert do(session, "consume ann") == ["orders-0@1 - b"]
    assert last(session, "seek ann orders 0 earliest\nconsume ann 1") == ["orders-0@0 - a"]
    assert "expected 0 to 2" in refused(session, "seek ann orders 0 9")


def test_a_consumer_leaves_joins_and_changes_its_topics(session: Session) -> None:
    do(session, SHOP + "create topic refunds\ncreate consumer bob group=billing")
    all_of_them = "bob owns orders-0, orders-1, orders-2, orders-3"
    assert do(session, "leave ann") == ["ann left billing", all_of_them]
    assert do(session, "join ann")[0] == "ann owns orders-0, orders-1"
    assert do(session, "subscribe ann refunds") == ["ann owns refunds-0", all_of_them]
    assert do(session, "unsubscribe ann") == ["ann has no topic", all_of_them]
    assert do(session, "subscribe ann orders")[0] == "ann owns orders-0, orders-1"


def test_a_new_group_can_begin_with_what_comes_after_it(session: Session) -> None:
    do(session, SHOP + "produce desk orders old partition=0")
    do(session, "create group late topics=orders start=latest\ncreate consumer eve group=late")
    assert last(session, "produce desk orders new partition=0\nconsume eve") == ["orders-0@1 - new"]


def test_records_are_acknowledged_and_given_back_one_by_one(session: Session) -> None:
    do(session, CREW + "produce boss jobs dig\nproduce boss jobs fly key=x")
    assert do(session, "consume ann") == ["jobs-0@0 - dig", "jobs-0@1 x fly"]
    assert do(session, "ack ann jobs-0@0") == ["ann acknowledged 1 record"]
    assert do(session, "nack ann delay=5 reason='no wings'") == ["ann gave back 1 record"]
    assert refused(session, "ack ann") == "ann has nothing to settle: consume first"
    assert do(session, "consume bob timeout=1") == ["nothing for bob"]
    assert do(session, "consume bob timeout=5") == ["jobs-0@1 x fly (retry 1)"]
    assert do(session, "nack bob reason='no wings'\nrun 1\nshow dead letters crew")[2:] == [
        "undone-0@0 x fly from jobs-0@1, 2 times: no wings"
    ]


def test_records_of_a_deleted_topic_need_not_be_settled(session: Session) -> None:
    do(session, CREW + "produce boss jobs dig\nconsume ann\ndelete topic jobs")
    assert refused(session, "ack ann") == "ann has nothing to settle: consume first"


def test_a_deleted_consumer_can_be_made_again(session: Session) -> None:
    do(session, SHOP + "delete consumer ann")
    assert refused(session, "consume ann") == "unknown consumer 'ann': there is no consumer yet"
    assert do(session, "create consumer ann group=billing") == [
        "ann owns orders-0, orders-1, orders-2, orders-3"
    ]


# Looking and breaking


def test_topics_groups_and_events_can_be_shown(session: Session) -> None:
    assert do(session, "show topics\nshow groups") == ["no topics yet", "no groups yet"]
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
    assert do(session, "show lag billing")[-1] == "all        1"
    (event,) = do(session, "show events 1")
    assert event.endswith("appended broker-1 orders-1 0 to 0 desk")
    assert len(do(session, "show events")) == 10


def test_a_cluster_can_be_looked_at_while_a_broker_is_down(session: Session) -> None:
    do(session, SHOP + "crash node broker-1")
    shown = do(session, "show cluster")
    assert shown[1:3] == ["not running: broker-1 (crashed)", "without a leader for now: orders-1"]
    before = session.cluster.now
    reason = refused(session, "show topic orders")
    assert reason == "orders-1 without a leader for now; not running: broker-1 (crashed)"
    assert session.cluster.now == before
    assert last(session, "run 20\nshow topic orders")[1].startswith("orders-1 on broker-")
    assert last(session, "restart node broker-1\nshow cluster")[1].startswith("brokers: ")


def test_what_does_not_run_says_how_to_help_it(session: Session) -> None:
    do(session, SHOP + "crash node desk\npause node ann")
    assert refused(session, "produce desk orders x") == "desk is crashed: restart node desk first"
    assert refused(session, "consume ann") == "ann is paused: resume node ann first"
    assert do(session, "resume node ann\nconsume ann") == ["ann is up", "nothing for ann"]


def test_a_cut_link_is_felt_until_it_is_healed(session: Session) -> None:
    do(session, SHOP + "cut desk broker-0 hold")
    late = "not stored within 10 s; desk goes on trying"
    assert refused(session, "produce desk orders x partition=0") == late
    assert last(session, "heal desk broker-0\nrun 1\nconsume ann") == ["orders-0@0 - x"]


def test_a_broker_can_join_and_time_pass(session: Session) -> None:
    assert do(session, "add broker") == ["broker-3 joined"]
    now = session.cluster.now
    assert do(session, "run 2h") == [f"time: {now + 7200:.3f} s"]


def test_no_broker_joins_while_another_is_down(session: Session) -> None:
    do(session, "crash node broker-1")
    reason = "broker-1 is crashed: restart node broker-1 first"
    assert refused(session, "add broker") == reason
    assert last(session, "restart node broker-1\nadd broker") == ["broker-3 joined"]


def test_what_gets_no_answer_says_who_does_not_run(session: Session) -> None:
    do(session, "pause node controller")
    reason = "no answer in time; not running: controller (paused)"
    assert refused(session, "create topic a") == reason


# Mistakes


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("creat topic x", "unknown command 'creat': did you mean 'create'?"),
        ("create", "create what? There is create topic, create producer, create group"),
        ("create topic", "create topic: NAME is missing; usage: create topic NAME [partitions=N]"),
        ("create topic a b", "create topic: 'b' is too much"),
        ("create topic a partitons=3", "unknown option of create topic 'partitons': did you mean"),
        ("create topic a partitions=x", "partitions = 'x': expected a whole number"),
        ("create topic a partitions=0", "topic 'a': partitions = 0: expected 1 or more"),
        ("create topic a partitions=1 partitions=2", "create topic: partitions is there twice"),
        ("create topic a type=strr", "unknown type 'strr': did you mean 'str'?"),
        ("create topic orders", "topic 'orders' exists already"),
        ("create topic 'a b'", "topic = 'a b': expected letters, digits"),
        ("create topic a 'b", '"create topic a \'b": no closing quotation'),
        ("create producer ann", "producer = 'ann': expected another name, as this one is taken"),
        ("create producer from", "producer = 'from': expected letters"),
        ("create group g", "create group: topics=A,B is missing"),
        ("create group g topics=order", "unknown topic 'order': did you mean 'orders'?"),
        ("create group g topics=orders sesion_timeout_ms=5", "unknown option of create group"),
        ("create group g topics=orders max_poll_records=x", "max_poll_records = 'x': expected"),
        ("create consumer c", "create consumer: group=GROUP is missing"),
        ("create consumer c group=biling", "unknown group 'biling': did you mean 'billing'?"),
        ("produce desk orders", "produce: VALUE is missing"),
        ("produce desk orders x", "partition = None: expected a number from 0 to 3, for this"),
        ("produce desk orders x headers=a", "headers = 'a': expected pairs such as a:b,c:d"),
        ("produce from nowhere.txt desk orders", "nowhere.txt: No such file or directory"),
        ("parallel produce desk orders x", "parallel produce: expected parts in parentheses"),
        ("parallel produce (desk, orders)", "(desk, orders): expected (PRODUCER, TOPIC, VALUE)"),
        ("parallel consume (ann), (ann)", "parallel consume: expected each consumer once"),
        ("consume anne", "unknown consumer 'anne': did you mean 'ann'?"),
        ("consume ann 0", "N = 0: expected 1 or more"),
        ("consume ann timeout=soon", "timeout = 'soon': expected seconds or a text"),
        ("consume ann partition=orders", "partition = 'orders': expected one such as orders-0"),
        ("ack ann", "group 'billing' commits: expected one made with acks"),
        ("replay ann orders 0", "replay: expected either since (a time) or offset"),
        ("rebalance billing rang", "unknown ASSIGNOR 'rang': did you mean 'range'?"),
        ("crash node brokr-0", "unknown node 'brokr-0': did you mean 'broker-0'?"),
        ("cut ann ann", "link 'ann' to 'ann': expected two different nodes"),
        ("restart node ann", "node 'ann' is up: only a crashed one restarts"),
        ("run -1", "SECONDS = -1.0: expected zero or more"),
        ("show dead letters billing", "group 'billing' has no dead_letter_topic"),
        ("help me", "unknown command 'me'"),
    ],
)
def test_a_mistake_is_one_clear_line(session: Session, line: str, reason: str) -> None:
    do(session, SHOP)
    said = refused(session, line)
    assert said.startswith(reason)
    assert "\n" not in said
    assert do(session, "consume ann timeout=0") == ["nothing for ann"]


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
def test_no_line_can_do_worse_than_to_be_refused(lines: list[str]) -> None:
    session = Session(2, simulated=True, seed=7)
    with session.cluster:
        do(session, SHOP)
        for line in lines:
            with suppress(wt.WavetankError):
                assert isinstance(run_line(session, line), str)


# Help and completion


def test_every_command_has_help_with_an_example_that_it_understands(session: Session) -> None:
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
        ("crash node b", ["broker-0", "broker-1", "broker-2"]),
        ("subscribe ann orders r", ["refunds"]),
        ("nonsense ", []),
    ],
)  # fmt: skip
def test_completion_knows_commands_options_and_names(
    session: Session, typed: str, expected: list[str]
) -> None:
    do(session, SHOP + "create topic refunds")
    found = list(Names(session).get_completions(Document(typed), None))  # type: ignore[arg-type]
    assert [each.text for each in found] == expected


# At a prompt


def at_a_prompt(session: Session, keys: str) -> str:
    """Type these keys; all that the screen shows."""
    screen = StringIO()
    with create_pipe_input() as keyboard:
        keyboard.send_text(keys)
        with create_app_session(input=keyboard, output=PlainTextOutput(screen)):
            assert shell.interact(session) == 0
    return screen.getvalue()


def test_a_person_makes_mistakes_and_goes_on_until_ctrl_d(session: Session) -> None:
    seen = at_a_prompt(session, "create topic a\rshow topik a\rrubbish\x03show topics\r\x04")
    assert "topic a has 1 partition" in seen
    assert "did you mean 'show topic'?" in seen
    assert "a      1           str   delete" in seen


def test_the_tab_key_completes_a_name(session: Session) -> None:
    with create_pipe_input() as keyboard:
        keyboard.send_text("create topic orders\rdelete topic o\t\rexit\r")
        with create_app_session(input=keyboard, output=DummyOutput()):
            assert shell.interact(session) == 0
    assert len(session.cluster.events.of("topic_deleted")) == 1


def press_ctrl_c_while_time_passes(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    system = session.cluster.system
    run = system.run

    def interrupted(*arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        run(*arguments, **options)

    monkeypatch.setattr(system, "run", interrupted)


@pytest.mark.parametrize("simulated", [True, False])
def test_ctrl_c_ends_a_command_and_not_the_shell(
    simulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(1, simulated=simulated, seed=7)
    with session.cluster:
        do(session, "create topic a")
        press_ctrl_c_while_time_passes(session, monkeypatch)
        assert "interrupted" in at_a_prompt(session, "run 30d\rshow topics\rexit\r")
        assert session.cluster.now < 60
        monkeypatch.undo()
        assert do(session, "delete topic a") == ["topic a is gone"]


def test_ctrl_c_ends_a_script(
    monkeypatch: pytest.MonkeyPatch, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    press_ctrl_c_while_time_passes(session, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        shell.run_script(session, ["run 1h", "create topic a"], "play.txt")
    assert session.topics == {}
