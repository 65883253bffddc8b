"""Shell commands for consumers: membership, consuming, acknowledging and committing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ....model.durations import Duration, to_us
from ....model.errors import BadValueError, UnknownNameError
from ....model.messages.client import Poll, PollFailed
from ....model.settings import ConsumerSettings
from ....model.topics import TopicPartition
from ..command_table import (
    CONSUMER,
    DURATION,
    GROUP,
    NUMBER,
    PARTITION,
    POSITION,
    TEXT,
    TOPIC,
    command,
)
from ..format import format_count, format_record, record_position
from ..session import ShellConsumer
from .groups import REBALANCE_TIMEOUT_S, wait_for_rebalance

if TYPE_CHECKING:
    from ....actors.groups import ConsumerGroup
    from ....model.log.record import Record
    from ..session import ShellSession

_LINGER_S: Final = 0.05
"""How long `consume` waits for more records after it got some."""
_RESPONSE_TIMEOUT_S: Final = 10.0
"""How long `consume` waits for the consumer's response, beyond the timeout of the poll."""
_OF_CONSUMER: Final = {"CONSUMER": CONSUMER, "TOPIC-NUMBER": PARTITION}
"""The types of arguments that name a consumer and partitions."""
_OFFSET: Final = attrs.evolve(TEXT, choices=("earliest", "latest"))


# Membership


@command(
    "create consumer NAME",
    "create consumer ann group=billing",
    required=("group",),
    settings=ConsumerSettings,
    group=GROUP,
)
def create_consumer(session: ShellSession, name: str, group: str, **settings: Any) -> str:
    """Create a consumer that joins a group."""
    session.check_new_name("consumer", name)
    joined = session.group(group)
    session.consumers[name] = ShellConsumer(joined.consumer(name, **settings))
    return wait_for_rebalance(session, joined)


@command("delete consumer CONSUMER", "delete consumer ann", types={"CONSUMER": CONSUMER})
def delete_consumer(session: ShellSession, consumer: str) -> str:
    """Close a consumer. It leaves its group."""
    handle = session.consumer(consumer).handle
    handle.close()
    session.cluster.run_until(lambda: not handle.ref.is_alive(), REBALANCE_TIMEOUT_S)
    del session.consumers[consumer], handle.group.consumers[consumer]
    return _then_rebalance(session, handle.group, f"consumer {consumer} deleted")


@command("leave CONSUMER", "leave ann", types={"CONSUMER": CONSUMER})
def leave(session: ShellSession, consumer: str) -> str:
    """Make a consumer leave its group."""
    member = session.consumer(consumer)
    member.handle.leave()
    member.drop_records()
    group = member.handle.group
    return _then_rebalance(session, group, f"{consumer} left {group.name}")


@command("join CONSUMER", "join ann", types={"CONSUMER": CONSUMER})
def join(session: ShellSession, consumer: str) -> str:
    """Make a consumer that left its group join it again."""
    handle = session.consumer(consumer).handle
    handle.join()
    return wait_for_rebalance(session, handle.group)


@command(
    "subscribe CONSUMER TOPIC…",
    "subscribe ann orders refunds",
    types={"CONSUMER": CONSUMER, "TOPIC": TOPIC},
)
def subscribe(session: ShellSession, consumer: str, *topics: str) -> str:
    """Subscribe a consumer to topics. They replace its previous topics."""
    handle = session.consumer(consumer).handle
    wanted = [session.topic(topic) for topic in topics]
    session.require_coordinator(handle.group.name)
    generation = handle.group.describe().generation
    handle.subscribe(wanted)
    return wait_for_rebalance(session, handle.group, generation)


@command("unsubscribe CONSUMER", "unsubscribe ann", types={"CONSUMER": CONSUMER})
def unsubscribe(session: ShellSession, consumer: str) -> str:
    """Unsubscribe a consumer from all topics. It leaves its group."""
    member = session.consumer(consumer)
    member.handle.unsubscribe()
    member.drop_records()
    return _then_rebalance(session, member.handle.group, f"{consumer} has no topics")


def _then_rebalance(session: ShellSession, group: ConsumerGroup, output: str) -> str:
    return "\n".join(filter(None, [output, wait_for_rebalance(session, group)]))


# Consuming


@attrs.define
class ConsumeRequest:
    """The records that a consumer shall poll, and those it got so far."""

    consumer: ShellConsumer
    limit: int
    partition: TopicPartition | None = None
    """The only partition to consume; `None` for all."""
    records: list[Record] = attrs.Factory(list)


