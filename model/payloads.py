"""External payloads: values that are stored outside the log (the claim check pattern).

The log of a topic with external payloads holds a `Payload` instead of each value: a reference with
the id of the value in a `PayloadBackend`, its size and its checksum. Values are pickled. The
checksum detects damage, not tampering: unpickling runs code, so a payload directory must be
trusted like a program.
"""

import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import attrs

from .errors import BadValueError, PayloadError
from .log.batch import Batch

PAYLOAD_STORE: Final = "payloads"
"""Name of the actor that keeps external payloads, and of its node."""
PICKLE_PROTOCOL: Final = 5
"""Fixed, because the default of another Python would change sizes and the digest of a run."""


@attrs.frozen
class Payload:
    """A reference to a value in a payload store."""

    id: str
    """Id of the value in the store."""
    size: int
    """Size of the encoded value in bytes."""
    checksum: int = attrs.field(repr="{:#010x}".format)
    """CRC-32 of the encoded value. Its text has a fixed length, as the size of a reference is that
    of its text."""
    type_name: str
    """Name of the value's type."""

    @property
    def topic(self) -> str:
        """The topic that the value was sent to."""
        return unquote(self.id.partition("/")[0])


def payload_id(topic: str, producer: str, life: int, number: int) -> str:
    """Make an id from the origin of a value. Names are quoted, so that ids cannot collide.

    The number has a fixed length, because the size of a reference must not depend on the numbers
    that a directory held before the run.
    """
    return f"{quote(topic, safe='')}/{quote(producer, safe='')}/{life}-{number:09}"


def number_in(id: str) -> int:
    """Return the number at the end of an id; 0 if it was not made by `payload_id`."""
    digits = id.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


@attrs.frozen
class Encoded:
    """A value as a store keeps it."""

    data: bytes = attrs.field(repr=False)
    """The pickled value."""
    type_name: str
    """Name of the value's type."""

    def reference(self, id: str) -> Payload:
        """Make a reference to the value."""
        return Payload(id, len(self.data), zlib.crc32(self.data), self.type_name)


def encode(value: object) -> Encoded | None:
    """Encode a value. `None` stays `None`: compaction must see which records are tombstones."""
    if value is None:
        return None
    name = type(value).__qualname__
    try:
        return Encoded(pickle.dumps(value, PICKLE_PROTOCOL), name)
    except Exception as error:
        raise BadValueError(
            f"a value of type {name} cannot be stored as an external payload: expected one that "
            f"can be pickled ({error})"
        ) from error


def decode(data: bytes) -> Any:
    """Decode a value that `verify` has accepted."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PayloadError(f"cannot be decoded: {type(error).__name__}: {error}") from error


def verify(reference: Payload, data: bytes) -> None:
    """Raise `PayloadError` if data differs from the data that was stored."""
    if len(data) != reference.size:
        raise PayloadError(f"damaged: {len(data)} bytes instead of {reference.size}")
    checksum = zlib.crc32(data)
    if checksum != reference.checksum:
        raise PayloadError(f"damaged: checksum {checksum:#010x}, not {reference.checksum:#010x}")


def references(batch: Batch) -> tuple[Payload, ...]:
    """Collect the references among the values of a batch."""
    values = batch.values
    if type(values) is not tuple:
        return (values,) if isinstance(values, Payload) else ()
    return tuple([value for value in values if type(value) is Payload])


# Stores


class PayloadBackend(Protocol):
    """Stores bytes by id. Failures raise `OSError`."""

    def put(self, id: str, data: bytes) -> None:
        """Store data under an id; earlier data of the id is replaced."""

    def get(self, id: str) -> bytes:
        """Return the data of an id; raise `KeyError` if there is none."""

    def remove(self, id: str) -> bool:
        """Remove the data of an id. Return whether there was any."""

    def ids(self) -> list[str]:
        """List all ids, sorted."""


class MemoryStore:
    """Keeps payloads in memory."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def put(self, id: str, data: bytes) -> None:
        """Store data under an id; earlier data of the id is replaced."""
        self._data[id] = data

    def get(self, id: str) -> bytes:
        """Return the data of an id; raise `KeyError` if there is none."""
        return self._data[id]

    def remove(self, id: str) -> bool:
        """Remove the data of an id. Return whether there was any."""
        return self._data.pop(id, None) is not None

    def ids(self) -> list[str]:
        """List all ids, sorted."""
        return sorted(self._data)


