"""The files of a log: what a scan finds after any damage, and what indexes lead to."""

import struct
from collections.abc import Iterable
from itertools import accumulate, pairwise

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.plain_record_batch import PlainRecord, plain_envelope, plain_frame
from wavetank.model.errors import BadValueError
from wavetank.model.log import segment
from wavetank.model.log.record_batch import read_header
from wavetank.model.log.segment import (
    Damage,
    Indexer,
    SegmentScan,
    build_indexes,
    file_name,
    find_offset,
    find_position,
    format_epochs,
    index_problems,
    parse_epochs,
    parse_file_name,
    scan,
    time_index_problems,
)


def scanned(
    data: bytes, start: int = 0, base_offset: int = 0, *, checksums: bool = True
) -> SegmentScan:
    """Scan bytes as if they were a file."""
    return scan(
        lambda at, size: data[at : at + size], len(data), start, base_offset, checksums=checksums
    )


def frames(counts: Iterable[int], times_ms: Iterable[int] | None = None) -> list[bytes]:
    """Make batches of so many records, with rising offsets."""
    counts = list(counts)
    times = list(times_ms or range(1000, 1000 + len(counts)))
    starts = accumulate(counts, initial=0)
    return [
        plain_frame(
            [PlainRecord(time_ms, b"k", b"value %d" % i) for i in range(count)],
            base_offset=start,
            leader_epoch=3,
        )
        for count, start, time_ms in zip(counts, starts, times, strict=False)
    ]


SMALL = frames([1, 3, 2])
"""Three batches: offsets 0, 1 to 3, 4 to 5."""
ENDS = list(accumulate(map(len, SMALL)))


# Scanning


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("counts", [[], [1], [1, 3, 2], [2] * 200, [1, 40_000, 1]])
def test_a_scan_finds_every_batch(counts: list[int], checksums: bool) -> None:
    parts = frames(counts)
    found = scanned(b"".join(parts), checksums=checksums)
    positions = list(accumulate(map(len, parts), initial=0))
    assert found.positions.tolist() == positions[:-1]
    assert [found.header(i) for i in range(len(found))] == [read_header(part, 0) for part in parts]
    assert (found.valid_size, found.next_offset) == (positions[-1], sum(counts))
    assert found.damage is None


def test_a_scan_can_start_at_a_later_batch() -> None:
    found = scanned(b"".join(SMALL), ENDS[0], 1)
    assert found.positions.tolist() == [ENDS[0], ENDS[1]]
    assert found.headers["base_offset"].tolist() == [1, 4]


@pytest.mark.parametrize("checksums", [True, False])
def test_a_scan_reads_a_chunk_at_a_time(checksums: bool) -> None:
    data = b"".join(frames([2000] * 80))
    reads: list[int] = []

    def read(at: int, size: int) -> bytes:
        reads.append(size)
        return data[at : at + size]

    assert len(scan(read, len(data), checksums=checksums)) == 80
    assert max(reads) <= 2**20 < len(data)
    assert sum(reads) < len(data) * 1.1 if checksums else sum(reads) < len(data) / 5


def test_gaps_between_offsets_are_no_damage() -> None:
    data = SMALL[0] + plain_frame([PlainRecord(0)], base_offset=700)
    assert (scanned(data).damage, scanned(data).next_offset) == (None, 701)


def test_an_offset_below_that_of_the_segment_is_damage() -> None:
    damage = scanned(b"".join(SMALL), base_offset=1).damage
    assert damage == Damage(0, "base offset is 0, expected 1 or more", True)


def test_a_batch_that_is_there_twice_is_damage_in_the_middle() -> None:
    found = scanned(SMALL[0] + SMALL[1] + SMALL[1] + SMALL[2])
    assert found.damage == Damage(ENDS[1], "base offset is 1, expected 4 or more", True)
    assert (found.valid_size, found.next_offset) == (ENDS[1], 4)


@pytest.mark.parametrize("checksums", [True, False])
def test_a_segment_that_is_cut_anywhere_recovers_to_the_longest_valid_prefix(
    checksums: bool,
) -> None:
    data = b"".join(SMALL)
    for size in range(len(data) + 1):
        found = scanned(data[:size], checksums=checksums)
        valid = max(end for end in [0, *ENDS] if end <= size)
        assert found.valid_size == valid
        assert (found.damage is None) == (valid == size)
        assert found.damage is None or not found.damage.in_the_middle
        assert len(found) == [0, *ENDS].index(valid)