@command(
    "consume CONSUMER [N]",
    "consume ann 5 timeout=2",
    types={"CONSUMER": CONSUMER, "N": NUMBER},
    timeout=DURATION,
    partition=PARTITION,
)
def consume(
    session: ShellSession,
    consumer: str,
    limit: int | None = None,
    timeout: Duration = 1.0,
    partition: str | None = None,
) -> str:
    """Poll at most N records. With partition=TOPIC-NUMBER, only from that partition. Waits up to
    timeout for the first record. Prints each record's position, key and value, and its headers and
    retries if any."""
    request = _request(session, consumer, partition, limit)
    _consume(session, [request], timeout)
    return "\n".join(map(format_record, request.records)) or f"no records for {consumer}"


@command(
    "parallel consume",
    "parallel consume (ann, orders-0), (bob, orders-1, 5)",
    tuple_types=(CONSUMER, PARTITION, NUMBER),
)
def parallel_consume(session: ShellSession, tuples: list[list[str]]) -> str:
    """Poll with several consumers at the same time. Takes
    (CONSUMER[, TOPIC-NUMBER[, N]]), (…), …"""
    requests = []
    for parts in tuples:
        if len(parts) > 3:
            raise BadValueError(f"({', '.join(parts)}): expected (CONSUMER, TOPIC-NUMBER, N)")
        limit = NUMBER.parse("N", parts[2]) if len(parts) == 3 else None
        requests.append(_request(session, parts[0], parts[1] if len(parts) > 1 else None, limit))
    names = [request.consumer.handle.name for request in requests]
    if len(set(names)) < len(names):
        raise BadValueError("parallel consume: expected each consumer once")
    _consume(session, requests, 1.0)
    lines = []
    for name, request in zip(names, requests, strict=True):
        lines += [f"{name}: {format_record(record)}" for record in request.records] or [
            f"no records for {name}"
        ]
    return "\n".join(lines)


def _request(
    session: ShellSession, name: str, partition: str | None, limit: int | None
) -> ConsumeRequest:
    consumer = session.consumer(name)
    if limit == 0:
        raise BadValueError("N = 0: expected 1 or more")
    chosen = None if partition is None else session.parse_partition(partition)
    assigned = consumer.handle.positions()
    if chosen is not None and chosen not in assigned:
        expected = ", ".join(map(str, sorted(assigned))) or "none"
        raise BadValueError(f"partition = {partition!r}: the partitions of {name} are {expected}")
    return ConsumeRequest(consumer, limit or consumer.handle.settings.max_poll_records, chosen)


def _consume(session: ShellSession, requests: list[ConsumeRequest], timeout: Duration) -> None:
    """Poll with all consumers at the same time until each reached its limit or got no more."""
    paused = [(request.consumer.handle, _other_partitions(request)) for request in requests]
    for handle, partitions in paused:
        if partitions:
            handle.pause(*partitions)
    try:
        pending, wait_us = requests, to_us(timeout, "timeout")
        while pending:
            served = _poll(pending, wait_us)
            pending = [request for request in served if len(request.records) < request.limit]
            wait_us = to_us(_LINGER_S)
    finally:
        for handle, partitions in paused:
            if partitions:
                handle.resume(*partitions)
    for request in requests:
        _keep_unacknowledged(request)


def _other_partitions(request: ConsumeRequest) -> list[TopicPartition]:
    """Return the partitions to pause meanwhile, without those that the user has paused."""
    if request.partition is None:
        return []
    assigned = set(request.consumer.handle.positions())
    return sorted(assigned - request.consumer.paused - {request.partition})


def _poll(requests: list[ConsumeRequest], wait_us: int) -> list[ConsumeRequest]:
    """Poll once with all consumers; return the requests that got records."""
    asked = []
    for request in requests:
        poll = Poll(request.limit - len(request.records), wait_us)
        asked.append((request, request.consumer.handle.ref.ask(poll, block=False)))
    served = []
    for request, future in asked:
        polled = future.get(timeout=wait_us / 1e6 + _RESPONSE_TIMEOUT_S)
        if isinstance(polled, PollFailed):
            raise polled.error
        for (topic, number), batch, retries in polled.pieces:
            request.records += batch.records(topic, number, retries, 0)
        consumer = request.consumer
        consumer.is_processing = bool(polled.pieces) and not consumer.handle.group.acks
        if polled.pieces:
            served.append(request)
    return served


def _keep_unacknowledged(request: ConsumeRequest) -> None:
    consumer = request.consumer
    if consumer.handle.group.acks and request.records:
        records = {record_position(record): record for record in request.records}
        consumer.last = list(records)
        consumer.unacknowledged |= records


# Acknowledging and committing


@command(
    "ack CONSUMER [TOPIC-NUMBER@OFFSET…]",
    "ack ann orders-0@3",
    types={"CONSUMER": CONSUMER, "TOPIC-NUMBER@OFFSET": POSITION},
)
def ack(session: ShellSession, consumer: str, *positions: str) -> str:
    """Acknowledge records: the given ones, or all that were consumed last."""
    member = session.consumer(consumer)
    records = _chosen_records(member, positions)
    member.handle.ack(records)
    _forget(member, records)
    return f"{consumer} acknowledged {format_count(len(records), 'record')}"


