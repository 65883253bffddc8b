"""Serialisers: how the keys and values of a durable topic become bytes, and bytes become values.

In memory a value is any object. On disk it is bytes, so a topic that is stored names a serialiser.
A serialiser refuses a value that it could not give back as it was: a consumer must not see another
value after a restart than before. `None` is a tombstone for every serialiser, and is stored as
Kafka's null.

| name | values | stored as |
|---|---|---|
| bytes | bytes | themselves |
| str | texts | UTF-8 |
| json | plain data; or instances of the topic's type, if that is an attrs class | JSON |
| pickle | objects that can be pickled | a pickle, which only Python reads |
| payload | references to external payloads | JSON |

Plain data is a dictionary with texts as keys, a list, a text, a number, a truth value or `None`,
and these within each other. A tuple is none of it, because it would come back as a list. An attrs
class may have fields of any type that cattrs converts to JSON and back.

Unpickling runs code: read only data from those whom you would let run a program.
"""

import json
import math
import pickle
from collections.abc import Callable
from reprlib import repr as short
from typing import Any, Final

import attrs
from cattrs.preconf.json import make_converter

from .errors import BadValueError, UnknownNameError
from .payloads import PICKLE_PROTOCOL, Payload

REFERENCES: Final = "payload"
"""The serialiser of every topic with external payloads, and of no other."""


@attrs.frozen
class Serializer:
    """A pair of functions that are each other's inverse."""

    name: str
    """Its name."""
    dumps: Callable[[Any], bytes | None]
    """Makes bytes of a value, or raises `BadValueError`; `None` stays `None`."""
    loads: Callable[[bytes | None], Any]
    """Makes a value of bytes, or raises `BadValueError`; `None` stays `None`."""


def make_serializer(name: str, type_: type = object) -> Serializer:
    """Make the serialiser with this name for the values of a topic with this type."""
    if name not in _SERIALIZERS:
        raise UnknownNameError("serializer", name, _SERIALIZERS)
    return _json_of(type_) if name == "json" and attrs.has(type_) else _SERIALIZERS[name]


def to_key(key: object) -> bytes | None:
    """Return a key as it is stored: bytes, where a text becomes UTF-8 and `None` stays."""
    # Called for every record: most keys take no second call.
    return key if isinstance(key, bytes) else _to_bytes("key", key)


def to_header(name: object, value: object) -> tuple[bytes, bytes | None]:
    """Return a header as it is stored: its name in UTF-8, and its value as a key is stored."""
    if not isinstance(name, str):
        raise BadValueError(f"header name {short(name)}: expected a text")
    return _in_utf8("header name", name), _to_bytes("header value", value)


def _to_bytes(what: str, data: object) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return _in_utf8(what, data)
    raise BadValueError(f"{what} {short(data)}: expected bytes, a text or None to store it")


def _in_utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadValueError(f"{what} {short(text)}: expected a text in UTF-8 ({error})") from error


def _refused(name: str, value: object, expected: str) -> BadValueError:
    return BadValueError(f"value {short(value)}: serializer {name!r} expected {expected}")


def _unreadable(name: str, data: bytes, expected: str) -> BadValueError:
    return BadValueError(f"stored value {short(data)}: serializer {name!r} expected {expected}")


# Bytes and texts


def _dump_bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise _refused("bytes", value, "bytes")


def _load_bytes(data: bytes | None) -> bytes | None:
    return data


def _dump_str(value: object) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _refused("str", value, "a text")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise _refused("str", value, f"a text in UTF-8 ({error})") from error


def _load_str(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        assert data is not None
        raise _unreadable("str", data, f"UTF-8 ({error})") from error


# JSON

_PLAIN: Final = "plain data: dict with str keys, list, str, int, finite float, bool or None"


def _dump_json(value: object) -> bytes | None:
    if value is None:
        return None
    try:
        odd = _odd_part(value)
        if odd is None:
            return _to_json(value)
    except (ValueError, RecursionError) as error:
        raise _refused("json", value, f"{_PLAIN} ({error})") from error
    raise _refused("json", value, f"{_PLAIN}; not {odd}")


def _load_json(data: bytes | None) -> Any:
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError) as error:
        assert data is not None
        raise _unreadable("json", data, f"JSON ({error})") from error


def _to_json(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _odd_part(value: object) -> str | None:
    """Describe a part of a value that JSON would change; `None` if it has none."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return None
    if isinstance(value, float) and kind is float:
        return None if math.isfinite(value) else short(value)
    if isinstance(value, list) and kind is list:
        return next(filter(None, map(_odd_part, value)), None)
    if isinstance(value, dict) and kind is dict:
        odd = next((key for key in value if type(key) is not str), None)
        if odd is not None:
            return f"the key {short(odd)}"
        return next(filter(None, map(_odd_part, value.values())), None)
    return f"{kind.__name__} {short(value)}"


def _json_of(type_: type) -> Serializer:
    """Make a serialiser for instances of an attrs class.

    Each value is read back at once: only that shows whether a field of a wide type, such as `Any`,
    holds something that JSON would change.
    """
    converter = make_converter()
    name = type_.__qualname__

    def dumps(value: object) -> bytes | None:
        if value is None:
            return None
        if type(value) is not type_:
            raise _refused("json", value, f"an instance of {name}")
        try:
            data = _to_json(converter.unstructure(value))
            again = converter.structure(json.loads(data), type_)
        except Exception as error:  # a field may be of any class, whose conversion may raise any
            expected = f"fields of {name} that can be stored as JSON"
            raise _refused("json", value, f"{expected} ({_reason(error)})") from error
        if again != value:
            expected = f"an instance of {name} that comes back equal, not as {short(again)}"
            raise _refused("json", value, expected)
        return data

    def loads(data: bytes | None) -> Any:
        try:
            return None if data is None else converter.structure(json.loads(data), type_)
        except Exception as error:  # as above
            assert data is not None
            raise _unreadable("json", data, f"the fields of {name} ({_reason(error)})") from error

    return Serializer("json", dumps, loads)


def _reason(error: BaseException) -> str:
    """Return the first cause of an error, as cattrs nests them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


# Pickles


def _dump_pickle(value: object) -> bytes | None:
    if value is None:
        return None
    try:
        return pickle.dumps(value, PICKLE_PROTOCOL)
    except Exception as error:  # the class of a value decides how it is pickled
        expected = f"an object that can be pickled ({_reason(error)})"
        raise _refused("pickle", value, expected) from error


def _load_pickle(data: bytes | None) -> Any:
    try:
        return None if data is None else pickle.loads(data)
    except Exception as error:  # as above
        assert data is not None
        raise _unreadable("pickle", data, f"a pickle ({_reason(error)})") from error


# References to external payloads


def _load_reference(data: bytes | None) -> Payload | None:
    try:
        return None if data is None else _REFERENCE.structure(json.loads(data), Payload)
    except Exception as error:  # as above
        assert data is not None
        expected = f"a reference to an external payload ({_reason(error)})"
        raise _unreadable(REFERENCES, data, expected) from error


def _dump_reference(value: object) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, Payload):
        raise _refused(REFERENCES, value, "a reference to an external payload")
    return _to_json(attrs.asdict(value))


_REFERENCE: Final = make_converter(forbid_extra_keys=True)


_SERIALIZERS: Final = {
    serializer.name: serializer
    for serializer in (
        Serializer("bytes", _dump_bytes, _load_bytes),
        Serializer("str", _dump_str, _load_str),
        Serializer("json", _dump_json, _load_json),
        Serializer("pickle", _dump_pickle, _load_pickle),
        Serializer(REFERENCES, _dump_reference, _load_reference),
    )
}
