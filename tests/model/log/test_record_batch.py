"""Kafka's record batch, against a plain encoder and against kafka-python's codec."""

import gzip
import warnings
from random import Random
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.plain_record_batch import PlainRecord, plain_envelope, plain_frame, plain_record
from wavetank.model.errors import BadValueError
from wavetank.model.log import record_batch
from wavetank.model.log.batch import Batch
from wavetank.model.log.record import NOWHERE
from wavetank.model.log.record_batch import (
    HEADER_SIZE,
    DamagedBatchError,
    decode,
    encode,
    read_header,
    read_records,
    stamp,
    verify,
)
from wavetank.model.serializers import make_serializer

with warnings.catch_warnings():  # kafka-python reads its schemas in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

BYTES = make_serializer("bytes")
ORIGIN_US = 1_700_000_000_123_456
NAMES = {7: ("shop", "shop#2")}

DATA = st.none() | st.binary(max_size=3) | st.sampled_from([b"v" * 63, b"v" * 64, b"v" * 9000])
HEADERS = st.lists(st.tuples(st.sampled_from("aé"), st.none() | st.binary(max_size=2)), max_size=2)
DELTAS_US = st.integers(-3, 3) | st.integers(-(10**13), 10**13)


def encoded(batch: Batch, **kwargs: Any) -> bytes:
    options = {"producer_id": 7, "origin_us": ORIGIN_US, "dumps": BYTES.dumps}
    return encode(batch, **(options | kwargs))


def decoded(frame: bytes, **kwargs: Any) -> Batch:
    options = {"names": NAMES, "origin_us": ORIGIN_US, "loads": BYTES.loads}
    return decode(frame, **(options | kwargs))


@attrs.frozen
class Case:
    """A batch, and its records as they should be stored."""

    batch: Batch
    records: list[PlainRecord]

    @property
    def frame(self) -> bytes:
        """The batch, encoded in the plain way."""
        return plain_frame(
            self.records, base_offset=self.batch.base_offset, leader_epoch=self.batch.epoch,
            producer_id=7, producer_epoch=self.batch.producer_epoch,
            base_sequence=self.batch.sequence,
        )  # fmt: skip