@command(
    "nack CONSUMER [TOPIC-NUMBER@OFFSET…]",
    "nack ann orders-0@3 delay=5",
    types={"CONSUMER": CONSUMER, "TOPIC-NUMBER@OFFSET": POSITION},
    delay=DURATION,
    reason=TEXT,
)
def nack(
    session: ShellSession,
    consumer: str,
    *positions: str,
    delay: Duration | None = None,
    reason: str = "nacked",
) -> str:
    """Have records redelivered: the given ones, or all that were consumed last. With delay, not
    before that time has passed."""
    member = session.consumer(consumer)
    records = _chosen_records(member, positions)
    member.handle.nack(records, delay, reason)
    _forget(member, records)
    return f"{consumer} nacked {format_count(len(records), 'record')}"


def _chosen_records(consumer: ShellConsumer, positions: tuple[str, ...]) -> list[Record]:
    """Return the unacknowledged records at these positions, or those consumed last."""
    group, known = consumer.handle.group, consumer.unacknowledged
    if not group.acks:
        raise BadValueError(
            f"group {group.name!r} commits offsets: expected a group created with acks, or with a "
            "delivery other than exclusive"
        )
    for position in positions:
        if position not in known:
            raise UnknownNameError("record", position, known)
    chosen = [each for each in dict.fromkeys(positions or consumer.last) if each in known]
    if not chosen:
        raise BadValueError(
            f"{consumer.handle.name} has no records to acknowledge: consume some first"
        )
    return [known[position] for position in chosen]


def _forget(consumer: ShellConsumer, records: list[Record]) -> None:
    for record in records:
        del consumer.unacknowledged[record_position(record)]


@command("commit CONSUMER", "commit ann", types={"CONSUMER": CONSUMER})
def commit(session: ShellSession, consumer: str) -> str:
    """Commit the offsets of all records that a consumer has consumed."""
    member = session.consumer(consumer)
    committed = member.handle.commit()
    member.is_processing = False
    positions = [f"{tp}@{offset}" for tp, offset in sorted(committed.items())]
    return f"committed {', '.join(positions) or 'nothing new'}"


# Positions


@command(
    "seek CONSUMER TOPIC-NUMBER OFFSET",
    "seek ann orders-0 earliest",
    types={**_OF_CONSUMER, "OFFSET": _OFFSET},
)
def seek(session: ShellSession, consumer: str, place: str, offset: str) -> str:
    """Continue consuming a partition at an offset, or at earliest or latest."""
    partition = session.parse_partition(place)
    session.require_leaders(partition.topic)
    handle = session.consumer(consumer).handle
    handle.seek(*partition, int(offset) if offset.isdecimal() else offset)
    return f"{consumer} continues at {partition}@{handle.positions()[partition]}"


@command(
    "replay CONSUMER TOPIC-NUMBER",
    "replay ann orders-0 since=60",
    types=_OF_CONSUMER,
    offset=NUMBER,
    since=DURATION,
)
def replay(
    session: ShellSession,
    consumer: str,
    place: str,
    offset: int | None = None,
    since: Duration | None = None,
) -> str:
    """Read records again up to the latest. Starts at an offset, or since a time of the cluster.
    The group's position does not change."""
    partition = session.parse_partition(place)
    session.require_leaders(partition.topic)
    since_s = None if since is None else to_us(since, "since") / 1e6
    handle = session.consumer(consumer).handle
    records = handle.replay(*partition, since=since_s, offset=offset)
    return "\n".join(map(format_record, records)) or f"no records to replay in {partition}"


@command("pause CONSUMER [TOPIC-NUMBER…]", "pause ann orders-0", types=_OF_CONSUMER)
def pause(session: ShellSession, consumer: str, *partitions: str) -> str:
    """Stop consuming the given partitions, or all."""
    member = session.consumer(consumer)
    chosen = [session.parse_partition(text) for text in partitions]
    member.handle.pause(*chosen)
    member.paused |= set(chosen or member.handle.positions())
    return f"{consumer} paused {', '.join(partitions) or 'all partitions'}"


@command("resume CONSUMER [TOPIC-NUMBER…]", "resume ann orders-0", types=_OF_CONSUMER)
def resume(session: ShellSession, consumer: str, *partitions: str) -> str:
    """Continue consuming the given partitions, or all."""
    member = session.consumer(consumer)
    chosen = [session.parse_partition(text) for text in partitions]
    member.handle.resume(*chosen)
    member.paused -= set(chosen or list(member.paused))
    return f"{consumer} resumed {', '.join(partitions) or 'all partitions'}"
