"""Settings under Kafka's names, in snake case, with the defaults of Kafka 4.

Every setting has an effect here. `from_mapping` reads a real client configuration, with Kafka's
dotted names and values as text. Kafka settings that mean nothing in a simulation, such as addresses
and encryption, are ignored and reported: a file can be used without editing it, and the user learns
which of its settings have no effect. So are dotted names that Kafka does not know, such as those of
a serialiser: Kafka's clients pass them on to other layers. A name that resembles one of Kafka's is
a typing error, and refused.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import attrs

from .client_profile import PROFILES
from .errors import BadValueError, UnknownNameError, WavetankError

_INT_MAX: Final = 2**31 - 1
_TRUTH: Final = {"true": True, "false": False}
_ACKS: Final = {"0": 0, "1": 1, "all": "all", "-1": "all"}
_CLIENTS: Final[Mapping[str, object]] = {name: name for name in PROFILES}
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
    """Make a field whose values go through `read`, which takes Python values and text."""

    def convert(value: object, field: "attrs.Attribute[Any]") -> object:
        return _read(field, field.name, value)

    return attrs.field(
        default=default,
        converter=attrs.Converter(convert, takes_field=True),
        metadata={"expected": expected, "read": read},
    )


def _read(field: "attrs.Attribute[Any]", name: str, value: object) -> object:
    """Convert a value for a field. An error has the name of the field as the user wrote it."""
    try:
        return field.metadata["read"](value.strip() if isinstance(value, str) else value)
    except (LookupError, ValueError):
        expected = field.metadata["expected"]
        raise BadValueError(f"{name} = {value!r}: expected {expected}") from None


def _whole(default: object, least: int = 0, most: int = _INT_MAX) -> Any:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch("[+-]?[0-9]+", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError
        if not least <= value <= most:
            raise ValueError
        return value

    return _setting(default, f"a whole number from {least} to {most}", read)


def _maybe_whole(least: int = 0) -> Any:
    """Make a field for a whole number, or `None`."""
    whole = _whole(None, least)

    def read(value: object) -> object:
        return None if value is None else whole.metadata["read"](value)

    return _setting(None, f"a whole number from {least} to {_INT_MAX}, or nothing", read)


def _choice(default: object, choices: Mapping[str, object]) -> Any:
    """Make a field for one of a few values, each given as text or as the value itself."""

    def read(value: object) -> object:
        if not isinstance(value, str | int):
            raise ValueError
        return choices[str(value).lower()]

    return _setting(default, "one of " + ", ".join(choices), read)


def _class(classes: Mapping[str, str]) -> Any:
    """Make a field for a name or a Java class; of a list, the first one counts."""

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
    """Settings of a producer."""

    acks: Literal[0, 1, "all"] = _choice("all", _ACKS)
    """Acknowledgements that the producer waits for. 0: none, so that a lost batch goes unnoticed;
    1: that of the partition's leader; all: those of all in-sync replicas."""
    linger_ms: int = _whole(5)
    """Time that a batch waits for more records before it is sent."""
    batch_size: int = _whole(16_384)
    """Size of a batch in bytes. A batch of this size is sent without waiting for `linger_ms`."""
    max_in_flight: int = _whole(5, least=1)
    """Largest number of batches to one partition that are sent and not acknowledged. Kafka's name
    is max.in.flight.requests.per.connection."""
    retries: int = _whole(_INT_MAX)
    """Number of times that a batch is sent again. Usually `delivery_timeout_ms` ends it first."""
    enable_idempotence: bool = _choice(
        attrs.Factory(lambda self: self.acks != 0 and self.retries > 0, takes_self=True), _TRUTH
    )
    """Whether the partition stores a batch only once when it is sent again. Needs acknowledgements
    and retries; as in Kafka, it is off by default when `acks` or `retries` is 0."""
    producer_id: str | None = _text()
    """Producer id of the records, by default the name of the producer. A producer that takes over
    an id fences the one that had it before."""
    retry_backoff_ms: int = _whole(100)
    """Time to wait before a batch is sent again for the first time. It doubles with each further
    retry, with a random deviation of up to 20 %."""
    retry_backoff_max_ms: int = _whole(1_000)
    """Longest time to wait before a retry."""
    client: Literal["java", "librdkafka"] = _choice("java", _CLIENTS)
    """The client library whose habits the producer has. They differ in how often they ask for the
    leader of a partition that has none."""
    request_timeout_ms: int = _whole(30_000, least=1)
    """Time to wait for the answer to a request before it counts as failed."""
    delivery_timeout_ms: int = _whole(
        attrs.Factory(
            lambda self: max(120_000, self.linger_ms + self.request_timeout_ms), takes_self=True
        )
    )
    """Time after which a record that has not been acknowledged is given up, with all its retries.
    At least `linger_ms` + `request_timeout_ms`, to which the default grows if they are longer."""
    metadata_max_age_ms: int = _whole(300_000, least=1)
    """Time after which the producer refreshes its metadata without another reason, to find new
    partitions."""
    partitioner_class: str | None = _class(_PARTITIONERS)
    """Name of the partitioner that chooses a partition for each record, or its Java class."""

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
    """Settings of a consumer. Some of them concern only share groups."""

    session_timeout_ms: int = _whole(45_000, least=1)
    """A member that sends no heartbeat for this long is removed from its group."""
    heartbeat_interval_ms: int = _whole(3_000, least=1)
    """Time between two heartbeats of a member. Must be less than `session_timeout_ms`."""
    max_poll_interval_ms: int = _whole(300_000, least=1)
    """Longest time between two polls. A member that exceeds it leaves its group. A rebalance also
    waits at most this long for a member to join again."""
    max_poll_records: int = _whole(500, least=1)
    """Largest number of records that a poll returns."""
    fetch_min_bytes: int = _whole(1)
    """Number of bytes that a broker waits for before it answers a fetch."""
    fetch_max_wait_ms: int = _whole(500)
    """Longest time that a broker waits for `fetch_min_bytes`."""
    fetch_max_bytes: int = _whole(52_428_800)
    """Largest size of the answer to a fetch in bytes. The first record is sent whatever its
    size."""
    max_partition_fetch_bytes: int = _whole(1_048_576)
    """Largest size of the answer to a fetch for each partition, in bytes."""
    auto_offset_reset: Literal["earliest", "latest", "unconsumed", "none"] = _choice(
        "latest", _RESETS
    )
    """Where to begin in a partition without a committed offset. earliest: the first record; latest:
    records appended from now on; unconsumed: the first record that no other group has consumed;
    none: polls raise an error."""
    enable_auto_commit: bool = _choice(True, _TRUTH)
    """Whether the offsets of polled records are committed automatically."""
    auto_commit_interval_ms: int = _whole(5_000)
    """Time between two automatic commits. 0: with every poll."""
    group_instance_id: str | None = _text()
    """Id of a static member (KIP-345). A consumer that restarts with the same id within its session
    timeout keeps its partitions without a rebalance."""
    retry_backoff_ms: int = _whole(100)
    """Time to wait before a failed metadata request, the records of a failed handler or, in a share
    group, negatively acknowledged records are tried again. It doubles with each further attempt,
    except for a failed handler."""
    retry_backoff_max_ms: int = _whole(1_000)
    """Longest time to wait before a retry."""
    request_timeout_ms: int = _whole(30_000, least=1)
    """Time to wait for the answer to a request before it counts as failed."""
    metadata_max_age_ms: int = _whole(300_000, least=1)
    """Time after which the consumer refreshes its metadata without another reason."""
    max_in_flight: int = _whole(1_000, least=1)
    """Share groups: largest number of records that a consumer may have acquired and not
    acknowledged."""
    ack_timeout_ms: int = _whole(30_000, least=1)
    """Share groups: time to acknowledge a record, after which it is delivered again."""
    max_deliveries: int = _whole(5)
    """Share groups: number of deliveries after which a record that is still not acknowledged is
    archived. 0: no limit."""
    dead_letter_topic: str | None = _text()
    """Share groups: topic to which records go at the limit of deliveries. Without one they are
    discarded."""
    subscriber_ttl_ms: int = _whole(604_800_000, least=1)
    """Time after which a partition forgets a group, or a member of a share group, that it has not
    heard from. By default a week."""
    client: Literal["java", "librdkafka"] = _choice("java", _CLIENTS)
    """The client library whose habits the consumer has. They differ in when offsets are committed,
    in how often they ask for the leader of a partition that has none, and in what happens when the
    coordinator is out of reach."""
    partition_assignment_strategy: str | None = _class(_ASSIGNORS)
    """Name of the group's assignor, or its Java class. Of a list, the first one counts."""

    def __attrs_post_init__(self) -> None:
        _check_heartbeat(
            ("heartbeat_interval_ms", self.heartbeat_interval_ms),
            ("session_timeout_ms", self.session_timeout_ms),
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest time that a rebalance waits for this member. Kafka has no setting of its own."""
        return self.max_poll_interval_ms


DISK_SETTINGS: Final = frozenset((
    "flush", "log_flush_interval_messages", "log_flush_interval_ms", "log_segment_bytes",
    "log_roll_ms", "log_index_interval_bytes", "log_cache_bytes",
))  # fmt: skip
"""The cluster settings that need `storage = "disk"`."""
FILE_SETTINGS: Final = frozenset(("log_index_interval_bytes",))
"""Those of them that need real files, and have no effect on a simulated disk."""
NEEDS_DISK: Final = "expected storage = 'disk': nothing is on a disk"


@attrs.frozen
class ClusterSettings:
    """Settings of brokers, the controller and group coordinators."""

    broker_heartbeat_interval_ms: int = _whole(2_000, least=1)
    """Time between two heartbeats of a broker to the controller. Must be less than
    `broker_session_timeout_ms`."""
    broker_session_timeout_ms: int = _whole(9_000, least=1)
    """A broker that sends no heartbeat for this long loses its partitions to other brokers."""
    controller_quorum_election_timeout_ms: int = _whole(1_000, least=1)
    """A controller that is not elected tries again after this time, and up to twice as long by
    chance."""
    controller_quorum_fetch_timeout_ms: int = _whole(2_000, least=1)
    """A controller that hears nothing from the active one for this long, and by chance up to an
    election timeout longer, wants to be elected. An active controller that hears nothing from a
    majority for this long is active no more."""
    group_initial_rebalance_delay_ms: int = _whole(3_000)
    """Time that the first rebalance of an empty group waits for more members, and once more if one
    has joined meanwhile (KIP-134)."""
    storage: Literal["memory", "disk"] = _choice("disk", {"memory": "memory", "disk": "disk"})
    """Where partitions keep their records. memory: they are lost with their broker, and another one
    takes over empty. disk: they are written to the broker's disk, and wait for the broker while it
    is down. A live cluster without a `data_dir` has them in memory by default."""
    flush: Literal["interval", "commit"] = _choice(
        "interval", {"interval": "interval", "commit": "commit"}
    )
    """When records on a disk count as stored. interval: once they are written; they are synced at
    the intervals below, as in Kafka. commit: once they are synced, many with one sync."""
    log_flush_interval_messages: int | None = _maybe_whole(least=1)
    """Number of records after which a partition's log is synced. By default none is synced."""
    log_flush_interval_ms: int | None = _maybe_whole(least=1)
    """Time after which a partition's log is synced. By default none is."""
    log_segment_bytes: int = _whole(1_073_741_824, least=1)
    """Size at which a partition begins a new segment of its log. Retention removes whole ones."""
    log_roll_ms: int = _whole(604_800_000, least=1)
    """Age at which a partition begins a new segment of its log."""
    log_index_interval_bytes: int = _whole(4_096)
    """Bytes of a log in a file between two entries of its indexes, which Kafka's tools use. It has
    no effect on a simulated disk."""
    log_cache_bytes: int | None = _maybe_whole()
    """Bytes of the newest records of a partition on disk that its broker keeps in memory. Older
    ones are read from the disk. By default 16 MiB if the files are real, and everything if the disk
    is simulated. Topics that are compacted are kept in memory whole."""
    log_retention_check_interval_ms: int = _whole(5_000, least=1)
    """Time between two checks of a partition for records to remove."""
    timer_stagger_percent: int = _whole(100, most=100)
    """Heartbeats and other periodic work of a process begin at a random moment of their first
    interval, as processes do that were not started in step. 0: all begin together."""
    timer_jitter_percent: int = _whole(2, most=50)
    """Largest random deviation of each interval of such work, in percent of it. 0: none."""

    def __attrs_post_init__(self) -> None:
        _check_heartbeat(
            ("broker_heartbeat_interval_ms", self.broker_heartbeat_interval_ms),
            ("broker_session_timeout_ms", self.broker_session_timeout_ms),
        )
        if self.storage == "memory":
            for field in attrs.fields(ClusterSettings):
                value = getattr(self, field.name)
                if field.name in DISK_SETTINGS and value != field.default:
                    raise BadValueError(f"{field.name} = {value!r}: {NEEDS_DISK}")


def _check_heartbeat(interval: tuple[str, int], timeout: tuple[str, int]) -> None:
    if interval[1] >= timeout[1]:
        raise BadValueError(
            f"{interval[0]} = {interval[1]}: expected less than {timeout[0]} = {timeout[1]}"
        )


Settings = TypeVar("Settings", ProducerSettings, ConsumerSettings, ClusterSettings)

_CLASSES: Final = (ProducerSettings, ConsumerSettings, ClusterSettings)
_LONG_NAMES: Final = {"max_in_flight_requests_per_connection": "max_in_flight"}
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
NOT_READ: Final = "(not read)"
"""Stands for the value of a setting from a file that has no effect here: it may be a password."""
_TYPING_ERROR: Final = 0.8
"""A dotted name that is at least this similar to one of Kafka's is taken for a typing error."""
_IGNORED_FAMILIES: Final = (
    *("bootstrap.", "compression.", "interceptor.", "metadata.recovery.", "metric.", "metrics."),
    *("reconnect.", "sasl.", "schema.registry.", "security.", "socket.", "ssl.", "transaction."),
)


@attrs.frozen
class Loaded(Generic[Settings]):
    """The result of `from_mapping`."""

    settings: Settings
    """The settings."""
    ignored: tuple[str, ...]
    """Names of given settings that have no effect here, as the user wrote them: those of Kafka
    that are not modelled, those of other layers, such as serialisers, and those that a file has for
    disks, if the cluster has none."""


def from_mapping(cls: type[Settings], *layers: Mapping[str, object]) -> Loaded[Settings]:
    """Read settings under Kafka's names or ours; a later layer overrides an earlier one.

    An error lists all problems at once, with the names as the user wrote them.
    """
    values: dict[str, Any] = {}
    ignored: list[str] = []
    problems: list[WavetankError] = []
    for layer in layers:
        read: dict[str, Any] = {}
        for key, value in layer.items():
            try:
                if value == NOT_READ or has_no_effect(cls, key):
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
    name = setting_name(key)
    fields = attrs.fields_dict(cls)
    if name not in fields:
        raise _unknown(cls, key)
    if name in read:
        raise BadValueError(f"{key} = {value!r}: expected once, but {name} is given twice")
    read[name] = _read(fields[name], key, value)


def has_no_effect(cls: type[Settings], key: str) -> bool:
    """Whether a setting is passed over: one that is not modelled, or one of another layer."""
    dotted = key.replace("_", ".")
    ignored = dotted in _IGNORED or dotted.startswith(_IGNORED_FAMILIES)
    return ignored or _is_of_other_layer(cls, key)


def _is_of_other_layer(cls: type[Settings], key: str) -> bool:
    """Whether a name is neither one of Kafka's nor similar to one. Ours have no dots."""
    return (
        "." in key
        and not any(setting_name(key) in attrs.fields_dict(known) for known in _CLASSES)
        and not get_close_matches(key, _kafka_names(cls), n=1, cutoff=_TYPING_ERROR)
    )


def setting_name(key: str) -> str:
    """The name of a setting in its class, for a name in any spelling."""
    name = key.replace(".", "_")
    return _LONG_NAMES.get(name, name)


def _kafka_names(cls: type[Settings]) -> list[str]:
    """The dotted names of a class's settings, and of those that are ignored."""
    kafka = {ours: theirs for theirs, ours in _LONG_NAMES.items()}
    names = [field.name for field in attrs.fields(cls)]
    return [kafka.get(name, name).replace("_", ".") for name in names] + sorted(_IGNORED)


def _noun(cls: type[Settings]) -> str:
    return cls.__name__.removesuffix("Settings").lower() + " setting"


def _unknown(cls: type[Settings], key: str) -> UnknownNameError:
    """Suggest a name in the spelling that the user uses: dotted or snake case."""
    names = _kafka_names(cls) if "." in key else [field.name for field in attrs.fields(cls)]
    return UnknownNameError(_noun(cls), key, names)


_BLANKS: Final = " \t\f"
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | PathLike[str]) -> dict[str, str]:
    """Read a Java .properties file. Of a repeated key, the last value counts."""
    found = {}
    for number, line in _logical_lines(Path(path).read_text("latin-1")):
        pair = _PAIR.fullmatch(line)
        assert pair is not None, "the pattern matches every line"
        try:
            found[_unescape(pair[1])] = _unescape(pair[2])
        except ValueError:
            raise BadValueError(
                f"{path}, line {number}: {line!r}: expected four hexadecimal digits after \\u"
            ) from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines joined with their continuations, without comments and empty lines.

    Each comes with the number of its first line.
    """
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


# Settings without effect

_NOT_MODELLED: Final = frozenset((
    "allow.auto.create.topics", "buffer.memory", "compression.type", "default.api.timeout.ms",
    "group.protocol", "group.remote.assignor", "isolation.level", "max.block.ms",
    "max.request.size", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "partitioner.ignore.keys", "transactional.id",
))  # fmt: skip
_NOT_MODELLED_FAMILIES: Final = ("compression.", "reconnect.", "transaction.")
"""Of the ignored settings, those that change what a Kafka cluster does."""


def describe_ignored(names: Iterable[str]) -> str:
    """Name settings without effect: first those with which Kafka would do something else."""
    kinds: dict[str, list[str]] = {"not modelled": [], "no meaning here": []}
    for name in dict.fromkeys(names):
        dotted = name.replace("_", ".")
        missed = dotted in _NOT_MODELLED or dotted.startswith(_NOT_MODELLED_FAMILIES)
        kinds["not modelled" if missed else "no meaning here"].append(name)
    parts = [f"{', '.join(sorted(own))} ({kind})" for kind, own in kinds.items() if own]
    return f"settings without effect: {'; '.join(parts)}"


def ignored_settings(scenario: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the settings without effect in a scenario, given as plain data."""
    given: list[tuple[Any, Mapping[str, object]]] = [
        (ClusterSettings, (scenario.get("cluster") or {}).get("settings") or {}),
        *((ProducerSettings, each.get("settings") or {}) for each in scenario.get("producers", ())),
        *((ConsumerSettings, each.get("settings") or {}) for each in scenario.get("groups", ())),
    ]
    names = [name for cls, settings in given for name in from_mapping(cls, settings).ignored]
    if scenario.get("engine") != "live":
        names += [name for name in given[0][1] if setting_name(name) in FILE_SETTINGS]
    return tuple(dict.fromkeys(names))
