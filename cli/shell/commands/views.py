"""Shell commands that show topics, groups, events and the cluster."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ....actors.broker.dead_letters import dead_letter
from ....model.views import describe_partition
from ..command_table import GROUP, NUMBER, TOPIC, command
from ..format import format_record, format_table

if TYPE_CHECKING:
    from ....actors.groups import ConsumerGroup
    from ....model.events.schema import Event
    from ....model.topics import TopicPartition
    from ..session import ShellSession


@command("show topics", "show topics")
def show_topics(session: ShellSession) -> str:
    """List the topics."""
    topics = session.cluster.metadata().topics
    if not topics:
        return "no topics"
    rows = [
        (name, topic.partitions, session.topics.get(name, "str"), topic.cleanup)
        for name, topic in sorted(topics.items())
    ]
    return format_table(("topic", "partitions", "type", "cleanup"), rows)


@command("show topic TOPIC", "show topic orders", types={"TOPIC": TOPIC})
def show_topic(session: ShellSession, topic: str) -> str:
    """Show the partitions of a topic, their replicas, and the last records of each."""
    session.require_controller()
    view = session.cluster.topic(session.topic(topic))
    views = {each.partition: each for each in view.partitions}
    contents = dict(zip(views, view.contents, strict=True))
    lines = []
    for known in view.replicas:
        lines.append(describe_partition(known, views.get(known.partition)))
        lines += [f"  {format_record(record)}" for record in contents.get(known.partition, ())]
    return "\n".join(lines)


@command("show groups", "show groups")
def show_groups(session: ShellSession) -> str:
    """List the consumer groups."""
    groups = session.cluster.groups.values()
    if not groups:
        return "no groups"
    rows = [
        (group.name, ", ".join(group.topics), group.delivery, ", ".join(sorted(group.consumers)))
        for group in groups
    ]
    return format_table(("group", "topics", "delivery", "consumers"), rows)


@command("show group GROUP", "show group billing", types={"GROUP": GROUP})
def show_group(session: ShellSession, group: str) -> str:
    """Show the state of a group, and the owner and lag of each partition."""
    chosen = session.group(group)
    session.require_coordinator(group)
    lags = _lag(session, chosen)
    view = chosen.describe()
    assigned = view.by_consumer()
    rows = []
    for partition, lag in lags.items():
        owners = [name for name, owned in sorted(assigned.items()) if partition in owned]
        rows.append((partition, ", ".join(owners) or "-", lag))
    rule = f"{view.assignor} ({view.protocol})"
    if chosen.delivery != "exclusive":
        rule = chosen.delivery
    head = f"group {group}: {view.state}, generation {view.generation}, {rule}"
    return f"{head}\n{format_table(('partition', 'owner', 'lag'), rows)}"


@command("show lag GROUP", "show lag billing", types={"GROUP": GROUP})
def show_lag(session: ShellSession, group: str) -> str:
    """Show the lag of a group in records, by partition."""
    lags = _lag(session, session.group(group))
    return format_table(("partition", "lag"), [*lags.items(), ("total", sum(lags.values()))])


def _lag(session: ShellSession, group: ConsumerGroup) -> dict[TopicPartition, int]:
    session.require_leaders(*group.topics)
    return dict(group.lag())


@command("show cluster", "show cluster")
def show_cluster(session: ShellSession) -> str:
    """Show the time, the nodes that are down, the brokers, the replicas and the groups."""
    session.require_controller()
    lines = [session.format_time()]
    if session.down_nodes():
        lines.append(session.describe_down_nodes())
    return "\n".join([*lines, str(session.cluster.describe())])


@command("show events [N]", "show events 20", types={"N": NUMBER})
def show_events(session: ShellSession, number: int = 10) -> str:
    """Show the last N events of the event log, 10 by default."""
    return "\n".join(map(_format_event, deque(session.cluster.events, maxlen=number)))


def _format_event(event: Event) -> str:
    parts = [f"{event.time_us / 1e6:.6f}", event.kind, event.node]
    if event.topic is not None:
        parts.append(event.topic if event.partition is None else f"{event.topic}-{event.partition}")
    if event.base_offset is not None:
        last = f" to {event.base_offset + event.count - 1}" if event.count else ""
        parts.append(f"{event.base_offset}{last}")
    parts += [event.group, event.producer, event.remarks()]
    return " ".join(filter(None, parts))


@command("show dead letters GROUP", "show dead letters crew", types={"GROUP": GROUP})
def show_dead_letters(session: ShellSession, group: str) -> str:
    """Show the records that a group has dead-lettered, and why."""
    chosen = session.group(group)
    session.require_leaders(*filter(None, [chosen.settings.dead_letter_topic]))
    lines = []
    for record in chosen.dead_letters():
        letter = dead_letter(record)
        origin = f"{letter.topic}-{letter.partition}@{letter.offset}"
        shown = format_record(record._replace(headers=letter.headers))
        lines.append(f"{shown} from {origin}, {letter.deliveries} deliveries: {letter.reason}")
    return "\n".join(lines) or f"no dead letters of group {group}"