_SUFFIX: Final = ".payload"
_PART: Final = 200
"""Longest part of a path: common file systems limit names to 255 bytes."""


class DirectoryStore:
    """Keeps each payload in a file; a new store on the same directory finds the files again.

    The name of a file is its id, quoted, so that any text can be an id; a long one is split into
    folders. A file is written under another name and then renamed, so that it is never incomplete.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadValueError(
                f"payload_dir = {str(directory)!r}: expected a directory ({error.strerror})"
            ) from error

    def put(self, id: str, data: bytes) -> None:
        """Store data under an id; earlier data of the id is replaced."""
        path = self.path(id)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        try:
            draft.write_bytes(data)
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def get(self, id: str) -> bytes:
        """Return the data of an id; raise `KeyError` if there is none."""
        try:
            return self.path(id).read_bytes()
        except FileNotFoundError:
            raise KeyError(id) from None

    def remove(self, id: str) -> bool:
        """Remove the data of an id. Return whether there was any."""
        try:
            self.path(id).unlink()
        except FileNotFoundError:
            return False
        return True

    def ids(self) -> list[str]:
        """List all ids, sorted."""
        return sorted(self._ids())

    def path(self, id: str) -> Path:
        """Return the path of the file of an id."""
        # With a dot, a folder could look like a payload's file.
        name = quote(id, safe="", errors="surrogatepass").replace(".", "%2E")
        parts = [name[start : start + _PART] for start in range(0, len(name), _PART)] or [""]
        return self.directory.joinpath(*parts[:-1], parts[-1] + _SUFFIX)

    def _ids(self) -> Iterator[str]:
        for path in self.directory.rglob(f"*{_SUFFIX}"):
            name = "".join(path.relative_to(self.directory).parts)
            yield unquote(name.removesuffix(_SUFFIX), errors="surrogatepass")


# Messages between producers, partitions and users, and the actor that keeps a store


@attrs.frozen
class PutPayloads:
    """Asks to store the values of a producer. Answered by `PayloadsPut` or `PayloadsRefused`."""

    producer: str
    """Name of the producer."""
    topic: str
    """Topic that the values are sent to."""
    values: tuple[Encoded | None, ...]
    """The encoded values; `None` for a record without a value."""


@attrs.frozen
class PayloadsPut:
    """All values are stored."""

    references: tuple[Payload | None, ...]
    """A reference for each value; `None` for a record without a value."""


@attrs.frozen
class PayloadsRefused:
    """No value is stored."""

    reason: str
    """The reason, as a text for people."""


@attrs.frozen
class GetPayload:
    """Asks for a value. Answered by `PayloadGot` or `PayloadMissing`."""

    reference: Payload
    """Reference to the value."""


@attrs.frozen
class PayloadGot:
    """The value, verified against its reference."""

    reference: Payload
    """Reference to the value."""
    data: bytes = attrs.field(repr=False)
    """The encoded value."""


@attrs.frozen
class PayloadMissing:
    """The value cannot be returned."""

    reference: Payload
    """Reference to the value."""
    reason: str
    """The reason, as a text for people."""


@attrs.frozen
class DropPayloads:
    """Tells the store that records have been removed, so that it removes their values."""

    references: tuple[Payload, ...]
    """References to the values."""


@attrs.frozen
class CountPayloads:
    """Asks for the number of stored values. Answered by `PayloadCount`."""


@attrs.frozen
class PayloadCount:
    """The answer to `CountPayloads`."""

    count: int
    """Number of stored values."""
