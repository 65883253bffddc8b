"""The shell's commands to look at a cluster, to break it, to let time pass, and to get help."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from .actors.burial import dead_letter
from .model.durations import Duration, to_us
from .model.views import ClusterView
from .shell_commands import GROUP, TOPIC, shares_of
from .shell_language import COMMANDS, DURATION, FLAG, WHOLE, command, find, named
from .shell_session import Session, line_of

if TYPE_CHECKING:
    from .actors.groups import Group
    from .model.events import Event
    from .model.topics import TopicPartition

SLICE_US: Final = 1_000_000
"""How much virtual time passes before the shell looks whether Ctrl-C was pressed."""

NODE: Final = named("node")


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as what is in them."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


# Looking


@command("show topics", "show topics")
def show_topics(session: Session) -> str:
    """List the topics."""
    topics = session.cluster.metadata().topics
    if not topics:
        return "no topics yet"
    rows = [
        (name, topic.partitions, session.topics.get(name, "str"), topic.cleanup)
        for name, topic in sorted(topics.items())
    ]
    return table(("topic", "partitions", "type", "cleanup"), rows)


@command("show topic TOPIC", "show topic orders", takes={"TOPIC": TOPIC})
def show_topic(session: Session, topic: str) -> str:
    """Show a topic's partitions and the last records in each."""
    session.require_leaders(session.topic(topic))
    view = session.cluster.topic(topic)
    lines = []
    for partition, records in zip(view.partitions, view.contents, strict=True):
        start, end = partition.start_offset, partition.end_offset
        lines.append(f"{partition.partition} on {partition.broker}: offsets {start} to {end}")
        lines += [f"  {line_of(record)}" for record in records]
    return "\n".join(lines)


@command("show groups", "show groups")
def show_groups(session: Session) -> str:
    """List the consumer groups."""
    groups = session.cluster.groups.values()
    if not groups:
        return "no groups yet"
    rows = [
        (group.name, ", ".join(group.topics), group.delivery, ", ".join(sorted(group.consumers)))
        for group in groups
    ]
    return table(("group", "topics", "delivery", "consumers"), rows)


@command("show group GROUP", "show group billing", takes={"GROUP": GROUP})
def show_group(session: Session, group: str) -> str:
    """Show a group: its state, and who owns which partition."""
    chosen = session.group(group)
    session.require_coordinator(group)
    lags = _lags(session, chosen)
    view = chosen.describe()
    shares = shares_of(view)
    rows = []
    for partition, lag in lags.items():
        owners = [name for name, share in sorted(shares.items()) if partition in share]
        rows.append((partition, ", ".join(owners) or "-", lag))
    rule = f"{view.assignor} ({view.protocol})"
    if chosen.delivery != "exclusive":
        rule = chosen.delivery
    head = f"group {group}: {view.state}, generation {view.generation}, {rule}"
    return f"{head}\n{table(('partition', 'owner', 'lag'), rows)}"


def _lags(session: Session, group: Group) -> dict[TopicPartition, int]:
    session.require_leaders(*group.topics)
    return dict(group.lag())


@command("show lag GROUP", "show lag billing", takes={"GROUP": GROUP})
def show_lag(session: Session, group: str) -> str:
    """Show how many records a group has still to consume."""
    lags = _lags(session, session.group(group))
    return table(("partition", "lag"), [*lags.items(), ("all", sum(lags.values()))])


@command("show cluster", "show cluster")
def show_cluster(session: Session) -> str:
    """Show everything: time, nodes that are down, leaders, groups, owners, lag."""
    lines = [_time(session)]
    if session.down():
        lines.append(session.hint())
    session.require_leaders()
    missing = session.leaderless()
    if missing:
        lines.append(f"without a leader for now: {', '.join(map(str, missing))}")
        metadata = session.cluster.metadata()
        there = sorted(set(metadata.leaders) - set(missing))
        views = tuple(session.cluster.inspect(partition) for partition in there)
        lines.append(str(ClusterView(metadata.brokers, metadata.topics, views, (), {})))
    else:
        for group in session.cluster.groups:
            session.require_coordinator(group)
        lines.append(str(session.cluster.describe()))
    return "\n".join(lines)


@command("show events [N]", "show events 20", takes={"N": WHOLE})
def show_events(session: Session, number: int = 10) -> str:
    """Show the last events of the event log."""
    return "\n".join(map(_line, deque(session.cluster.events, maxlen=number)))


