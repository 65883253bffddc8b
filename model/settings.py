"""Settings under Kafka's names, in snake case, with the defaults of Kafka 4.

Only what has an effect here is a setting. `from_mapping` reads a user's real configuration:
Kafka's dotted names, values as text. Settings of Kafka that mean nothing in a wave tank (where to
connect, how to encrypt) are let through and reported, so that nobody has to edit a file and nobody
is left in the dark; what Kafka does not know either is refused.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import attrs

from .errors import BadValueError, UnknownNameError, WavetankError

_INT_MAX: Final = 2**31 - 1
_TRUTH: Final = {"true": True, "false": False}
_ACKS: Final = {"0": 0, "1": 1, "all": "all", "-1": "all"}
_RESETS: Final = {name: name for name in ("earliest", "latest", "unconsumed", "none")}
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_PARTITIONERS: Final = {
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "key",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky",
}


def _setting(default: object, expected: str, read: Callable[[Any], object]) -> Any:
    """A field that takes what `read` can read: Python's values, or text as in a file."""

    def convert(value: object, field: "attrs.Attribute[Any]") -> object:
        return _read(field, field.name, value)

    return attrs.field(
        default=default,
        converter=attrs.Converter(convert, takes_field=True),
        metadata={"expected": expected, "read": read},
    )


def _read(field: "attrs.Attribute[Any]", name: str, value: object) -> object:
    """What a value means for a field; an error calls the field as the user did."""
    try:
        return field.metadata["read"](value.strip() if isinstance(value, str) else value)
    except (LookupError, ValueError):
        expected = field.metadata["expected"]
        raise BadValueError(f"{name} = {value!r}: expected {expected}") from None