@pytest.mark.parametrize("zeros", [1, 60, 61, 5000])
def test_zeros_after_the_last_batch_are_cut_off(zeros: int) -> None:
    found = scanned(b"".join(SMALL) + bytes(zeros))
    assert found.valid_size == ENDS[-1]
    assert found.damage is not None
    assert not found.damage.in_the_middle


def undetected(bit: int, index: int) -> bool:
    """Whether no checksum covers a bit of a batch, so that its other value is as good.

    That is so for the leader epoch, but for its sign, and for the offset of the last batch if it
    only becomes higher, which looks like a gap.
    """
    start = [0, *ENDS][index]
    byte = bit // 8 - start
    flipped = SMALL[index][byte] ^ 1 << bit % 8
    if 12 <= byte < 16:
        return byte > 12 or flipped < 128
    higher = flipped > SMALL[index][byte]
    return byte < 8 and higher and index == len(SMALL) - 1 and (byte > 0 or flipped < 128)


def test_any_flipped_bit_is_cut_off_or_reported_in_the_middle() -> None:
    data = b"".join(SMALL)
    for bit in range(8 * len(data)):
        index = next(i for i, end in enumerate(ENDS) if bit // 8 < end)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = scanned(bytes(flipped))
        if undetected(bit, index):
            assert found.damage is None
            continue
        assert found.damage is not None, bit
        assert found.valid_size == found.damage.position
        byte = bit // 8 - [0, *ENDS][index]
        if byte < 8 and found.damage.position == ENDS[index]:
            # An offset that is too high is noticed at the next batch.
            assert index < len(SMALL) - 1
            assert found.damage.in_the_middle
        else:
            assert found.damage.position == [0, *ENDS][index]
            # A batch whose offset alone is wrong is itself what must not be cut off.
            negative = byte == 0 and bool(flipped[bit // 8] & 128)
            intact = byte < 8 and not negative
            assert found.damage.in_the_middle == (index < len(SMALL) - 1 or intact)


@given(st.data())
def test_random_damage_never_raises_and_keeps_what_is_before_it(data: st.DataObject) -> None:
    whole = b"".join(SMALL)
    start = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.binary(max_size=200))
    found = scanned(whole[:start] + junk + whole[start + len(junk) :])
    assert found.valid_size >= max(end for end in [0, *ENDS] if end <= start)


def test_damage_is_found_in_the_middle_of_a_large_segment() -> None:
    parts = frames([500] * 60)
    parts[1] = b"\xff" * len(parts[1])
    damage = scanned(b"".join(parts)).damage
    assert damage is not None
    assert (damage.position, damage.in_the_middle) == (len(parts[0]), True)


@pytest.mark.parametrize(
    "distance", [0, 1, 60, 2**20 - 62, 2**20 - 61, 2**20 - 1, 2**20, 3 * 2**20]
)
def test_a_batch_after_a_damage_is_found_at_any_distance(distance: int) -> None:
    found = scanned(SMALL[0] + b"\x03" * distance + b"\x03" + SMALL[2])
    assert found.damage is not None
    assert found.damage.in_the_middle
    without = scanned(SMALL[0] + b"\x03" * distance + b"\x03" + SMALL[2][:-1])
    assert without.damage is not None
    assert not without.damage.in_the_middle


def test_an_older_batch_after_a_damage_does_not_count() -> None:
    damage = scanned(SMALL[0] + SMALL[1] + b"\x03" * 70 + SMALL[0]).damage
    assert damage is not None
    assert not damage.in_the_middle


def test_the_search_for_batches_after_a_damage_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_SEARCHED", 1000)
    wrong = bytearray(plain_envelope(bytes(300), 1, base_offset=9))
    wrong[-1] ^= 1
    few, many = (scanned(SMALL[0] + bytes(wrong) * times).damage for times in (2, 9))
    assert few is not None
    assert many is not None
    assert (few.in_the_middle, many.in_the_middle) == (False, True)


def test_a_size_that_would_reach_far_is_not_read_at_once() -> None:
    data = bytearray(b"".join(frames([2000] * 60)))
    struct.pack_into(">i", data, 8, 3 * 2**20)
    reads: list[int] = []

    def read(at: int, size: int) -> bytes:
        reads.append(size)
        return bytes(data[at : at + size])

    damage = scan(read, len(data), checksums=True).damage
    assert damage is not None
    assert damage.in_the_middle
    assert max(reads) < 2**20 + 100


# Names


def test_a_file_name_has_the_base_offset_in_20_digits() -> None:
    assert file_name(42, ".log") == "00000000000000000042.log"


@given(st.integers(0, 2**63 - 1), st.sampled_from([".log", ".index", ".timeindex"]))
def test_a_file_name_is_parsed_back(base_offset: int, suffix: str) -> None:
    assert parse_file_name(file_name(base_offset, suffix)) == (base_offset, suffix)


@pytest.mark.parametrize(
    "name",
    ["", "42.log", f"{'0' * 20}", f"{'0' * 20}.txt", f"{'0' * 21}.log", f"{'٣' * 20}.log",
     f"-{'0' * 19}.log", "leader-epoch-checkpoint"],
)  # fmt: skip
def test_other_names_are_no_segment(name: str) -> None:
    assert parse_file_name(name) is None


# Indexes


@attrs.frozen
class Indexed:
    """A segment, and its indexes."""

    base_offset: int
    frames: list[bytes]
    scan: SegmentScan
    index: bytes
    time_index: bytes


@st.composite
def indexed(draw: st.DrawFn) -> Indexed:
    counts = draw(st.lists(st.integers(1, 5), max_size=20))
    times = draw(st.lists(st.integers(0, 50), min_size=len(counts), max_size=len(counts)))
    base = draw(st.sampled_from([0, 10**12]))
    parts = [struct.pack(">q", base + read_header(part, 0).base_offset) + part[8:]
             for part in frames(counts, times)]  # fmt: skip
    found = scanned(b"".join(parts), base_offset=base)
    index, time_index = build_indexes(found, base, draw(st.sampled_from([0, 100, 300, 10**6])))
    return Indexed(base, parts, found, index, time_index)


@given(indexed(), st.integers(-1, 110))
def test_an_offset_is_found_at_or_after_the_position_of_the_index(case: Indexed, n: int) -> None:
    offset = case.base_offset + n
    position = find_position(case.index, case.base_offset, offset)
    headers = [case.scan.header(i) for i in range(len(case.scan))]
    with_it = [
        p for p, h in zip(case.scan.positions, headers, strict=True) if offset < h.next_offset
    ]
    assert position in [0, *case.scan.positions.tolist()]
    assert position <= min(with_it, default=case.scan.valid_size)


@given(indexed(), st.integers(0, 60))
def test_a_time_is_found_at_or_after_the_offset_of_the_index(case: Indexed, time_ms: int) -> None:
    offset = find_offset(case.time_index, case.base_offset, time_ms)
    headers = [case.scan.header(i) for i in range(len(case.scan))]
    late = [header.next_offset - 1 for header in headers if header.max_timestamp_ms >= time_ms]
    assert case.base_offset <= offset
    if late:
        assert offset <= late[0]


@given(indexed())
def test_indexes_agree_with_their_log_and_rise(case: Indexed) -> None:
    assert index_problems(case.scan, case.base_offset, case.index + bytes(80)) == []
    assert time_index_problems(case.scan, case.base_offset, case.time_index + bytes(120)) == []
    entries = list(struct.iter_unpack(">ii", case.index))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
    times = list(struct.iter_unpack(">qi", case.time_index))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(times))


def test_an_entry_is_made_after_more_than_the_interval() -> None:
    indexer = Indexer(100, log_index_interval_bytes=50)
    made = [
        indexer.add(position=0, size=50, last_offset=104, max_timestamp_ms=7),
        indexer.add(position=50, size=1, last_offset=105, max_timestamp_ms=9),
        indexer.add(position=51, size=60, last_offset=109, max_timestamp_ms=8),
        indexer.add(position=111, size=60, last_offset=110, max_timestamp_ms=9),
    ]
    assert made == [
        (b"", b""),
        (b"", b""),
        (struct.pack(">ii", 9, 51), struct.pack(">qi", 9, 5)),
        (struct.pack(">ii", 10, 111), b""),
    ]
    assert indexer.finish() == b""


def test_a_closed_segment_has_its_highest_timestamp_in_the_time_index() -> None:
    indexer = Indexer(100, 4096)
    indexer.add(position=0, size=50, last_offset=104, max_timestamp_ms=7)
    assert indexer.finish() == struct.pack(">qi", 7, 4)
    assert indexer.finish() == b""


def test_an_offset_too_far_for_the_index_is_refused() -> None:
    indexer = Indexer(100, 0)
    indexer.add(position=0, size=50, last_offset=104, max_timestamp_ms=7)
    with pytest.raises(BadValueError, match=f"offset {2**31 + 100} in a segment: expected 100 to"):
        indexer.add(position=50, size=50, last_offset=2**31 + 100, max_timestamp_ms=7)


def test_wrong_entries_of_an_index_are_listed_with_their_positions() -> None:
    found = scanned(b"".join(SMALL))
    right = struct.pack(">ii", 3, ENDS[0])
    wrong = struct.pack(">ii", 4, ENDS[0]) + struct.pack(">ii", 5, ENDS[0] + 1) + b"\0"
    assert index_problems(found, 0, right + wrong) == [
        (24, "its last entry is cut off"),
        (8, f"offset 4 for byte {ENDS[0]}, expected 3"),
        (16, f"no batch begins at byte {ENDS[0] + 1} of the log"),
    ]


def test_wrong_entries_of_a_time_index_are_listed_with_their_positions() -> None:
    found = scanned(b"".join(SMALL))
    entries = [(1001, 3), (1001, 5), (1002, 6)]
    index = b"".join(struct.pack(">qi", *entry) for entry in entries) + b"\0"
    assert time_index_problems(found, 0, index) == [
        (36, "its last entry is cut off"),
        (12, "timestamp 1001 for offset 5, expected 1002"),
        (24, "offset 6 is beyond the log"),
    ]


def test_the_indexes_of_an_empty_segment_are_empty() -> None:
    assert build_indexes(scanned(b""), 0, 4096) == (b"", b"")
    assert find_position(b"", 0, 5) == 0
    assert find_offset(b"", 7, 5) == 7


# Leader epochs


def test_leader_epochs_are_written_as_kafka_does() -> None:
    assert format_epochs([(0, 0), (3, 120)]) == "0\n2\n0 0\n3 120\n"


@given(st.lists(st.integers(0, 2**31 - 1), unique=True), st.integers(0, 2**40))
def test_leader_epochs_are_parsed_back(epochs: list[int], offset: int) -> None:
    entries = [(epoch, offset + i) for i, epoch in enumerate(sorted(epochs))]
    assert parse_epochs(format_epochs(entries)) == entries


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'': expected version 0 in the first line"),
        ("1\n0\n", "expected version 0 in the first line"),
        ("0\n", "0 entries, expected ''"),
        ("0\n2\n0 0\n", "1 entries, expected '2'"),
        ("0\n1\n0\n", "'0': expected an epoch and an offset"),
        ("0\n1\n0 -1\n", "'0 -1': expected an epoch and an offset"),
        ("0\n2\n1 0\n1 5\n", r"\(1, 5\) after \(1, 0\): expected a higher epoch"),
        ("0\n2\n1 5\n2 4\n", "and no lower offset"),
    ],
)
def test_damaged_leader_epochs_are_refused(text: str, problem: str) -> None:
    with pytest.raises(BadValueError, match=problem):
        parse_epochs(text)


def test_headers_in_columns_have_the_types_of_their_fields() -> None:
    headers = scanned(b"".join(SMALL)).headers
    assert headers["count"].tolist() == [1, 3, 2]
    assert int(np.sum(headers["size"])) == ENDS[-1]


@pytest.mark.parametrize("verified_before", [0, 3, 4, 5, 9])
def test_a_batch_is_verified_from_an_offset_on_whatever_the_segment_is_called(
    verified_before: int,
) -> None:
    parts = frames([4, 2, 2])
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + len(parts[1]) - 1] ^= 1  # the batch at offset 4
    found = scan(
        lambda position, size: bytes(data[position : position + size]), len(data), checksums=True,
        verified_before=verified_before,
    )  # fmt: skip
    assert len(found) == (3 if verified_before > 4 else 1)
    assert (found.damage is None) == (verified_before > 4)