def data_column(draw: st.DrawFn, count: int) -> tuple[Any, list[bytes | None]]:
    """Draw a column of keys or values in one of its forms, and the stored one of each record."""
    form = draw(st.sampled_from(["tuple", "texts", "one length", "shared", "array", "nulls"]))
    if form == "shared":
        shared = draw(st.binary(max_size=70))
        return shared, [shared] * count
    if form == "nulls":
        return (None,) * count, [None] * count
    if form in ("one length", "array"):
        cells = [b"%07d" % draw(st.integers(0, 10**6)) for _ in range(count)]
        return np.array(cells, "S7") if form == "array" else tuple(cells), list(cells)
    if form == "texts":
        texts = draw(
            st.lists(st.sampled_from(["", "té", "k" * 70]), min_size=count, max_size=count)
        )
        return tuple(texts), [text.encode() for text in texts]
    drawn = draw(st.lists(DATA, min_size=count, max_size=count))
    return tuple(drawn), drawn


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a batch with columns of all kinds."""
    count = draw(st.integers(1, 9) | st.sampled_from([16, 63, 64, 65, 200]))
    keys, key = (None, [None] * count)
    if draw(st.booleans()):
        keys, key = data_column(draw, count)
    if draw(st.integers(0, 3)):
        values, value = data_column(draw, count)
        sizes: Any = 0
    else:
        values = None
        each = draw(st.lists(st.integers(0, 99), min_size=count, max_size=count))
        if draw(st.booleans()):
            each = each[:1] * count
            sizes = each[0]
        else:
            sizes = draw(st.sampled_from([tuple(each), np.array(each, np.int16)]))
        value = [bytes(size) for size in each]
    headers = draw(st.none() | st.lists(HEADERS, min_size=count, max_size=count))
    first = draw(st.integers(0, 10**15))
    step = draw(st.integers(1, 10**6))
    random = draw(st.lists(DELTAS_US, min_size=count, max_size=count))
    times: Any = draw(
        st.sampled_from(
            [first, range(first, first + count * step, step), tuple(first + t for t in random)]
        )
    )
    each_us = [times] * count if isinstance(times, int) else list(times)
    batch = Batch(
        "shop", draw(st.integers(0, 2**31 - 1)), count, keys=keys, values=values, headers=headers,
        timestamps_us=times, sizes=sizes,
    )  # fmt: skip
    if draw(st.booleans()):
        batch = batch.stamped(draw(st.integers(0, 2**40)), 5, draw(st.integers(0, 99)), 1)
    records = [
        PlainRecord(
            (ORIGIN_US + each_us[i]) // 1000, key[i], value[i], tuple(headers[i]) if headers else ()
        )
        for i in range(count)
    ]
    return Case(batch, records)


def uniform(count: int, **columns: Any) -> Batch:
    return Batch("shop", 3, count, **({"timestamps_us": 0, "sizes": 100} | columns))


# Encoding


@given(cases())
def test_an_encoded_batch_equals_that_of_a_plain_encoder(case: Case) -> None:
    values = case.batch.values
    texts = type(values) is tuple and str in set(map(type, values))
    dumps = make_serializer("str").dumps if texts else BYTES.dumps
    assert encoded(case.batch, dumps=dumps) == case.frame


@pytest.mark.parametrize("count", [1, 16, 64, 65, 1000, 8192 + 100])
@pytest.mark.parametrize("step_us", [0, 1, 1000, 700_000])
def test_records_of_one_layout_equal_those_of_a_plain_encoder(count: int, step_us: int) -> None:
    times = np.arange(count) * step_us
    records = [
        PlainRecord((ORIGIN_US + i * step_us) // 1000, b"%05d" % i, bytes(100))
        for i in range(count)
    ]
    keys = tuple(record.key for record in records)
    batch = uniform(count, keys=keys, timestamps_us=times).stamped(5, 0, 2)
    assert encoded(batch) == Case(batch, records).frame


def test_records_with_empty_keys_and_values_equal_those_of_a_plain_encoder() -> None:
    records = [PlainRecord(ORIGIN_US // 1000, b"", b"")] * 70
    batch = uniform(70, keys=(b"",) * 70, values=(b"",) * 70).stamped(5, 0, 2)
    assert encoded(batch) == Case(batch, records).frame


def test_a_batch_without_a_producer_has_no_sequence_number() -> None:
    frame = plain_frame([PlainRecord(5)], producer_id=-1, base_sequence=-1)
    batch = decoded(frame, origin_us=0)
    assert encoded(batch, producer_id=-1, origin_us=0) == frame


def test_a_synthetic_batch_has_its_real_size_on_disk() -> None:
    small, large = uniform(10, sizes=0), uniform(10, sizes=50)
    assert len(encoded(large)) - len(encoded(small)) == 10 * 50
    assert decoded(encoded(large)).values == (bytes(50),) * 10


def test_a_sequence_number_begins_again_after_31_bits() -> None:
    batch = Batch("shop", 2**31 + 4, 1, timestamps_us=0, sizes=1)
    assert read_header(encoded(batch), 0).base_sequence == 4


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (uniform(0), "expected at least one record to encode"),
        (uniform(2, keys=(b"a", 3)), "key 3: expected bytes"),
        (uniform(20, keys=np.arange(20)), "key 0: expected bytes"),
        (uniform(1, values=("text",)), "value 'text': serializer 'bytes' expected bytes"),
        (uniform(1, headers=[[("a", 3)]]), "header value 3: expected bytes"),
        (uniform(1, headers=[[(3, b"a")]]), "header name 3: expected a text"),
    ],
)
def test_what_cannot_be_stored_is_refused(batch: Batch, problem: str) -> None:
    with pytest.raises(BadValueError, match=problem):
        encoded(batch)


def test_a_stamp_changes_offset_and_epoch_and_keeps_the_checksum_valid() -> None:
    batch = uniform(20, values=b"tea")
    stamped = stamp(encoded(batch), 2**40, 9)
    assert stamped == encoded(batch.stamped(2**40, 0, 9))
    verify(stamped, 0, read_header(stamped, 0))


# Decoding


@given(cases())
def test_a_decoded_batch_has_the_records_that_were_encoded(case: Case) -> None:
    batch = decoded(case.frame)
    assert batch.count == len(case.records)
    assert (batch.base_offset, batch.epoch) == (case.batch.base_offset, case.batch.epoch)
    assert batch.producer_epoch == case.batch.producer_epoch
    assert (batch.sequence, batch.producer, batch.instance) == (
        case.batch.sequence, "shop", "shop#2",
    )  # fmt: skip
    times_us = [record.timestamp_ms * 1000 - ORIGIN_US for record in case.records]
    assert batch.append_time_us == max(times_us) == batch.latest_us
    records = batch.records("orders", 2)
    assert records == [batch.record(i, "orders", 2) for i in range(batch.count)]
    assert [record.timestamp_us for record in records] == times_us
    assert [record.key for record in records] == [record.key for record in case.records]
    assert [record.value for record in records] == [record.value for record in case.records]
    assert [record.headers for record in records] == [record.headers for record in case.records]


@given(cases())
def test_sizes_are_those_in_the_file_and_add_up(case: Case) -> None:
    batch = decoded(case.frame)
    assert batch.bytes == len(case.frame) - HEADER_SIZE
    first_ms = case.records[0].timestamp_ms
    sizes = [len(plain_record(record, i, first_ms)) for i, record in enumerate(case.records)]
    assert [record.size for record in batch.records("orders", 2)] == sizes
    assert sum(sizes) == batch.bytes


@given(cases(), st.data())
def test_a_decoded_batch_can_be_sliced(case: Case, data: st.DataObject) -> None:
    batch = decoded(case.frame)
    start = data.draw(st.integers(0, batch.count))
    stop = data.draw(st.integers(start, batch.count))
    part = batch[start:stop]
    assert part.records("orders", 2) == batch.records("orders", 2)[start:stop]
    assert part.bytes == sum(record.size for record in part.records("orders", 2))


@given(cases())
def test_a_decoded_batch_encodes_to_the_same_frame(case: Case) -> None:
    assert encoded(decoded(case.frame)) == case.frame


def test_records_are_decoded_once_and_only_when_somebody_looks_inside() -> None:
    seen: list[bytes | None] = []

    def loads(data: bytes | None) -> bytes | None:
        seen.append(data)
        return data

    batch = decoded(encoded(uniform(2, values=(b"a", b"b"))), loads=loads)
    batch = batch.stamped(4, 0, 0).numbered(1, "shop#3")
    assert (batch.count, batch.bytes > 0, seen) == (2, True, [])
    part = batch[1:]
    assert (part.values, batch.values, batch.keys) == ((b"b",), (b"a", b"b"), None)
    assert seen == [b"a", b"b"]


def test_an_unknown_producer_id_becomes_a_name() -> None:
    batch = decoded(encoded(uniform(1), producer_id=12))
    assert (batch.producer, batch.instance) == ("producer-12", "producer-12")


def test_a_frame_may_be_a_view() -> None:
    frame = encoded(uniform(2, values=b"tea"))
    assert decoded(memoryview(b"xx" + frame)[2:]).values == (b"tea",) * 2  # type: ignore[arg-type]


def test_gzip_is_decompressed_and_sizes_add_up_to_the_compressed_size() -> None:
    records = [PlainRecord(5 + i, None, b"tea" * i) for i in range(50)]
    body = b"".join(plain_record(record, i, 5) for i, record in enumerate(records))
    frame = plain_envelope(gzip.compress(body), 50, 5, 54, attributes=1)
    assert read_header(frame, 0).compression == "gzip"
    batch = decoded(frame)
    assert batch.values == tuple(record.value for record in records)
    assert sum(record.size for record in batch.records("t", 0)) == batch.bytes < len(body)


@pytest.mark.parametrize(("code", "codec"), [(2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_other_codecs_are_named(code: int, codec: str) -> None:
    frame = plain_envelope(b"", 1, attributes=code)
    with pytest.raises(BadValueError, match=f"offset 0 is compressed with {codec}: expected gzip"):
        decoded(frame)


def test_flags_are_those_of_the_header() -> None:
    header = read_header(plain_envelope(b"\0" * 7, 1, attributes=0b110000), 0)
    assert (header.is_control, header.is_transactional, header.has_append_time) == (
        True,
        True,
        False,
    )
    assert read_header(plain_envelope(b"\0" * 7, 1, attributes=8), 0).has_append_time


def test_the_values_of_a_control_batch_stay_bytes() -> None:
    frame = plain_frame([PlainRecord(0, b"\0\0\0\1", b"\0" * 6)], attributes=0b110000)
    batch = decoded(frame, loads=make_serializer("json").loads)
    assert (batch.keys, batch.values) == ((b"\0\0\0\1",), (b"\0" * 6,))


def test_records_with_append_time_have_the_highest_timestamp() -> None:
    frame = plain_frame([PlainRecord(5), PlainRecord(9)], attributes=8)
    assert decoded(frame, origin_us=0).timestamps_us == 9000


def test_a_batch_with_gaps_is_refused_but_its_records_can_be_read() -> None:
    body = plain_record(PlainRecord(0, b"a"), 0, 0) + plain_record(PlainRecord(0, b"b"), 4, 0)
    frame = plain_envelope(body, 2, last_offset_delta=6)
    header = read_header(frame, 0)
    assert (header.next_offset, read_records(frame, header).offset_deltas) == (7, [0, 4])
    with pytest.raises(
        BadValueError, match="2 records in 7 offsets, expected a batch without gaps"
    ):
        decoded(frame)


def test_a_batch_that_compaction_has_emptied_has_no_records() -> None:
    batch = decoded(plain_envelope(b"", 0, last_offset_delta=6))
    assert (batch.count, batch.bytes, batch.records("t", 0)) == (0, 0, [])


# Damage

GOOD = plain_frame([PlainRecord(5, b"key", b"value", (("a", b"b"),)), PlainRecord(6)])


def changed(position: int, data: bytes) -> bytes:
    return GOOD[:position] + data + GOOD[position + len(data) :]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "batch at byte 0: 0 bytes are left, expected a header of 61"),
        (GOOD[:60], "60 bytes are left, expected a header of 61"),
        (bytes(100), "magic is 0, expected 2"),
        (changed(16, b"\1"), "magic is 1, expected 2"),
        (changed(8, b"\0\0\0\0"), "its size is 12, expected 61 to"),
        (changed(8, b"\xff\xff\xff\xff"), "its size is 11, expected 61 to"),
        (changed(8, b"\x7f\xff\xff\xff"), "expected 61 to 1073741824"),
        (changed(0, b"\x80"), "base offset is -9223372036854775808, expected -1 to"),
        (changed(0, b"\x7f" + b"\xff" * 7), "base offset is 9223372036854775807, expected -1 to"),
        (changed(12, b"\x80"), "leader epoch is -2147483648, expected -1 or more"),
        (changed(22, b"\7"), "codec 7, expected 0 to 4"),
        (changed(57, b"\xff"), "expected at most one for each offset"),
        (changed(57, b"\0\0\0\3"), "3 records in 2 offsets, expected at most one for each offset"),
        (changed(23, b"\xff"), "expected at most one for each offset"),
        (plain_envelope(b"\0" * 13, 2), "2 records in 13 bytes, expected 7 or more for each"),
    ],
)
def test_a_header_that_cannot_be_right_is_damage(data: bytes, problem: str) -> None:
    with pytest.raises(DamagedBatchError, match=problem):
        read_header(data, 0)


def test_damage_has_its_position() -> None:
    with pytest.raises(DamagedBatchError, match="batch at byte 3: ") as error:
        read_header(b"xxx" + changed(16, b"\1"), 3)
    assert (error.value.position, error.value.reason) == (3, "magic is 1, expected 2")


def test_any_bit_that_the_checksum_covers_is_verified() -> None:
    for bit in range(8 * 21, 8 * len(GOOD)):
        flipped = bytearray(b"xx" + GOOD)
        flipped[2 + bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedBatchError, match="CRC"):
            verify(bytes(flipped), 2, read_header(GOOD, 0))
    verify(b"xx" + GOOD, 2, read_header(GOOD, 0))


def test_a_frame_that_is_cut_off_is_damage() -> None:
    header = read_header(GOOD, 0)
    with pytest.raises(DamagedBatchError, match=f"{len(GOOD) - 1} bytes are left, expected"):
        verify(GOOD[:-1], 0, header)
    with pytest.raises(DamagedBatchError, match="bytes are given, expected"):
        decoded(GOOD[:-1])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"\x0c\0\0\0\1\1\0" + b"x", "1 bytes are left after its last record"),
        (b"\x0e\0\0\0\1\1\0\0", "record 0 has not the length it states"),
        (b"\x0d\0\0\0\3\1\0", "record 0 has a key of negative length"),
        (b"\x0d\0\0\0\1\3\0", "record 0 has a value of negative length"),
        (b"\x0c\0\0\0\1\x0e\0", "its last record is cut off"),
        (b"\xff" * 20, "has no end"),
    ],
)
def test_records_that_cannot_be_right_are_damage(body: bytes, problem: str) -> None:
    with pytest.raises(DamagedBatchError, match=problem):
        _ = decoded(plain_envelope(body, 1)).values


def test_gzip_that_cannot_be_read_is_damage() -> None:
    with pytest.raises(DamagedBatchError, match="its records cannot be unzipped"):
        _ = decoded(plain_envelope(b"tea", 1, attributes=1)).values


@given(st.binary(min_size=7, max_size=60), st.integers(1, 3), st.sampled_from([0, 1]))
@example(b"\x0c\0\0\0\1\1\0", 1, 0)
def test_random_records_are_read_or_reported(body: bytes, count: int, codec: int) -> None:
    frame = plain_envelope(body * count, count, attributes=codec)
    try:
        assert len(decoded(frame).records("orders", 2)) == count
    except DamagedBatchError:
        pass


def test_timestamps_beyond_64_bits_of_us_are_reported() -> None:
    far = plain_frame([PlainRecord(2**60), PlainRecord(2**60 + 1)])
    with pytest.raises(DamagedBatchError, match="its timestamps in ms are 1152921504606846976 to"):
        _ = decoded(far).timestamps_us


# kafka-python


@given(cases())
def test_kafka_python_reads_what_we_write(case: Case) -> None:
    batch = case.batch if case.batch.base_offset != NOWHERE else case.batch.stamped(0, 0, 0)
    if type(batch.values) is tuple and str in set(map(type, batch.values)):
        frame = encoded(batch, dumps=make_serializer("str").dumps)
    else:
        frame = encoded(batch)
    theirs = DefaultRecordBatch(frame)
    assert theirs.validate_crc()
    assert theirs.base_offset == batch.base_offset
    assert theirs.producer_id == 7
    assert theirs.base_sequence == batch.sequence
    records = list(theirs)
    assert [record.offset for record in records] == [
        batch.base_offset + i for i in range(batch.count)
    ]
    assert [
        PlainRecord(each.timestamp, each.key, each.value, tuple(each.headers)) for each in records
    ] == case.records


@given(cases(), st.sampled_from([0, 1]))
def test_we_read_what_kafka_python_writes(case: Case, compression: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=compression, is_transactional=False, producer_id=7,
        producer_epoch=1, base_sequence=3, batch_size=10**7,
    )  # fmt: skip
    for offset, record in enumerate(case.records):
        builder.append(offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    frame = bytes(builder.build())
    verify(frame, 0, read_header(frame, 0))
    batch = decoded(frame)
    assert (batch.sequence, batch.producer) == (3, "shop")
    found = [
        PlainRecord((each.timestamp_us + ORIGIN_US) // 1000, each.key, each.value, each.headers)
        for each in batch.records("orders", 2)
    ]
    assert found == case.records


@given(
    st.integers(16, 300), st.none() | st.integers(0, 5), st.none() | st.integers(0, 9), st.data()
)
def test_records_of_one_layout_are_read_as_others_are(
    count: int, key_size: int | None, value_size: int | None, data: st.DataObject
) -> None:
    random = Random(count)

    def column(size: int | None) -> tuple[bytes | None, ...]:
        return tuple(None if size is None else random.randbytes(size) for _ in range(count))

    batch = Batch(
        "shop", 0, count, timestamps_us=0, sizes=1, keys=column(key_size),
        values=column(value_size),
    ).stamped(0, 0, 0)  # fmt: skip
    frame = record_batch.encode(
        batch, producer_id=0, origin_us=0, dumps=make_serializer("bytes").dumps
    )
    records = bytearray(frame[record_batch.HEADER_SIZE :])
    for _ in range(data.draw(st.integers(0, 2))):
        records[data.draw(st.integers(0, len(records) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        plain = record_batch._unpack(bytes(records), count)
    except (record_batch.DamagedBatchError, IndexError):
        plain = None
    try:
        in_rows = record_batch._unpack_rows(bytes(records), count)
    except (record_batch.DamagedBatchError, IndexError):
        in_rows = None
    if in_rows is not None:
        assert plain is not None
        assert attrs.asdict(in_rows) == attrs.asdict(plain)
    elif bytes(records) == frame[record_batch.HEADER_SIZE :]:
        raise AssertionError("records of one layout are not recognised")


@given(st.integers(1, 40), st.data(), st.booleans())
def test_a_part_of_a_batch_gets_its_own_records_back(
    count: int, data: st.DataObject, known_sizes: bool
) -> None:
    random = Random(count)
    batch = Batch(
        "shop", 0, count, keys=tuple(random.randbytes(random.randint(0, 3)) for _ in range(count)),
        values=tuple(random.randbytes(random.randint(0, 9)) for _ in range(count)),
        timestamps_us=[1_000 * random.randint(0, 50) for _ in range(count)],
        sizes=[random.randint(1, 9) for _ in range(count)],
    ).stamped(70, 123_456, 2)  # fmt: skip
    bytes_ = make_serializer("bytes")
    frame = record_batch.encode(batch, producer_id=0, origin_us=0, dumps=bytes_.dumps)
    header = record_batch.read_header(frame, 0)
    names = {0: ("shop", "shop")}
    whole = (
        batch.unloaded() if known_sizes else record_batch.locate(header, names=names, origin_us=0)
    )
    start = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(start + 1, count))
    again = record_batch.reload(whole[start:stop], frame, origin_us=0, loads=bytes_.loads)
    expected, found = batch[start:stop].records("orders", 0), again.records("orders", 0)
    for field in ("offset", "key", "value", "timestamp_us", "sequence"):
        assert [getattr(r, field) for r in found] == [getattr(r, field) for r in expected], field
    if known_sizes:
        assert [record.size for record in found] == [record.size for record in expected]
        assert again.bytes == batch[start:stop].bytes