def _line(event: Event) -> str:
    parts = [f"{event.time_us / 1e6:.6f}", event.kind, event.node]
    if event.topic is not None:
        where = event.topic if event.partition is None else f"{event.topic}-{event.partition}"
        parts.append(where)
    if event.base_offset is not None:
        last = f" to {event.base_offset + event.count - 1}" if event.count else ""
        parts.append(f"{event.base_offset}{last}")
    parts += [event.group, event.producer, event.detail]
    return " ".join(filter(None, parts))


@command("show dead letters GROUP", "show dead letters crew", takes={"GROUP": GROUP})
def show_dead_letters(session: Session, group: str) -> str:
    """Show what a group has given up, and why."""
    chosen = session.group(group)
    session.require_leaders(*filter(None, [chosen.settings.dead_letter_topic]))
    lines = []
    for record in chosen.dead_letters():
        letter = dead_letter(record)
        origin = f"{letter.topic}-{letter.partition}@{letter.offset}"
        plain = record._replace(headers=letter.headers)
        lines.append(f"{line_of(plain)} from {origin}, {letter.deliveries} times: {letter.reason}")
    return "\n".join(lines) or f"no dead letters of {group}"


# Breaking


@command("crash node NODE", "crash node broker-1", takes={"NODE": NODE})
def crash_node(session: Session, node: str) -> str:
    """Kill a broker, producer or consumer; what it knew is gone."""
    session.cluster.system.crash(node)
    if node in session.consumers:
        session.consumers[node].drop()
    return f"{node} is crashed"


@command("restart node NODE", "restart node broker-1", takes={"NODE": NODE})
def restart_node(session: Session, node: str) -> str:
    """Start a crashed node again."""
    session.cluster.system.restart(node)
    return f"{node} is up"


@command("pause node NODE", "pause node ann", takes={"NODE": NODE})
def pause_node(session: Session, node: str) -> str:
    """Freeze a node: nothing runs there and nothing is lost."""
    session.cluster.system.pause(node)
    return f"{node} is paused"


@command("resume node NODE", "resume node ann", takes={"NODE": NODE})
def resume_node(session: Session, node: str) -> str:
    """Let a paused node go on."""
    session.cluster.system.resume(node)
    return f"{node} is up"


@command(
    "cut NODE OTHER", "cut ann broker-0 hold", takes={"NODE": NODE, "OTHER": NODE},
    one_way=FLAG, hold=FLAG,
)  # fmt: skip
def cut(session: Session, node: str, other: str, **options: bool) -> str:
    """Let nothing through between two nodes; what is sent is lost, or held until healed."""
    session.cluster.system.cut(node, other, **options)
    return f"{node} and {other} are cut off from each other"


@command("heal NODE OTHER", "heal ann broker-0", takes={"NODE": NODE, "OTHER": NODE})
def heal(session: Session, node: str, other: str) -> str:
    """Let everything through between two nodes again."""
    session.cluster.system.heal(node, other)
    return f"{node} and {other} reach each other"


@command("add broker", "add broker")
def add_broker(session: Session) -> str:
    """Let one more broker join; partitions move to it."""
    session.require_brokers()
    return f"{session.cluster.add_broker()} joined"


# Time, help, the end


@command("run SECONDS", "run 2.5", takes={"SECONDS": DURATION})
def run(session: Session, duration: Duration) -> str:
    """Let time pass, virtual time in a simulation: seconds, or a text such as 250ms or 2h."""
    system = session.cluster.system
    left_us = to_us(duration, "run")
    # A Ctrl-C must not come in the middle of what an actor does: a simulation has one thread.
    while session.simulated and left_us > SLICE_US and not session.interrupted:
        system.run(SLICE_US / 1e6)
        left_us -= SLICE_US
    if session.interrupted:
        raise KeyboardInterrupt
    system.run(left_us / 1e6)
    return _time(session)


def _time(session: Session) -> str:
    return f"time: {session.cluster.system.now_us / 1e6:.3f} s"


@command("help [COMMAND…]", "help create topic")
def help_(session: Session, *words: str) -> str:
    """List the commands, or explain one."""
    if not words:
        rows = [(each.name, each.help.split(";")[0].rstrip(".")) for each in COMMANDS.values()]
        listed = table(("command", "what it does"), rows)
        return f"{listed}\n\nhelp COMMAND shows what it takes and an example"
    several = [each for known, each in COMMANDS.items() if known[: len(words)] == words]
    explained = several or [find(list(words))]
    return "\n\n".join(
        f"{each.usage}\n  {each.help}\n  example: {each.example}" for each in explained
    )


@command("exit", "exit")
def exit_(session: Session) -> str:
    """End the shell and its cluster."""
    session.over = True
    return ""


@command("quit", "quit")
def quit_(session: Session) -> str:
    """End the shell and its cluster."""
    return exit_(session)
