"""Settings under Kafka's names, and .properties files."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.model.settings import (
    ClusterSettings,
    ConsumerSettings,
    ProducerSettings,
    from_mapping,
    read_properties,
)

KAFKA_DEFAULTS = {
    ProducerSettings: {
        "acks": "all",
        "linger.ms": 5,
        "batch.size": 16384,
        "max.in.flight.requests.per.connection": 5,
        "retries": 2147483647,
        "enable.idempotence": True,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1000,
        "request.timeout.ms": 30000,
        "delivery.timeout.ms": 120000,
    },
    ConsumerSettings: {
        "session.timeout.ms": 45000,
        "heartbeat.interval.ms": 3000,
        "max.poll.interval.ms": 300000,
        "max.poll.records": 500,
        "fetch.min.bytes": 1,
        "fetch.max.wait.ms": 500,
        "fetch.max.bytes": 52428800,
        "max.partition.fetch.bytes": 1048576,
        "auto.offset.reset": "latest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5000,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1000,
        "request.timeout.ms": 30000,
        "group.instance.id": None,
    },
    ClusterSettings: {
        "broker.heartbeat.interval.ms": 2000,
        "broker.session.timeout.ms": 9000,
        "group.initial.rebalance.delay.ms": 3000,
    },
}
NUMBERS = [
    (cls, field.name) for cls in KAFKA_DEFAULTS for field in attrs.fields(cls) if field.type is int
]


@pytest.mark.parametrize("cls", list(KAFKA_DEFAULTS))
def test_the_defaults_are_those_of_kafka(cls: Any) -> None:
    assert from_mapping(cls, KAFKA_DEFAULTS[cls]).settings == cls()


def test_a_setting_has_kafkas_name_or_snake_case_and_a_value_may_be_text() -> None:
    expected = ConsumerSettings(
        max_poll_records=50, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    for mapping in (
        {"max.poll.records": 50, "enable.auto.commit": False, "auto.offset.reset": "earliest"},
        {"max_poll_records": "50", "enable_auto_commit": "false", "auto_offset_reset": "earliest"},
        {
            "max.poll.records": " 50 ",
            "enable.auto.commit": "FALSE",
            "auto_offset_reset": "earliest ",
        },
    ):
        assert from_mapping(ConsumerSettings, mapping).settings == expected


@pytest.mark.parametrize(
    ("written", "acks"),
    [(0, 0), ("0", 0), (1, 1), ("1", 1), (-1, "all"), ("-1", "all"), ("all", "all")],
)
def test_acks_are_zero_one_or_all(written: Any, acks: object) -> None:
    assert ProducerSettings(acks=written).acks == acks
    assert from_mapping(ProducerSettings, {"acks": written}).settings.acks == acks


@pytest.mark.parametrize(
    "name", ["max_in_flight", "max.in.flight", "max.in.flight.requests.per.connection"]
)
def test_max_in_flight_has_a_short_name(name: str) -> None:
    assert from_mapping(ProducerSettings, {name: "2"}).settings.max_in_flight == 2


@pytest.mark.parametrize(("cls", "name"), NUMBERS)
@pytest.mark.parametrize("value", [-1, 2**31, 1.5, True, None, "many", "1_000", "", [1]])
def test_an_invalid_number_is_refused_with_name_and_value(
    cls: Any, name: str, value: object
) -> None:
    dotted = name.replace("_", ".")
    for call, called in (
        (lambda: cls(**{name: value}), name),
        (lambda: from_mapping(cls, {dotted: value}), dotted),
    ):
        with pytest.raises(wt.errors.BadValueError) as refusal:
            call()
        assert str(refusal.value).startswith(f"{called} = {value!r}: expected a whole number from ")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProducerSettings(acks=2), "acks = 2: expected one of 0, 1, all, -1"),
        (lambda: ProducerSettings(acks=True), "acks = True: expected one of"),
        (lambda: ProducerSettings(max_in_flight=0), "max_in_flight = 0: .* number from 1"),
        (
            lambda: ProducerSettings(delivery_timeout_ms=30_004),
            r"delivery_timeout_ms = 30004: expected at least linger_ms \+ request_timeout_ms = 5 ",
        ),
        (
            lambda: ConsumerSettings(heartbeat_interval_ms=45_000),
            "heartbeat_interval_ms = 45000: expected less than session_timeout_ms = 45000",
        ),
        (
            lambda: ClusterSettings(broker_session_timeout_ms=2_000),
            "broker_heartbeat_interval_ms = 2000: expected less than broker_session_timeout_ms = ",
        ),
        (
            lambda: ConsumerSettings(auto_offset_reset="first"),
            "auto_offset_reset = 'first': expected one of earliest, latest, unconsumed, none",
        ),
        (lambda: ConsumerSettings(auto_offset_reset=None), "auto_offset_reset = None: expected"),
        (
            lambda: ConsumerSettings(enable_auto_commit="yes"),
            "enable_auto_commit = 'yes': expected one of true, false",
        ),
        (lambda: ProducerSettings(enable_idempotence=1), "enable_idempotence = 1: expected one of"),
        (lambda: ProducerSettings(producer_id=""), "producer_id = '': expected a text"),
        (
            lambda: ProducerSettings(enable_idempotence=True, acks=0),
            "enable_idempotence = True: expected acks of 1 or all, and retries, not acks = 0",
        ),
        (
            lambda: from_mapping(ProducerSettings, {"enable.idempotence": "true", "retries": "0"}),
            "enable_idempotence = True: expected acks of 1 or all, and retries, not retries = 0",
        ),
        (lambda: ConsumerSettings(group_instance_id=""), "group_instance_id = '': expected a text"),
        (lambda: ConsumerSettings(group_instance_id=5), "group_instance_id = 5: expected a text"),
    ],
)
def test_an_invalid_setting_is_refused_with_what_is_expected(make: Any, message: str) -> None:
    with pytest.raises(wt.errors.BadValueError, match=message):
        make()


def test_the_default_delivery_timeout_covers_linger_and_request_timeout() -> None:
    patient = ProducerSettings(linger_ms=50, request_timeout_ms=200_000)
    assert patient.delivery_timeout_ms == 200_050
    assert ProducerSettings(linger_ms=50).delivery_timeout_ms == 120_000
    assert ProducerSettings(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005


def test_a_producer_is_idempotent_by_default_unless_acks_or_retries_are_zero() -> None:
    assert ProducerSettings().enable_idempotence
    assert ProducerSettings(acks=1).enable_idempotence
    assert not ProducerSettings(acks=0).enable_idempotence
    assert not ProducerSettings(retries=0).enable_idempotence
    assert not ProducerSettings(enable_idempotence=False).enable_idempotence
    read = from_mapping(ProducerSettings, {"enable.idempotence": "false", "acks": "0"})
    assert read.settings == ProducerSettings(acks=0)
    assert read.ignored == ()


def test_the_rebalance_timeout_is_the_max_poll_interval() -> None:
    assert ConsumerSettings(max_poll_interval_ms=7_000).rebalance_timeout_ms == 7_000


@pytest.mark.parametrize(
    ("cls", "key", "nearest"),
    [
        (ConsumerSettings, "max.pol.records", "max.poll.records"),
        (ConsumerSettings, "max_pol_records", "max_poll_records"),
        (ConsumerSettings, "boostrap.servers", "bootstrap.servers"),
        (
            ProducerSettings,
            "max.in.flight.request.per.connection",
            "max.in.flight.requests.per.connection",
        ),
    ],
)
def test_an_unknown_setting_is_refused_with_the_most_similar_name(
    cls: Any, key: str, nearest: str
) -> None:
    what = "consumer" if cls is ConsumerSettings else "producer"
    with pytest.raises(wt.errors.UnknownNameError) as refusal:
        from_mapping(cls, {key: 1})
    assert str(refusal.value) == f"unknown {what} setting {key!r}: did you mean {nearest!r}?"


def test_a_consumer_refuses_a_setting_of_a_producer() -> None:
    with pytest.raises(wt.errors.UnknownNameError, match=r"unknown consumer setting 'linger\.ms'"):
        from_mapping(ConsumerSettings, {"linger.ms": 1})


@pytest.mark.parametrize("cls", [ProducerSettings, ConsumerSettings])
@pytest.mark.parametrize(
    "key",
    [
        "specific.avro.reader", "value.subject.name.strategy", "spring.json.trusted.packages",
        "confluent.monitoring.interceptor.bootstrap.servers", "basic.auth.credentials.source",
        "enable.partition.eof", "schemas.enable",
    ],
)  # fmt: skip
def test_a_setting_of_another_layer_is_passed_over_and_reported(cls: Any, key: str) -> None:
    loaded = from_mapping(cls, {key: "x", "client.id": "a"})
    assert loaded.settings == cls()
    assert loaded.ignored == (key, "client.id")


@pytest.mark.parametrize("key", ["specific_avro_reader", "reader", "schemas_enable"])
def test_an_unknown_name_without_dots_is_refused_as_no_file_of_kafka_has_it(key: str) -> None:
    with pytest.raises(wt.errors.UnknownNameError, match=f"unknown consumer setting '{key}'"):
        from_mapping(ConsumerSettings, {key: 1})


def test_all_problems_are_reported_at_once() -> None:
    mapping = {"lingr.ms": 5, "acks": "some", "retries": "1", "batch.size": -1}
    with pytest.raises(wt.errors.BadValueError) as refusal:
        from_mapping(ProducerSettings, mapping)
    assert str(refusal.value).splitlines() == [
        "3 problems with producer settings:",
        "  unknown producer setting 'lingr.ms': did you mean 'linger.ms'?",
        "  acks = 'some': expected one of 0, 1, all, -1",
        "  batch.size = -1: expected a whole number from 0 to 2147483647",
    ]


def test_a_setting_given_in_two_spellings_is_refused() -> None:
    with pytest.raises(wt.errors.BadValueError, match="linger_ms = 2: expected once"):
        from_mapping(ProducerSettings, {"linger.ms": 1, "linger_ms": 2})


def test_a_later_layer_overrides_an_earlier_one_whatever_the_spelling() -> None:
    file = {"max.in.flight.requests.per.connection": "3", "linger.ms": "9", "client.id": "x"}
    loaded = from_mapping(
        ProducerSettings, {"linger_ms": 1, "retries": 2}, file, {"max_in_flight": 4}
    )
    assert loaded.settings == ProducerSettings(linger_ms=9, retries=2, max_in_flight=4)
    assert loaded.ignored == ("client.id",)
    assert from_mapping(ProducerSettings).settings == ProducerSettings()


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("org.apache.kafka.clients.consumer.RangeAssignor", "range"),
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", "roundrobin"),
        ("org.apache.kafka.clients.consumer.StickyAssignor", "sticky"),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        (
            "org.apache.kafka.clients.consumer.StickyAssignor, "
            "org.apache.kafka.clients.consumer.RangeAssignor",
            "sticky",
        ),
        (["org.apache.kafka.clients.consumer.RangeAssignor", "sticky"], "range"),
        ("sticky", "sticky"),
        ("mine", "mine"),
        (None, None),
    ],
)
def test_an_assignor_is_named_by_its_java_class_or_our_name(written: Any, name: str | None) -> None:
    mapping = {"partition.assignment.strategy": written}
    got = from_mapping(ConsumerSettings, mapping).settings.partition_assignment_strategy
    assert got == name


def test_a_java_class_without_a_counterpart_is_refused() -> None:
    for cls, key, value in (
        (ConsumerSettings, "partition.assignment.strategy", "com.example.MyAssignor"),
        (ProducerSettings, "partitioner.class", "com.example.MyPartitioner"),
        (ConsumerSettings, "partition.assignment.strategy", ""),
        (ConsumerSettings, "partition.assignment.strategy", 5),
        (ConsumerSettings, "partition.assignment.strategy", [5]),
    ):
        with pytest.raises(wt.errors.BadValueError, match=rf"{key} = .*: expected a name, such as"):
            from_mapping(cls, {key: value})  # type: ignore[type-var]


def test_a_partitioner_is_named_by_its_java_class() -> None:
    java = "org.apache.kafka.clients.producer.UniformStickyPartitioner"
    settings = from_mapping(ProducerSettings, {"partitioner.class": java}).settings
    assert settings.partitioner_class == "sticky"


CONSUMER_PROPERTIES = r"""
# Licensed to somebody; see consumer.properties of a Kafka installation.
! list of brokers used for bootstrapping knowledge about the rest of the cluster
bootstrap.servers=broker-1:9092,\
                  broker-2:9092

