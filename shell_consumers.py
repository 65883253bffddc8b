"""The shell's commands for consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from .model.durations import Duration, to_us
from .model.errors import BadValueError, UnknownNameError
from .model.exchange import Poll, PollFailed
from .model.settings import ConsumerSettings
from .model.topics import TopicPartition
from .shell_commands import ANSWER_S, GROUP, SETTLE_S, TOPIC, settings_of, settle
from .shell_language import DURATION, TEXT, WHOLE, command, named
from .shell_session import Hands, Session, count, line_of, place

if TYPE_CHECKING:
    from .actors.groups import Group
    from .model.record import Record

LINGER_S: Final = 0.05
"""How long consuming waits for more once there is something."""

CONSUMER: Final = named("consumer")


@command(
    "create consumer NAME",
    "create consumer ann group=billing",
    needs=("group",),
    group=GROUP,
    hidden=settings_of(ConsumerSettings),
)
def create_consumer(session: Session, name: str, group: str, **settings: Any) -> str:
    """Make a consumer that joins a group."""
    session.new_name("consumer", name)
    home = session.group(group)
    session.consumers[name] = Hands(home.consumer(name, **settings))
    return settle(session, home)


@command("delete consumer CONSUMER", "delete consumer ann", takes={"CONSUMER": CONSUMER})
def delete_consumer(session: Session, consumer: str) -> str:
    """Let a consumer leave its group and end."""
    handle = session.consumer(consumer).handle
    handle.close()
    session.cluster.run_until(lambda: not handle.ref.is_alive(), SETTLE_S)
    del session.consumers[consumer], handle.group.consumers[consumer]
    return _after(session, handle.group, f"consumer {consumer} is gone")


def _after(session: Session, group: Group, said: str) -> str:
    return "\n".join(filter(None, [said, settle(session, group)]))


@attrs.define
class Wish:
    """What one consumer is to bring."""

    hands: Hands
    limit: int
    partition: TopicPartition | None = None
    records: list[Record] = attrs.Factory(list)


@command(
    "consume CONSUMER [N]",
    "consume ann 5 timeout=2",
    takes={"CONSUMER": CONSUMER, "N": WHOLE},
    timeout=DURATION,
    partition=TEXT,
)
def consume(
    session: Session,
    consumer: str,
    limit: int | None = None,
    timeout: Duration = 1.0,
    partition: str | None = None,
) -> str:
    """Get at most N records, of one partition=TOPIC-NUMBER if given; waits for the first one for
    the timeout. Prints where each is, its key, its value, and how often it came in vain."""
    wish = _wish(session, consumer, partition, limit)
    gather(session, [wish], timeout)
    return "\n".join(map(line_of, wish.records)) or f"nothing for {consumer}"


@command("parallel consume", "parallel consume (ann, orders-0), (bob, orders-1, 5)", grouped=True)
def parallel_consume(session: Session, groups: list[list[str]]) -> str:
    """Let several consumers consume at the same time: (CONSUMER[, TOPIC-NUMBER[, N]]), (…), …"""
    wishes = []
    for parts in groups:
        if len(parts) > 3:
            raise BadValueError(f"({', '.join(parts)}): expected (CONSUMER, TOPIC-NUMBER, N)")
        limit = WHOLE.read("N", parts[2]) if len(parts) == 3 else None
        wishes.append(_wish(session, parts[0], parts[1] if len(parts) > 1 else None, limit))
    names = [wish.hands.handle.name for wish in wishes]
    if len(set(names)) < len(names):
        raise BadValueError("parallel consume: expected each consumer once")
    gather(session, wishes, 1.0)
    lines = []
    for name, wish in zip(names, wishes, strict=True):
        lines += [f"{name}: {line_of(record)}" for record in wish.records] or [
            f"nothing for {name}"
        ]
    return "\n".join(lines)


def _wish(session: Session, name: str, partition: str | None, limit: int | None) -> Wish:
    hands = session.consumer(name)
    if limit == 0:
        raise BadValueError("N = 0: expected 1 or more")
    where = None if partition is None else session.partition(partition)
    owned = hands.handle.positions()
    if where is not None and where not in owned:
        has = ", ".join(map(str, sorted(owned))) or "nothing"
        raise BadValueError(f"partition = {partition!r}: {name} has {has}")
    return Wish(hands, limit or hands.handle.settings.max_poll_records, where)


def gather(session: Session, wishes: list[Wish], timeout: Duration) -> None:
    """Let consumers poll at the same time, and again until each has enough or there is no more."""
    closed = [(wish.hands.handle, _others(wish)) for wish in wishes]
    for handle, partitions in closed:
        if partitions:
            handle.pause(*partitions)
    try:
        hungry, wait_us = wishes, to_us(timeout, "timeout")
        while hungry:
            hungry = [wish for wish in _poll(hungry, wait_us) if len(wish.records) < wish.limit]
            wait_us = to_us(LINGER_S)
    finally:
        for handle, partitions in closed:
            if partitions:
                handle.resume(*partitions)
    for wish in wishes:
        _take(wish)


def _others(wish: Wish) -> list[TopicPartition]:
    """The partitions to leave out, but for those that are paused anyway."""
    if wish.partition is None:
        return []
    owned = set(wish.hands.handle.positions())
    return sorted(owned - wish.hands.paused - {wish.partition})


def _poll(wishes: list[Wish], wait_us: int) -> list[Wish]:
    """Poll once, all at the same time; who got something."""
    asked = [
        (
            wish,
            wish.hands.handle.ref.ask(Poll(wish.limit - len(wish.records), wait_us), block=False),
        )
        for wish in wishes
    ]
    lucky = []
    for wish, future in asked:
        answer = future.get(timeout=wait_us / 1e6 + ANSWER_S)
        if isinstance(answer, PollFailed):
            raise answer.error
        for (topic, number), batch, retries in answer.pieces:
            wish.records += batch.records(topic, number, retries, 0)
        wish.hands.busy = bool(answer.pieces) and not wish.hands.handle.group.acks
        if answer.pieces:
            lucky.append(wish)
    return lucky


def _take(wish: Wish) -> None:
    hands = wish.hands
    if hands.handle.group.acks and wish.records:
        hands.last = [place(record) for record in wish.records]
        hands.unsettled |= {place(record): record for record in wish.records}


# What becomes of records


@command(
    "ack CONSUMER [TOPIC-PARTITION@OFFSET…]",
    "ack ann orders-0@3",
    takes={"CONSUMER": CONSUMER},
)
def ack(session: Session, consumer: str, *places: str) -> str:
    """Say that records are done with: those consumed last, or the ones named."""
    hands = session.consumer(consumer)
    records = _settled(hands, places)
    hands.handle.ack(records)
    _forget(hands, records)
    return f"{consumer} acknowledged {count(len(records), 'record')}"


@command(
    "nack CONSUMER [TOPIC-PARTITION@OFFSET…]",
    "nack ann orders-0@3 delay=5",
    takes={"CONSUMER": CONSUMER},
    delay=DURATION,
    reason=TEXT,
)
def nack(
    session: Session,
    consumer: str,
    *places: str,
    delay: Duration | None = None,
    reason: str = "nacked",
) -> str:
    """Have records delivered again, after a delay: those consumed last, or the ones named."""
    hands = session.consumer(consumer)
    records = _settled(hands, places)
    hands.handle.nack(records, delay, reason)
    _forget(hands, records)
    return f"{consumer} gave back {count(len(records), 'record')}"


def _settled(hands: Hands, places: tuple[str, ...]) -> list[Record]:
    """The records that a verdict is about."""
    if not hands.handle.group.acks:
        raise BadValueError(
            f"group {hands.handle.group.name!r} commits: expected one made with acks, or another "
            "delivery than exclusive"
        )
    for where in places:
        if where not in hands.unsettled:
            raise UnknownNameError("record", where, hands.unsettled)
    wanted = [where for where in dict.fromkeys(places or hands.last) if where in hands.unsettled]
    if not wanted:
        raise BadValueError(f"{hands.handle.name} has nothing to settle: consume first")
    return [hands.unsettled[where] for where in wanted]


def _forget(hands: Hands, records: list[Record]) -> None:
    for record in records:
        del hands.unsettled[place(record)]


@command("commit CONSUMER", "commit ann", takes={"CONSUMER": CONSUMER})
def commit(session: Session, consumer: str) -> str:
    """Commit all that a consumer has consumed."""
    hands = session.consumer(consumer)
    committed = hands.handle.commit()
    hands.busy = False
    positions = [f"{tp}@{offset}" for tp, offset in sorted(committed.items())]
    return f"committed {', '.join(positions) or 'nothing new'}"


@command(
    "seek CONSUMER TOPIC PARTITION OFFSET",
    "seek ann orders 0 earliest",
    takes={"CONSUMER": CONSUMER, "TOPIC": TOPIC, "PARTITION": WHOLE},
)
def seek(session: Session, consumer: str, topic: str, number: int, offset: str) -> str:
    """Go on consuming at an offset, or at the earliest or the latest."""
    where = session.partition_of(topic, number)
    session.require_leaders(topic)
    hands = session.consumer(consumer)
    hands.handle.seek(*where, int(offset) if offset.isdecimal() else offset)
    return f"{consumer} goes on at {where}@{hands.handle.positions()[where]}"


@command(
    "replay CONSUMER TOPIC PARTITION",
    "replay ann orders 0 since=60",
    takes={"CONSUMER": CONSUMER, "TOPIC": TOPIC, "PARTITION": WHOLE},
    offset=WHOLE,
    since=DURATION,
)
def replay(
    session: Session,
    consumer: str,
    topic: str,
    number: int,
    offset: int | None = None,
    since: Duration | None = None,
) -> str:
    """Read again from an offset, or since a time of the cluster, up to the latest record; the
    group's position stays."""
    where = session.partition_of(topic, number)
    session.require_leaders(topic)
    begin = None if since is None else to_us(since, "since") / 1e6
    handle = session.consumer(consumer).handle
    records = handle.replay(*where, since=begin, offset=offset)
    return "\n".join(map(line_of, records)) or f"nothing to replay in {where}"


