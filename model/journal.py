"""The entries of a journal as bytes: length, checksum, JSON.

An entry is a tuple of plain data: texts, numbers, `None`, bytes, NumPy arrays, and tuples and
dictionaries of these. Lists come back as tuples.
"""

import base64
import json
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import google_crc32c
import numpy as np

from .disk import Damage, FileContents

_HEAD: Final = Struct(">II")
_BYTES: Final = "$bytes"
_ARRAY: Final = "$array"
MAX_SIZE: Final = 2**30
"""Largest size of an entry; a larger number is damage."""
SIMULATED_SIZE: Final = 64
"""Size of an entry on a simulated disk, which keeps the entry itself."""


def encode_entry(entry: tuple[Any, ...]) -> bytes:
    """Return the frame of an entry."""
    data = json.dumps(entry, default=_plain, separators=(",", ":")).encode()
    return _HEAD.pack(len(data), google_crc32c.value(data)) + data


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return {_ARRAY: value.dtype.str, "data": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, np.integer):
        return int(value)
    raise TypeError(f"{value!r} cannot be part of a journal")


def decode_entry(data: bytes) -> tuple[Any, ...]:
    """Return the entry of a frame, without its head."""
    return _restored(json.loads(data))  # type: ignore[no-any-return]


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_restored, value))
    if isinstance(value, dict):
        if _BYTES in value:
            return base64.b64decode(value[_BYTES])
        if _ARRAY in value:
            return np.frombuffer(base64.b64decode(value["data"]), value[_ARRAY])
        return {key: _restored(each) for key, each in value.items()}
    return value


def scan_entries(name: str, read: Callable[[int, int], bytes], size: int) -> FileContents:
    """Read the entries of a journal, up to the first damaged one."""
    data = read(0, size)
    entries: list[object] = []
    ends: list[int] = []
    at, reason = 0, ""
    while at < len(data):
        if at + _HEAD.size > len(data):
            reason = "the file ends within an entry"
            break
        length, crc = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + length]
        if length > MAX_SIZE or len(body) != length:
            reason = "the file ends within an entry"
            break
        if not length or google_crc32c.value(body) != crc:
            reason = "the checksum does not match"
            break
        at += _HEAD.size + length
        entries.append(decode_entry(body))
        ends.append(at)
    damage = Damage(name, at, reason) if reason else None
    return FileContents(tuple(entries), tuple(ends), size, damage)
