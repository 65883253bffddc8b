"""`wavetank log`."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import error_of, wavetank, wavetank_process
from helpers.plain_record_batch import PlainRecord, plain_envelope, plain_frame
from wavetank.model.log.segment import build_indexes, file_name, scan

BATCHES = [
    [PlainRecord(1_700_000_000_000, b"key", "tëa\n".encode(), (("trace", b"\xff"), ("no", None)))],
    [PlainRecord(1_700_000_001_000 + i, None, None if i else b"\xfe\x01") for i in range(3)],
]


def write_segment(folder: Path, base_offset: int, *frames: bytes) -> Path:
    """Write a segment with its indexes."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(frames)
    scanned = scan(
        lambda at, size: data[at : at + size], len(data), base_offset=base_offset, checksums=True
    )
    index, time_index = build_indexes(scanned, base_offset, 0)
    path = folder / file_name(base_offset, ".log")
    path.write_bytes(data)
    path.with_suffix(".index").write_bytes(index)
    path.with_suffix(".timeindex").write_bytes(time_index)
    return path


def batch_frames(base_offset: int) -> list[bytes]:
    first, second = BATCHES
    return [
        plain_frame(first, base_offset=base_offset, producer_id=7, producer_epoch=1,
                    base_sequence=5, leader_epoch=2),
        plain_frame(second, base_offset=base_offset + 1, leader_epoch=2),
    ]  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory: three segments of two partitions."""
    root = tmp_path / "data"
    write_segment(root / "broker-1" / "orders-0", 0, *batch_frames(0))
    write_segment(root / "broker-1" / "orders-0", 4, *batch_frames(4))
    write_segment(root / "broker-2" / "orders-1", 0)
    (root / "broker-1" / "orders-0" / "notes.log").write_text("no segment")
    return root


def lines_of(*arguments: object) -> list[str]:
    result = wavetank("log", *arguments)
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]


def objects_of(*arguments: object, status: int = 0) -> list[dict[str, Any]]:
    result = wavetank("log", *arguments, "--json")
    assert result.exit_code == status, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_segments_of_a_data_directory_are_listed(data: Path) -> None:
    first, *rest = lines_of(data)
    rows = [line.split() for line in rest]
    headings = ("segment", "base offset", "next offset", "batches", "records", "bytes", "first",
                "last", "damage")  # fmt: skip
    assert first.split() == " ".join(headings).split()
    size = str(sum(map(len, batch_frames(0))))
    times = ["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:21.002Z"]
    assert rows == [
        ["broker-1/orders-0/00000000000000000000.log", "0", "4", "2", "4", size, *times, "-"],
        ["broker-1/orders-0/00000000000000000004.log", "4", "8", "2", "4", size, *times, "-"],
        ["broker-2/orders-1/00000000000000000000.log", "0", "0", "0", "0", "0", "-", "-", "-"],
    ]


def test_a_partition_and_a_file_can_be_given(data: Path) -> None:
    partition = data / "broker-1" / "orders-0"
    assert [line.split()[0] for line in lines_of(partition)[1:]] == [
        "00000000000000000000.log", "00000000000000000004.log",
    ]  # fmt: skip
    file = partition / "00000000000000000004.log"
    assert [line.split()[:3] for line in lines_of(file)[1:]] == [[file.name, "4", "8"]]
    assert len(lines_of(data / "broker-1")) == 3


def test_records_are_printed_as_text_or_in_hexadecimal(data: Path) -> None:
    sizes = [len(frame) for frame in batch_frames(4)]
    file = data / "broker-1" / "orders-0" / "00000000000000000004.log"
    assert lines_of(file, "--records") == [
        f"00000000000000000004.log: 4 records, {sum(sizes)} bytes",
        f"batch at byte 0: offsets 4 to 4; 1 record; {sizes[0]} bytes; leader epoch 2; "
        "producer 7, epoch 1, sequence 5",
        r'  4  2023-11-14T22:13:20.000Z  "key"  "tëa\n"  trace=0xff  no=null',
        f"batch at byte {sizes[0]}: offsets 5 to 7; 3 records; {sizes[1]} bytes; leader epoch 2; "
        "producer -1, epoch -1, sequence -1",
        "  5  2023-11-14T22:13:21.000Z  null  0xfe01",
        "  6  2023-11-14T22:13:21.001Z  null  null",
        "  7  2023-11-14T22:13:21.002Z  null  null",
    ]


def test_json_has_an_object_for_each_segment(data: Path) -> None:
    found = objects_of(data)
    assert [each["type"] for each in found] == ["segment"] * 3
    assert found[1] == {
        "type": "segment",
        "file": str(data / "broker-1" / "orders-0" / "00000000000000000004.log"),
        "base_offset": 4,
        "next_offset": 8,
        "batches": 2,
        "records": 4,
        "bytes": sum(map(len, batch_frames(4))),
        "first_timestamp_ms": 1_700_000_000_000,
        "last_timestamp_ms": 1_700_000_001_002,
        "damage": None,
    }


def test_json_has_an_object_for_each_batch_and_record(data: Path) -> None:
    found = objects_of(data / "broker-1" / "orders-0" / "00000000000000000004.log", "--records")
    kinds = ["segment", "batch", "record", "batch", "record", "record", "record"]
    assert [each["type"] for each in found] == kinds
    assert (found[1]["position"], found[1]["producer_id"], found[1]["count"]) == (0, 7, 1)
    assert found[2] == {
        "type": "record",
        "offset": 4,
        "timestamp_ms": 1_700_000_000_000,
        "key": "key",
        "value": "tëa\n",
        "headers": [{"name": "trace", "value_hex": "ff"}, {"name": "no", "value": None}],
    }
    assert (found[4]["key"], found[4]["value_hex"]) == (None, "fe01")


def test_flags_and_codecs_are_shown_and_unreadable_records_are_named(tmp_path: Path) -> None:
    path = write_segment(
        tmp_path, 0,
        plain_frame([PlainRecord(5)], attributes=0b111000),
        plain_envelope(b"", 1, base_offset=1, attributes=4),
    )  # fmt: skip
    _, first, record, second, reason = lines_of(path, "--records")
    assert first.endswith("; append time; transactional; control")
    assert record == "  0  1970-01-01T00:00:00.005Z  null  null"
    assert second.endswith("; zstd")
    assert reason.startswith("  not readable: batch at offset 1 is compressed with zstd: expected")
    assert "zstd" in objects_of(path, "--records")[-1]["unreadable"]


def test_times_that_no_calendar_has_are_shown_as_numbers(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, plain_frame([PlainRecord(2**60)]))
    assert f"{2**60} ms" in lines_of(path)[1]
    path = write_segment(tmp_path, 0, plain_frame([PlainRecord(-1)]))
    assert lines_of(path, "--records")[2] == "  0  -  null  null"


# Damage


def test_an_undamaged_log_is_verified(data: Path) -> None:
    assert lines_of(data, "--verify") == lines_of(data)
    assert len(objects_of(data, "--verify")) == 3


def test_damage_is_listed_with_its_file_and_position(data: Path) -> None:
    path = data / "broker-1" / "orders-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    result = wavetank("log", data, "--verify")
    assert result.exit_code == 1
    damage = next(line for line in result.stdout.splitlines() if line.startswith(f"{path}: byte"))
    assert damage.startswith(f"{path}: byte 0: its CRC is 0x")
    assert damage.endswith("; valid batches follow")
    found = [each for each in objects_of(data, "--verify", status=1) if each["type"] == "damage"]
    assert found[0]["file"] == str(path)
    assert found[0]["position"] == 0


def test_without_verify_only_headers_are_read(data: Path) -> None:
    path = data / "broker-1" / "orders-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert lines_of(path)[1].endswith(" -")
    assert wavetank("log", path, "--verify").exit_code == 1


def test_a_torn_end_is_shown_in_every_form(data: Path) -> None:
    path = data / "broker-1" / "orders-0" / "00000000000000000004.log"
    end = len(batch_frames(4)[0])
    os.truncate(path, end + 40)
    text = f"byte {end}: 40 bytes are left, expected a header of 61"
    assert lines_of(path)[1].endswith(f"  {text}")
    assert lines_of(path, "--records")[-1] == f"damage at {text}"
    damage = objects_of(path)[0]["damage"]
    assert (damage["position"], damage["in_the_middle"]) == (end, False)


@pytest.mark.parametrize(
    ("suffix", "byte", "problem"),
    [
        (".index", 3, f"offset 4 for byte {len(batch_frames(4)[0])}, expected 7"),
        (".timeindex", 11, "timestamp 1700000001002 for offset 4, expected 1700000000000"),
    ],
)
def test_indexes_are_verified_against_the_log(
    data: Path, suffix: str, byte: int, problem: str
) -> None:
    path = data / "broker-1" / "orders-0" / f"00000000000000000004{suffix}"
    content = bytearray(path.read_bytes())
    content[byte] ^= 3
    path.write_bytes(content)
    result = wavetank("log", data, "--verify")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == f"{path}: byte 0: {problem}"


def test_segments_must_not_overlap(data: Path) -> None:
    path = write_segment(data / "broker-1" / "orders-0", 3, *batch_frames(3))
    result = wavetank("log", data, "--verify")
    assert result.exit_code == 1
    reason = "it begins before offset 4, where 00000000000000000000.log ends"
    assert f"{path}: byte 0: {reason}" in result.stdout


def test_indexes_may_be_missing(data: Path) -> None:
    for path in data.rglob("*index"):
        path.unlink()
    assert wavetank("log", data, "--verify").exit_code == 0


# Bad input


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("nowhere", "nowhere: there is no such file or directory"),
        ("empty", "empty has no segments: expected a data directory or the folder of a partition"),
        ("notes.log", "notes.log: expected a name of 20 digits and .log"),
        ("00000000000000000000.index", "expected a name of 20 digits and .log"),
    ],
)
def test_bad_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("notes.log").touch()
    Path("00000000000000000000.index").touch()
    error = error_of(wavetank("log", argument))
    assert error.startswith("wavetank: ")
    assert error.endswith(f"{problem}\n")


def test_a_closed_pipe_ends_it_silently(data: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = wavetank_process("log", data, "--records", stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")