# Topics and partitions of one consumer


@command(
    "subscribe CONSUMER TOPIC…",
    "subscribe ann orders refunds",
    takes={"CONSUMER": CONSUMER, "TOPIC": TOPIC},
)
def subscribe(session: Session, consumer: str, *topics: str) -> str:
    """Let a consumer have these topics, in the place of those it had."""
    handle = session.consumer(consumer).handle
    wanted = [session.topic(topic) for topic in topics]
    session.require_coordinator(handle.group.name)
    generation = handle.group.describe().generation
    handle.subscribe(wanted)
    return settle(session, handle.group, generation)


@command("unsubscribe CONSUMER", "unsubscribe ann", takes={"CONSUMER": CONSUMER})
def unsubscribe(session: Session, consumer: str) -> str:
    """Let a consumer have no topic any more; it leaves its group."""
    hands = session.consumer(consumer)
    hands.handle.unsubscribe()
    hands.drop()
    return _after(session, hands.handle.group, f"{consumer} has no topic")


@command("leave CONSUMER", "leave ann", takes={"CONSUMER": CONSUMER})
def leave(session: Session, consumer: str) -> str:
    """Let a consumer leave its group."""
    hands = session.consumer(consumer)
    hands.handle.leave()
    hands.drop()
    return _after(session, hands.handle.group, f"{consumer} left {hands.handle.group.name}")


