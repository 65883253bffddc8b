"""Serialisers give back what they were given, or refuse it."""

import datetime as dt
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.errors import BadValueError, UnknownNameError
from wavetank.model.payloads import Payload
from wavetank.model.serializers import make_serializer, to_header, to_key

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda part: st.lists(part) | st.dictionaries(st.text(st.characters(codec="utf-8")), part),
    max_leaves=8,
)


@attrs.frozen
class Line:
    """A part of an order."""

    article: str
    count: int


@attrs.frozen
class Order:
    """A value with fields that JSON does not have."""

    id: int
    lines: tuple[Line, ...] = ()
    paid: dt.datetime | None = None
    raw: bytes = b""
    note: Any = None


@attrs.frozen
class OtherOrder(Order):
    """A subclass, which would come back as its base."""


def types_in(value: Any) -> Any:
    """The shape of plain data, with the type of each part."""
    if isinstance(value, dict):
        return {key: types_in(part) for key, part in value.items()}
    return [types_in(part) for part in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("name", ["bytes", "str", "json", "pickle", "payload"])
def test_a_tombstone_is_null_for_every_serializer(name: str) -> None:
    serializer = make_serializer(name)
    assert serializer.name == name
    assert serializer.dumps(None) is None
    assert serializer.loads(None) is None


def test_a_tombstone_is_null_for_a_class_too() -> None:
    serializer = make_serializer("json", Order)
    assert serializer.dumps(None) is None
    assert serializer.loads(None) is None


def test_an_unknown_serializer_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="unknown serializer 'jsn': did you mean 'json'"):
        make_serializer("jsn")


@given(st.binary())
def test_bytes_are_stored_as_they_are(value: bytes) -> None:
    serializer = make_serializer("bytes")
    assert serializer.dumps(value) == value == serializer.loads(value)


@given(st.text(st.characters(codec="utf-8")))
def test_a_text_is_stored_as_utf8(value: str) -> None:
    serializer = make_serializer("str")
    data = serializer.dumps(value)
    assert data == value.encode()
    assert serializer.loads(data) == value


@given(PLAIN)
def test_plain_data_comes_back_equal_from_json_with_equal_types(value: Any) -> None:
    serializer = make_serializer("json")
    again = serializer.loads(serializer.dumps(value))
    assert again == value
    assert types_in(again) == types_in(value)


@pytest.mark.parametrize(
    "value",
    [
        Order(1),
        Order(2, (Line("tea", 3),), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), b"\xff"),
        Order(3, note={"a": [1, None]}),
    ],
)
def test_an_instance_of_an_attrs_class_comes_back_equal(value: Order) -> None:
    serializer = make_serializer("json", Order)
    assert serializer.loads(serializer.dumps(value)) == value


def test_a_pickle_keeps_any_object() -> None:
    serializer = make_serializer("pickle")
    value = {(1, 2): {Line("tea", 3)}}
    assert serializer.loads(serializer.dumps(value)) == value


DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("name", "type_", "value", "problem"),
    [
        ("bytes", object, "tea", "value 'tea': serializer 'bytes' expected bytes"),
        ("str", object, b"tea", "value b'tea': serializer 'str' expected a text"),
        ("str", object, "\ud800", "expected a text in UTF-8"),
        ("json", object, b"tea", r"value b'tea': serializer 'json' expected plain data.*not bytes"),
        ("json", object, (1, 2), r"not tuple \(1, 2\)"),
        ("json", object, {"a": [1, (2,)]}, r"not tuple \(2,\)"),
        ("json", object, {"a": {3: 4}}, "not the key 3"),
        ("json", object, [Line("tea", 3)], r"not Line Line\("),
        ("json", object, float("nan"), "not nan"),
        ("json", object, [float("inf")], "not inf"),
        ("json", object, "\ud800", "surrogates not allowed"),
        ("json", object, DEEP, "recursion"),
        ("json", Order, {"id": 1}, "value {'id': 1}: serializer 'json' expected an instance of"),
        ("json", Order, OtherOrder(1), "expected an instance of Order"),
        ("json", Order, Order(1, note=(1,)), "that comes back equal, not as Order"),
        ("json", Order, Order(1, note={1}), "that comes back equal, not as Order"),
        ("json", Order, Order(1, note=object()), "fields of Order that can be stored as JSON"),
        ("pickle", object, lambda: 1, "expected an object that can be pickled"),
    ],
)
def test_a_value_that_would_not_come_back_is_refused(
    name: str, type_: type, value: Any, problem: str
) -> None:
    with pytest.raises(BadValueError, match=problem):
        make_serializer(name, type_).dumps(value)


@pytest.mark.parametrize(
    ("name", "type_", "data", "problem"),
    [
        ("str", object, b"\xff", r"stored value b'\\xff': serializer 'str' expected UTF-8"),
        ("json", object, b"{", "serializer 'json' expected JSON"),
        ("json", object, b"\xff", "serializer 'json' expected JSON"),
        ("json", Order, b"{}", r"expected the fields of Order \(KeyError: 'id'\)"),
        ("json", Order, b"3", "expected the fields of Order"),
        ("pickle", object, b"tea", "serializer 'pickle' expected a pickle"),
    ],
)
def test_stored_data_that_cannot_be_read_is_named(
    name: str, type_: type, data: bytes, problem: str
) -> None:
    with pytest.raises(BadValueError, match=problem):
        make_serializer(name, type_).loads(data)


def test_keys_and_header_values_become_bytes() -> None:
    for data, stored in [(None, None), (b"\xff", b"\xff"), ("tëa", "tëa".encode())]:
        assert to_key(data) == stored
        assert to_header("näme", data) == ("näme".encode(), stored)


@pytest.mark.parametrize(
    ("convert", "arguments", "problem"),
    [
        (to_key, (3,), "key 3: expected bytes, a text or None to store it"),
        (to_key, (("a",),), r"key \('a',\): expected bytes"),
        (to_key, ("\ud800",), r"key '\\ud800': expected a text in UTF-8"),
        (to_header, ("trace", 3), "header value 3: expected bytes"),
        (to_header, (b"trace", b""), "header name b'trace': expected a text"),
        (to_header, ("\ud800", b""), r"header name '\\ud800': expected a text in UTF-8"),
    ],
)
def test_other_keys_and_headers_are_refused(
    convert: Any, arguments: tuple[Any, ...], problem: str
) -> None:
    with pytest.raises(BadValueError, match=problem):
        convert(*arguments)


def test_a_reference_comes_back_as_a_reference_and_nothing_else_is_stored_as_one() -> None:
    serializer = make_serializer("payload")
    reference = Payload("videos/studio/1-000000001", 9, 2**32 - 1, "dict")
    data = serializer.dumps(reference)
    assert json.loads(data or b"") == attrs.asdict(reference)
    assert serializer.loads(data) == reference
    with pytest.raises(BadValueError, match="expected a reference to an external payload"):
        serializer.dumps(b"value")
    for damaged in (b"null", b"{}", b'{"id": "a"}', b"\xff", b"3"):
        with pytest.raises(BadValueError, match="expected a reference to an external payload"):
            serializer.loads(damaged)