def _whole(default: object, least: int = 0) -> Any:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch("[+-]?[0-9]+", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError
        if not least <= value <= _INT_MAX:
            raise ValueError
        return value

    return _setting(default, f"a whole number from {least} to {_INT_MAX}", read)


def _choice(default: object, choices: Mapping[str, object]) -> Any:
    """A field for one of a few values, each written as text or as Python has it."""

    def read(value: object) -> object:
        if not isinstance(value, str | int):
            raise ValueError
        return choices[str(value).lower()]

    return _setting(default, "one of " + ", ".join(choices), read)


def _class(classes: Mapping[str, str]) -> Any:
    """A field for a name of ours, also by the Java class; of a list, the one that comes first."""

    def read(value: object) -> str | None:
        names = value.split(",") if isinstance(value, str) else value
        if names is None:
            return None
        if not isinstance(names, list | tuple) or not names or not isinstance(names[0], str):
            raise ValueError
        name = names[0].strip()
        if not name or ("." in name and name not in classes):
            raise ValueError
        return classes.get(name, name)

    known = ", ".join(f"{name} ({java})" for java, name in classes.items())
    return _setting(None, f"a name, such as {known}", read)


def _text() -> Any:
    def read(value: object) -> object:
        if value is not None and not (isinstance(value, str) and value):
            raise ValueError
        return value

    return _setting(None, "a text that is not empty", read)


@attrs.frozen
class ProducerSettings:
    """How a producer batches, sends and retries."""

    acks: Literal[0, 1, "all"] = _choice("all", _ACKS)
    """0: do not wait for an answer; 1: for the leader's; all: for the replicas in sync as well."""
    linger_ms: int = _whole(5)
    """How long a batch waits for more records."""
    batch_size: int = _whole(16_384)
    """The bytes at which a batch is full and waits no longer."""
    max_in_flight: int = _whole(5, least=1)
    """How many requests may be unanswered at once (max.in.flight.requests.per.connection)."""
    retries: int = _whole(_INT_MAX)
    """How often a batch is sent again; usually `delivery_timeout_ms` ends it first."""
    enable_idempotence: bool = _choice(
        attrs.Factory(lambda self: self.acks != 0 and self.retries > 0, takes_self=True), _TRUTH
    )
    """Whether a batch that is sent again is stored once. It takes answers and retries: as in
    Kafka, off by itself if the settings rule one of them out."""
    producer_id: str | None = _text()
    """The id that its records carry, by default its name; who had it before is fenced."""
    retry_backoff_ms: int = _whole(100)
    """The wait before the first retry; it doubles with each further one."""
    retry_backoff_max_ms: int = _whole(1_000)
    """The longest wait before a retry."""
    request_timeout_ms: int = _whole(30_000, least=1)
    """How long to wait for the answer to one request."""
    delivery_timeout_ms: int = _whole(
        attrs.Factory(
            lambda self: max(120_000, self.linger_ms + self.request_timeout_ms), takes_self=True
        )
    )
    """How long after it was sent a record is delivered or given up. As in Kafka, longer by itself
    if the two settings that it must cover ask for it."""
    metadata_max_age_ms: int = _whole(300_000, least=1)
    """How often to look for new partitions when nothing else gives reason to."""
    partitioner_class: str | None = _class(_PARTITIONERS)
    """The partitioner's name; a file has it as a Java class."""

    def __attrs_post_init__(self) -> None:
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise BadValueError(
                f"delivery_timeout_ms = {self.delivery_timeout_ms}: expected at least linger_ms + "
                f"request_timeout_ms = {self.linger_ms} + {self.request_timeout_ms}"
            )
        if self.enable_idempotence and (self.acks == 0 or self.retries == 0):
            got = "acks = 0" if self.acks == 0 else "retries = 0"
            raise BadValueError(
                f"enable_idempotence = True: expected acks of 1 or all, and retries, not {got}"
            )


@attrs.frozen
class ConsumerSettings:
    """How a consumer polls, stays in its group and commits."""

    session_timeout_ms: int = _whole(45_000, least=1)
    """Without a heartbeat for so long, a member is out of the group."""
    heartbeat_interval_ms: int = _whole(3_000, least=1)
    """How often a member says that it is alive."""
    max_poll_interval_ms: int = _whole(300_000, least=1)
    """Without a poll for so long, a member leaves the group: it is stuck."""
    max_poll_records: int = _whole(500, least=1)
    """The most that one poll gives."""
    fetch_min_bytes: int = _whole(1)
    """A broker waits until there is so much to answer a fetch with …"""
    fetch_max_wait_ms: int = _whole(500)
    """… but no longer than this."""
    fetch_max_bytes: int = _whole(52_428_800)
    """The most that one fetch brings; a first batch that is larger comes all the same."""
    max_partition_fetch_bytes: int = _whole(1_048_576)
    """The same for each partition."""
    auto_offset_reset: Literal["earliest", "latest", "unconsumed", "none"] = _choice(
        "latest", _RESETS
    )
    """Where to start in a partition without a committed offset: with all there is, with what
    comes from now on, with the first that no other group has consumed; none: fail."""
    enable_auto_commit: bool = _choice(True, _TRUTH)
    """Whether what was polled is committed without being told to."""
    auto_commit_interval_ms: int = _whole(5_000)
    """How often; 0: at every poll."""
    group_instance_id: str | None = _text()
    """A name that outlives a restart makes a static member (KIP-345)."""
    retry_backoff_ms: int = _whole(100)
    """The wait before the first retry; it doubles with each further one."""
    retry_backoff_max_ms: int = _whole(1_000)
    """The longest wait before a retry."""
    request_timeout_ms: int = _whole(30_000, least=1)
    """How long to wait for the answer to one request."""
    metadata_max_age_ms: int = _whole(300_000, least=1)
    """How often to ask who leads what when nothing else gives reason to."""
    max_in_flight: int = _whole(1_000, least=1)
    """How many records a consumer that acknowledges may have that are not."""
    ack_timeout_ms: int = _whole(30_000, least=1)
    """What is not acknowledged for so long is delivered again."""
    max_deliveries: int = _whole(5)
    """So many deliveries in vain, and a record is given up; 0: never."""
    dead_letter_topic: str | None = _text()
    """Where what is given up goes; without one it is passed over."""
    subscriber_ttl_ms: int = _whole(604_800_000, least=1)
    """A subscriber, or a group without any, that is away for so long is forgotten: a week."""
    partition_assignment_strategy: str | None = _class(_ASSIGNORS)
    """The assignor's name; a file has it as a Java class, or several, of which the first counts."""

    def __attrs_post_init__(self) -> None:
        _beat_in_time(
            ("heartbeat_interval_ms", self.heartbeat_interval_ms),
            ("session_timeout_ms", self.session_timeout_ms),
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits for this member: as long as it may be between two polls."""
        return self.max_poll_interval_ms


@attrs.frozen
class ClusterSettings:
    """What brokers, the controller and group coordinators go by."""

    broker_heartbeat_interval_ms: int = _whole(2_000, least=1)
    """How often a broker tells the controller that it is alive."""
    broker_session_timeout_ms: int = _whole(9_000, least=1)
    """Without a heartbeat for so long, a broker is taken for dead."""
    group_initial_rebalance_delay_ms: int = _whole(3_000)
    """How long the first rebalance of an empty group waits for more members."""
    disk_write_us: int = _whole(0)
    """How long a partition's disk takes to write a batch."""
    log_retention_check_interval_ms: int = _whole(5_000, least=1)
    """How often a partition looks for what can go."""

    def __attrs_post_init__(self) -> None:
        _beat_in_time(
            ("broker_heartbeat_interval_ms", self.broker_heartbeat_interval_ms),
            ("broker_session_timeout_ms", self.broker_session_timeout_ms),
        )


def _beat_in_time(interval: tuple[str, int], timeout: tuple[str, int]) -> None:
    if interval[1] >= timeout[1]:
        raise BadValueError(
            f"{interval[0]} = {interval[1]}: expected less than {timeout[0]} = {timeout[1]}"
        )


Settings = TypeVar("Settings", ProducerSettings, ConsumerSettings, ClusterSettings)

_LONG_NAMES: Final = {"max_in_flight_requests_per_connection": "max_in_flight"}
# One below the other they would fill a screen.
_IGNORED: Final = frozenset((
    "allow.auto.create.topics", "auto.include.jmx.reporter", "bootstrap.servers", "buffer.memory",
    "check.crcs", "client.dns.lookup", "client.id", "client.rack", "compression.type",
    "config.providers", "connections.max.idle.ms", "default.api.timeout.ms",
    "enable.metrics.push", "exclude.internal.topics", "group.id", "group.protocol",
    "group.remote.assignor", "isolation.level", "key.deserializer", "key.serializer",
    "max.block.ms", "max.request.size", "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    "partitioner.ignore.keys", "receive.buffer.bytes", "send.buffer.bytes", "transactional.id",
    "value.deserializer", "value.serializer",
))  # fmt: skip
_IGNORED_FAMILIES: Final = (
    *("bootstrap.", "compression.", "interceptor.", "metadata.recovery.", "metric.", "metrics."),
    *("reconnect.", "sasl.", "schema.registry.", "security.", "socket.", "ssl.", "transaction."),
)


@attrs.frozen
class Loaded(Generic[Settings]):
    """Settings that were read."""

    settings: Settings
    ignored: tuple[str, ...]
    """The settings of Kafka that were given, as they were written, and mean nothing here."""


def from_mapping(cls: type[Settings], *layers: Mapping[str, object]) -> Loaded[Settings]:
    """Read settings as a user has them; a later layer overrides an earlier one.

    What is wrong with them is said all at once, each setting called as the user called it.
    """
    values: dict[str, Any] = {}
    ignored: list[str] = []
    problems: list[WavetankError] = []
    for layer in layers:
        read: dict[str, Any] = {}
        for key, value in layer.items():
            try:
                if _is_ignored(key):
                    ignored.append(key)
                else:
                    _read_into(read, cls, key, value)
            except WavetankError as problem:
                problems.append(problem)
        values |= read
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise BadValueError(f"{len(problems)} problems with {_noun(cls)}s:{lines}")
    return Loaded(cls(**values), tuple(ignored))


def _read_into(read: dict[str, Any], cls: type[Settings], key: str, value: object) -> None:
    name = key.replace(".", "_")
    name = _LONG_NAMES.get(name, name)
    fields = attrs.fields_dict(cls)
    if name not in fields:
        raise _unknown(cls, key)
    if name in read:
        raise BadValueError(f"{key} = {value!r}: expected once, but {name} is there twice")
    read[name] = _read(fields[name], key, value)


def _is_ignored(key: str) -> bool:
    dotted = key.replace("_", ".")
    return dotted in _IGNORED or dotted.startswith(_IGNORED_FAMILIES)


def _noun(cls: type[Settings]) -> str:
    return cls.__name__.removesuffix("Settings").lower() + " setting"


def _unknown(cls: type[Settings], key: str) -> UnknownNameError:
    """Hint at the nearest name in the spelling that the user uses."""
    names = [field.name for field in attrs.fields(cls)]
    if "." in key:
        kafka = {ours: theirs for theirs, ours in _LONG_NAMES.items()}
        names = [kafka.get(name, name).replace("_", ".") for name in names] + sorted(_IGNORED)
    return UnknownNameError(_noun(cls), key, names)


_BLANKS: Final = " \t\f"
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | PathLike[str]) -> dict[str, str]:
    """The pairs of a Java .properties file; of a key that comes again, the last counts."""
    found = {}
    for number, line in _logical_lines(Path(path).read_text("latin-1")):
        pair = _PAIR.fullmatch(line)
        assert pair is not None, "the pattern takes any line"
        try:
            found[_unescape(pair[1])] = _unescape(pair[2])
        except ValueError:
            raise BadValueError(
                f"{path}, line {number}: {line!r}: expected four hexadecimal digits after \\u"
            ) from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, and the number of the first; no comments, no empty ones."""
    lines = enumerate(text.split("\n"), 1)
    for number, line in lines:
        line = line.lstrip(_BLANKS)
        if line in ("", "\\") or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip(_BLANKS)
        yield number, line


def _unescape(text: str) -> str:
    def replace(escape: re.Match[str]) -> str:
        if escape[1] is not None:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise ValueError
        return _ESCAPED.get(escape[2], escape[2])

    # Java writes a character beyond U+FFFF as two escapes: join them.
    utf16 = _ESCAPE.sub(replace, text).encode("utf-16-le", "surrogatepass")
    return utf16.decode("utf-16-le", "surrogatepass")