@command("join CONSUMER", "join ann", takes={"CONSUMER": CONSUMER})
def join(session: Session, consumer: str) -> str:
    """Let a consumer that has left join its group again."""
    hands = session.consumer(consumer)
    hands.handle.join()
    return settle(session, hands.handle.group)


@command("pause CONSUMER [TOPIC-PARTITION…]", "pause ann orders-0", takes={"CONSUMER": CONSUMER})
def pause(session: Session, consumer: str, *partitions: str) -> str:
    """Give a consumer no records of these partitions, or of any."""
    hands = session.consumer(consumer)
    chosen = [session.partition(text) for text in partitions]
    hands.handle.pause(*chosen)
    hands.paused |= set(chosen or hands.handle.positions())
    return f"{consumer} pauses {', '.join(partitions) or 'everything'}"


@command("resume CONSUMER [TOPIC-PARTITION…]", "resume ann orders-0", takes={"CONSUMER": CONSUMER})
def resume(session: Session, consumer: str, *partitions: str) -> str:
    """Give a consumer records of these partitions again, or of all."""
    hands = session.consumer(consumer)
    chosen = [session.partition(text) for text in partitions]
    hands.handle.resume(*chosen)
    hands.paused -= set(chosen or list(hands.paused))
    return f"{consumer} goes on with {', '.join(partitions) or 'everything'}"
