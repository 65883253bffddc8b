"""Values that live apart from their records: the claim check pattern.

A topic with external payloads keeps a `Payload` in its log where other topics keep the value: what
it takes to find the value in a `PayloadStore` and to see that it is still the same. Values are
pickled. A checksum tells damage, not malice: a payload directory is to be trusted like a program.
"""

import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import attrs

from .batch import Batch
from .errors import BadValueError, PayloadError

PICKLE_PROTOCOL: Final = 5
"""Fixed: another default in another Python would change sizes, and with them a run's digest."""


@attrs.frozen
class Payload:
    """A reference to a value that is kept apart from its record."""

    id: str
    """What the store knows the value by."""
    size: int
    """How many bytes the store keeps."""
    checksum: int = attrs.field(repr="{:#010x}".format)
    """Their CRC-32. Its text is always as long, for a reference counts for as much as its text."""
    type_name: str
    """What the value is an instance of."""

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return unquote(self.id.partition("/")[0])


def payload_id(topic: str, producer: str, life: int, number: int) -> str:
    """Make an id that tells where a value came from; two names cannot run into each other.

    Numbers are all as long, because what a reference counts for must not depend on what a
    directory held before the run.
    """
    return f"{quote(topic, safe='')}/{quote(producer, safe='')}/{life}-{number:09}"


def number_in(id: str) -> int:
    """Read the number at the end of an id; what is not one of ours has none."""
    digits = id.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


@attrs.frozen
class Encoded:
    """A value in the form in which a store keeps it."""

    data: bytes = attrs.field(repr=False)
    type_name: str

    def reference(self, id: str) -> Payload:
        """Make the reference to it."""
        return Payload(id, len(self.data), zlib.crc32(self.data), self.type_name)


def encode(value: object) -> Encoded | None:
    """Encode a value; None stays None, for a log must see which records have no value."""
    if value is None:
        return None
    name = type(value).__qualname__
    try:
        return Encoded(pickle.dumps(value, PICKLE_PROTOCOL), name)
    except Exception as error:
        raise BadValueError(
            f"a value of type {name} cannot be kept apart from its record: expected one that "
            f"pickle takes ({error})"
        ) from error


def decode(data: bytes) -> Any:
    """Decode what was verified before."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PayloadError(f"cannot be decoded: {type(error).__name__}: {error}") from error


def verify(reference: Payload, data: bytes) -> None:
    """Refuse data that is not what was stored."""
    if len(data) != reference.size:
        raise PayloadError(f"damaged: {len(data)} bytes instead of {reference.size}")
    checksum = zlib.crc32(data)
    if checksum != reference.checksum:
        raise PayloadError(f"damaged: checksum {checksum:#010x}, not {reference.checksum:#010x}")


def references(batch: Batch) -> tuple[Payload, ...]:
    """Collect the references among a batch's values; nothing to look at in synthetic ones."""
    values = batch.values
    if type(values) is not tuple:
        return (values,) if isinstance(values, Payload) else ()
    return tuple([value for value in values if type(value) is Payload])


# Stores


class PayloadStore(Protocol):
    """Bytes by id. What goes wrong with one of them is an `OSError`."""

    def put(self, id: str, data: bytes) -> None:
        """Keep data, in the place of what this id stood for."""

    def get(self, id: str) -> bytes:
        """Give data back; raise `KeyError` if there is none."""

    def remove(self, id: str) -> bool:
        """Forget data; whether there was any."""

    def ids(self) -> list[str]:
        """Name all there is, in the order of the ids."""


class MemoryStore:
    """Keeps payloads in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def put(self, id: str, data: bytes) -> None:
        """Keep data, in the place of what this id stood for."""
        self._kept[id] = data

    def get(self, id: str) -> bytes:
        """Give data back; raise `KeyError` if there is none."""
        return self._kept[id]

    def remove(self, id: str) -> bool:
        """Forget data; whether there was any."""
        return self._kept.pop(id, None) is not None

    def ids(self) -> list[str]:
        """Name all there is, in the order of the ids."""
        return sorted(self._kept)


_SUFFIX: Final = ".payload"
_PART: Final = 200
"""No file system that we know takes names of more than 255 bytes."""


class DirectoryStore:
    """Keeps each payload in a file; a new store on the same directory finds what is there.

    A file bears its id, quoted, so that any text will do; a long one is cut into folders. It is
    written under another name first: nobody sees half a file.
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
        """Keep data, in the place of what this id stood for."""
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
        """Give data back; raise `KeyError` if there is none."""
        try:
            return self.path(id).read_bytes()
        except FileNotFoundError:
            raise KeyError(id) from None

    def remove(self, id: str) -> bool:
        """Forget data; whether there was any."""
        try:
            self.path(id).unlink()
        except FileNotFoundError:
            return False
        return True

    def ids(self) -> list[str]:
        """Name all there is, in the order of the ids."""
        return sorted(self._ids())

    def path(self, id: str) -> Path:
        """Say which file keeps a payload."""
        # A dot in an id would let a folder look like a file.
        name = quote(id, safe="", errors="surrogatepass").replace(".", "%2E")
        parts = [name[start : start + _PART] for start in range(0, len(name), _PART)] or [""]
        return self.directory.joinpath(*parts[:-1], parts[-1] + _SUFFIX)

    def _ids(self) -> Iterator[str]:
        for path in self.directory.rglob(f"*{_SUFFIX}"):
            name = "".join(path.relative_to(self.directory).parts)
            yield unquote(name.removesuffix(_SUFFIX), errors="surrogatepass")


# Messages: to the keeper of a store, and its answers


@attrs.frozen
class PutPayloads:
    """Asks to keep values of one producer; answered by `PayloadsPut` or `PayloadsRefused`."""

    producer: str
    topic: str
    values: tuple[Encoded | None, ...]
    """None for a record without a value."""


@attrs.frozen
class PayloadsPut:
    """All are kept; a reference for each value."""

    references: tuple[Payload | None, ...]


@attrs.frozen
class PayloadsRefused:
    """None is kept, and why."""

    reason: str


@attrs.frozen
class GetPayload:
    """Asks for a value; answered by `PayloadGot` or `PayloadMissing`."""

    reference: Payload


@attrs.frozen
class PayloadGot:
    """The value, encoded, and the same as when it was put."""

    reference: Payload
    data: bytes = attrs.field(repr=False)


@attrs.frozen
class PayloadMissing:
    """The value is not to be had, and why."""

    reference: Payload
    reason: str


@attrs.frozen
class DropPayloads:
    """Tells that records are gone, and their values with them; not answered."""

    references: tuple[Payload, ...]


@attrs.frozen
class CountPayloads:
    """Asks how many values there are; answered by `PayloadCount`."""


@attrs.frozen
class PayloadCount:
    """How many values there are."""

    count: int