group.id = billing
key.deserializer:org.apache.kafka.common.serialization.StringDeserializer
value.deserializer org.apache.kafka.common.serialization.StringDeserializer
client.id=billing-\u00e4-1
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
  username="alice" \
  password="se=cret";
ssl.truststore.location=C:\\certs\\trust.jks
interceptor.classes=io.example.Tracing
isolation.level=read_committed

auto.offset.reset=earliest
enable.auto.commit=false
max.poll.records=250
session.timeout.ms=30000
partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor
"""


def test_a_real_consumer_properties_file_is_read_without_changes(tmp_path: Path) -> None:
    path = tmp_path / "consumer.properties"
    path.write_text(CONSUMER_PROPERTIES)
    pairs = read_properties(path)
    loaded = from_mapping(ConsumerSettings, pairs)
    assert loaded.settings == ConsumerSettings(
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=250,
        session_timeout_ms=30_000,
        partition_assignment_strategy="cooperative-sticky",
    )
    assert loaded.ignored == (
        "bootstrap.servers",
        "group.id",
        "key.deserializer",
        "value.deserializer",
        "client.id",
        "security.protocol",
        "sasl.jaas.config",
        "ssl.truststore.location",
        "interceptor.classes",
        "isolation.level",
    )
    assert pairs["bootstrap.servers"] == "broker-1:9092,broker-2:9092"
    assert pairs["client.id"] == "billing-ä-1"
    assert pairs["ssl.truststore.location"] == r"C:\certs\trust.jks"
    assert pairs["sasl.jaas.config"].endswith('required username="alice" password="se=cret";')


# Each of these was compared with the result of java.util.Properties.
@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1\nb:2\rc 3\r\nd\t= 4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a", {"a": ""}),
        ("a = = b", {"a": "= b"}),
        ("a==b", {"a": "=b"}),
        ("  \t\fa = b  ", {"a": "b  "}),
        ("a=1\na=2", {"a": "2"}),
        (" # no\n ! no\n#a=1\\\nb=2", {"b": "2"}),
        ("a=1,\\\n  # 2", {"a": "1,# 2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\nb=2", {"a": "1\\b=2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("\\\n# no\na=1", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        (r"a\ b\=c\:d = \ e", {"a b=c:d": " e"}),
        (r"\#a=\t\n\r\f\z\"", {"#a": '\t\n\r\fz"'}),
        (r"a=\u00e9\uD83D\uDE00", {"a": "é😀"}),
        ("=b", {"": "b"}),
    ],
)
def test_a_properties_file_is_read_as_java_reads_it(
    tmp_path: Path, text: str, pairs: dict[str, str]
) -> None:
    path = tmp_path / "some.properties"
    path.write_bytes(text.encode("latin-1"))
    assert read_properties(path) == pairs


def stored(text: str) -> str:
    """Escape text at least as much as java.util.Properties.store does."""
    letters = {"\t": "t", "\n": "n", "\r": "r", "\f": "f", **{c: c for c in "\\=:#! "}}
    utf16 = text.encode("utf-16-be")
    units = [chr(int.from_bytes(utf16[i : i + 2], "big")) for i in range(0, len(utf16), 2)]
    escaped = [
        f"\\{letters[c]}" if c in letters else c if "!" <= c <= "~" else f"\\u{ord(c):04X}"
        for c in units
    ]
    return "".join(escaped)


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_pairs_stored_by_java_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "stored.properties"
    lines = [f"{stored(key)}={stored(value)}\n" for key, value in pairs.items()]
    path.write_text("#Mon Jun 01\n" + "".join(lines), "latin-1")
    assert read_properties(path) == pairs


def test_an_invalid_escape_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.properties"
    path.write_text("# one\na=1,\\\n  2\nb=\\u12x4\n")
    expected = r"broken.properties, line 4: 'b=.*u12x4': expected four hexadecimal digits after"
    with pytest.raises(wt.errors.BadValueError, match=expected):
        read_properties(path)
