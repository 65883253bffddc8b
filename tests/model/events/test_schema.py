"""The schema of events, its encoders and its digest."""

import io
from enum import Enum, StrEnum
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from wavetank.model.errors import BadValueError, UnknownNameError
from wavetank.model.events import schema as events
from wavetank.model.events.rows import ROW_BYTES, PendingRows, encode_rows
from wavetank.model.events.schema import NULL_INT, SCHEMA, Digest, Event

NAMES = [column.name for column in attrs.fields(Event)][1:]
INTS = {column.name for column in attrs.fields(Event) if column.type in (int, int | None)}
REQUIRED = {"time_us", "kind"}

unhurried = settings(deadline=None, max_examples=60)

int_values = st.integers(0, 3) | st.integers(NULL_INT + 1, 2**63 - 1)
names = st.sampled_from(["a", "b", "c", ""]) | st.text(max_size=5)


def cells_for(name: str) -> st.SearchStrategy[Any]:
    values: st.SearchStrategy[Any] = int_values if name in INTS else names
    absent = st.just(NULL_INT) if name in INTS else st.none()
    return values if name in REQUIRED else absent | values


rows_of_cells = st.tuples(*map(cells_for, NAMES))
tables_of_rows = st.lists(rows_of_cells, min_size=1, max_size=12)


def encode(rows: list[tuple[Any, ...]], first: int = 0) -> pa.RecordBatch:
    waiting = wait(rows)
    return encode_rows(waiting, len(waiting), first)


def wait(rows: list[tuple[Any, ...]]) -> PendingRows:
    waiting = PendingRows()
    for row in rows:
        waiting.packed.extend(waiting.pack(row))  # type: ignore[arg-type]
    return waiting


def encode_as_columns(rows: list[tuple[Any, ...]], first: int = 0) -> pa.RecordBatch:
    columns = dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True))
    return events.encode_columns(columns, len(rows), first)


def expected_events(rows: list[tuple[Any, ...]]) -> list[Event]:
    return [
        Event(number, *(None if cell == NULL_INT else cell for cell in row))
        for number, row in enumerate(rows)
    ]


def digest(*parts: pa.RecordBatch | pa.Table) -> str:
    result = Digest()
    for part in parts:
        result.update(part)
    return result.hexdigest()


def as_table(*batches: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches(batches, SCHEMA)


def a_row(**cells: Any) -> tuple[Any, ...]:
    absent = [NULL_INT if name in INTS else None for name in NAMES]
    return tuple(
        ({**dict(zip(NAMES, absent, strict=True)), "time_us": 0, "kind": "x"} | cells).values()
    )


# The schema


def test_the_schema_has_the_documented_columns_in_order() -> None:
    assert SCHEMA.names == [
        "sequence", "time_us", "kind", "node", "actor", "topic", "partition", "group", "member",
        "consumer", "producer", "peer", "message", "key", "mode", "reason", "base_offset", "count",
        "bytes", "epoch", "retries", "total", "peak", "lamport", "append_time_us", "clock_us",
        "detail",
    ]  # fmt: skip


def test_only_sequence_time_and_kind_are_required() -> None:
    assert [field.name for field in SCHEMA if not field.nullable] == ["sequence", "time_us", "kind"]


def test_names_are_dictionaries_but_free_text_is_not() -> None:
    assert SCHEMA.field("actor").type == pa.dictionary(pa.int32(), pa.string())
    assert SCHEMA.field("detail").type == pa.string()


def test_the_schema_has_its_version_as_metadata() -> None:
    assert SCHEMA.metadata[b"wavetank.schema_version"] == str(events.SCHEMA_VERSION).encode()


def test_an_event_is_immutable_and_prints_its_values_on_one_line() -> None:
    event = Event(7, 1_500_000, "appended", node="n1", count=3, detail="two\nlines")
    assert str(event) == "#7 1.500000s appended node='n1' count=3 detail='two\\nlines'"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.count = 4  # type: ignore[misc]


# Encoding


@unhurried
@given(tables_of_rows)
def test_encoded_rows_are_read_back_as_events(rows: list[tuple[Any, ...]]) -> None:
    assert list(events.to_events(as_table(encode(rows)))) == expected_events(rows)


@unhurried
@given(tables_of_rows)
def test_columns_and_rows_become_the_same_batch(rows: list[tuple[Any, ...]]) -> None:
    assert encode_as_columns(rows).to_pylist() == encode(rows).to_pylist()


@unhurried
@given(tables_of_rows)
def test_columns_converted_to_rows_equal_the_rows(rows: list[tuple[Any, ...]]) -> None:
    columns = dict(zip(NAMES, zip(*rows, strict=True), strict=True))
    assert events.to_rows(columns, len(rows)) == rows


def test_the_sequence_continues_from_the_given_number() -> None:
    assert encode([a_row(), a_row()], first=40)["sequence"].to_pylist() == [40, 41]


def test_no_rows_make_an_empty_batch() -> None:
    assert encode([]).num_rows == 0


def test_every_batch_has_exactly_the_schema() -> None:
    assert encode([a_row()]).schema.equals(SCHEMA, check_metadata=True)
    columns = {"time_us": 0, "kind": "x"}
    assert events.encode_columns(columns, 2, 0).schema.equals(SCHEMA, check_metadata=True)


@pytest.mark.parametrize(
    "given_column",
    [
        [5, 6, 7],
        (5, 6, 7),
        range(5, 8),
        np.array([5, 6, 7]),
        np.array([5, 6, 7], dtype=np.uint8),
        np.array([5, 6, 7], dtype=np.uint64),
        np.array([5, 6, 7], dtype=object),
        [np.int32(5), 6, 7],
    ],
    ids=lambda column: f"{type(column).__name__} {getattr(column, 'dtype', '')}",
)
def test_an_int_column_may_be_any_sequence_of_ints(given_column: Any) -> None:
    batch = events.encode_columns({"time_us": given_column, "kind": "x"}, 3, 0)
    assert batch["time_us"].to_pylist() == [5, 6, 7]


@pytest.mark.parametrize(
    "given_column",
    [["a", None, "b"], ("a", None, "b"), np.array(["a", None, "b"], dtype=object)],
    ids=lambda column: type(column).__name__,
)
@pytest.mark.parametrize("name", ["topic", "detail"])
def test_a_text_column_may_be_any_sequence_of_strings(name: str, given_column: Any) -> None:
    batch = events.encode_columns({"time_us": 0, "kind": "x", name: given_column}, 3, 0)
    assert batch[name].to_pylist() == ["a", None, "b"]


@pytest.mark.parametrize("absent", [None, NULL_INT, [None, None], [NULL_INT, None]])
def test_an_int_may_be_absent(absent: Any) -> None:
    batch = events.encode_columns({"time_us": 0, "kind": "x", "count": absent}, 2, 0)
    assert batch["count"].to_pylist() == [None, None]


def test_a_scalar_holds_for_all_rows() -> None:
    columns = {"time_us": 1, "kind": "x", "count": np.int16(9), "topic": "t", "detail": "d"}
    for event in events.to_events(as_table(events.encode_columns(columns, 3, 0))):
        assert attrs.evolve(event, sequence=0) == Event(0, 1, "x", topic="t", count=9, detail="d")


def test_changing_an_array_later_does_not_change_the_batch() -> None:
    times = np.array([1, 2, 3])
    batch = events.encode_columns({"time_us": times, "kind": "x"}, 3, 0)
    times[:] = 0
    assert batch["time_us"].to_pylist() == [1, 2, 3]


def test_members_of_string_enums_are_stored_as_their_text() -> None:
    class Modern(StrEnum):
        LOST = "lost"

    class Older(str, Enum):  # noqa: UP042
        FOUND = "found"

    for batch in (
        encode([a_row(kind=Modern.LOST), a_row(kind=Older.FOUND)]),
        encode([*events.to_rows({"time_us": 0, "kind": [*Modern, *Older]}, 2)]),
    ):
        kinds = batch["kind"].to_pylist()
        assert kinds == ["lost", "found"]
        assert {type(kind) for kind in kinds} == {str}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"count": "many"}, "'count': got 'many' (str), expected an int of 64 bits or None"),
        ({"count": 1.5}, "'count': got 1.5 (float), expected an int"),
        ({"count": b"12345678"}, "'count': got b'12345678' (bytes), expected an int"),
        ({"count": [1, 2.5]}, "'count': got 2.5 (float), expected an int"),
        ({"count": np.array([0.5, 1.0])}, "'count': got 0.5 (float), expected an int"),
        ({"count": 2**63}, "'count': got 9223372036854775808 (int), expected an int of 64 bits"),
        ({"count": np.array([1, 2**63], dtype=np.uint64)}, "'count': got 9223372036854775808"),
        ({"count": range(2**63, 2**63 + 2)}, "'count': got 9223372036854775808"),
        ({"topic": 5}, "'topic': got 5 (int), expected a str"),
        ({"topic": ["a", 5]}, "'topic': got 5 (int), expected a str"),
        ({"topic": ["a", b"b"]}, "'topic': got b'b' (bytes), expected a str"),
        ({"detail": ["a", "\ud800"]}, "'detail': got '\\ud800' (str), expected a str that can"),
        ({"kind": None}, "'kind': got nothing, expected a str that can be encoded as UTF-8"),
        ({"kind": ["x", None]}, "'kind': got nothing, expected a str"),
        ({"time_us": NULL_INT}, "'time_us': got nothing, expected an int of 64 bits"),
        ({"time_us": [1, NULL_INT]}, "'time_us': got nothing, expected an int of 64 bits"),
        ({"count": [1, 2, 3]}, "'count': got 3 values, expected 2 or a scalar"),
        ({"count": np.zeros((2, 1), int)}, "'count': got an array of shape (2, 1), expected (2,)"),
        ({"count": np.array(5)}, "'count': got an array of shape (), expected (2,)"),
        ({"sequence": 5}, "'sequence': expected none, as the log numbers its rows"),
        ({"topics": "t"}, "unknown event column 'topics': did you mean 'topic'?"),
    ],
    ids=str,
)
@pytest.mark.parametrize("encoder", [events.to_rows, lambda c, n: events.encode_columns(c, n, 0)])
def test_an_invalid_column_is_refused_with_name_value_and_what_is_expected(
    encoder: Any, columns: dict[str, Any], says: str
) -> None:
    with pytest.raises((BadValueError, UnknownNameError)) as refusal:
        encoder({"time_us": 0, "kind": "x"} | columns, 2)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", 1.5),
        ("count", "1"),
        ("count", 2**63),
        ("time_us", NULL_INT),
        ("time_us", None),
        ("partition", "1"),
        ("topic", 3),
        ("topic", ["a"]),
        ("topic", "\ud800"),
        ("detail", 3.5),
        ("kind", None),
    ],
)
def test_an_invalid_cell_is_refused_with_its_name_before_the_row_is_packed(
    name: str, value: Any
) -> None:
    waiting = wait([a_row(kind="y", count=2)])
    with pytest.raises(BadValueError, match=f"event column '{name}'"):
        waiting.pack(a_row(**{name: value}))  # type: ignore[arg-type]
    assert encode_rows(waiting, len(waiting), 0)["kind"].to_pylist() == ["y"]


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(BadValueError, match="got 25 cells, expected 26"):
        PendingRows().pack(a_row()[:-1])  # type: ignore[arg-type]


# PendingRows rows


@unhurried
@given(tables_of_rows, st.data())
def test_rows_can_be_encoded_and_dropped_in_parts(
    rows: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    waiting, seen = wait(rows), 0
    found = []
    while len(waiting):
        some = data.draw(st.integers(1, len(waiting)))
        found.append(encode_rows(waiting, some, seen))
        waiting.drop(some)
        seen += some
    assert list(events.to_events(as_table(*found))) == expected_events(rows)


def test_the_same_subject_has_the_same_number() -> None:
    class Kind(StrEnum):
        LOST = "lost"

    waiting = PendingRows()
    absent = (None,) * 9
    about = ("lost", None, None, "orders", 3, *absent)
    number = waiting.subject(about)
    assert waiting.subject(("lost", None, None, "orders", 3, *absent)) == number
    assert waiting.subject((Kind.LOST, None, None, "orders", 3, *absent)) == number
    assert waiting.subject(("lost", None, None, "orders", 4, *absent)) != number


def test_texts_are_kept_only_as_long_as_their_rows() -> None:
    waiting = wait([a_row(detail=f"text {number}") for number in range(3)])
    assert len(waiting.packed) == 3 * ROW_BYTES
    waiting.drop(2)
    assert list(waiting._details.values()) == ["text 2"]
    assert encode_rows(waiting, len(waiting), 2)["detail"].to_pylist() == ["text 2"]
    waiting.clear()
    assert len(waiting) == len(waiting._details) == 0


def test_none_also_stands_for_an_absent_int_in_a_row() -> None:
    batch = encode([a_row(count=None), a_row(count=1), a_row(count=NULL_INT)])
    assert batch["count"].to_pylist() == [None, 1, None]


def test_select_returns_the_given_kinds_or_all_events() -> None:
    table = as_table(encode([a_row(kind=kind) for kind in "abca"]))
    assert events.select(table, ["a", "c"])["sequence"].to_pylist() == [0, 2, 3]
    assert events.select(table, ["nothing"]).num_rows == 0
    assert events.select(table, []) is table


# The digest


@unhurried
@given(tables_of_rows, st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=12))
def test_the_digest_does_not_depend_on_batching_or_the_form_of_encoding(
    rows: list[tuple[Any, ...]], cuts: list[tuple[int, bool]]
) -> None:
    parts, done = [], 0
    for size, columnar in [*cuts, (len(rows), False)]:
        if part := rows[done : done + size]:
            parts.append((encode_as_columns if columnar else encode)(part, done))
            done += size
    assert digest(*parts) == digest(encode(rows))


@unhurried
@given(tables_of_rows, st.integers(1, 5))
def test_the_digest_is_the_same_after_parquet(rows: list[tuple[Any, ...]], group_rows: int) -> None:
    file = io.BytesIO()
    pq.write_table(as_table(encode(rows)), file, row_group_size=group_rows)
    assert digest(pq.read_table(file)) == digest(encode(rows))


@unhurried
@given(tables_of_rows, st.integers(0, 12))
def test_the_digest_does_not_depend_on_slices_dictionaries_and_types(
    rows: list[tuple[Any, ...]], cut: int
) -> None:
    table = as_table(encode(rows))
    plain = table.cast(
        pa.schema(
            [
                (field.name, pa.int64() if field.name in {*INTS, "sequence"} else pa.large_string())
                for field in SCHEMA
            ]
        )
    )
    assert digest(plain) == digest(table)
    assert digest(table.slice(0, cut), table.slice(cut)) == digest(table)
    assert digest(plain.slice(0, cut), plain.slice(cut)) == digest(table)
    assert digest(table.unify_dictionaries()) == digest(table)


def test_the_digest_ignores_order_and_unused_entries_of_a_dictionary() -> None:
    batch = encode([a_row(actor="b"), a_row(actor="a"), a_row(actor=None), a_row(actor="b")])
    odd = pa.DictionaryArray.from_arrays(
        pa.array([3, 2, None, 0], pa.int32()), pa.array(["b", "unused", "a", "b"])
    )
    assert digest(batch.set_column(4, SCHEMA.field("actor"), odd)) == digest(batch)


def test_the_digest_ignores_bytes_behind_an_absent_text() -> None:
    batch = encode([a_row(detail="a"), a_row(detail=None), a_row(detail="b")])
    ends, text = np.array([0, 1, 7, 8], np.int32), b"ahiddenb"
    present = pa.py_buffer(bytes([0b101]))
    odd = pa.StringArray.from_buffers(3, pa.py_buffer(ends), pa.py_buffer(text), present)
    assert digest(
        batch.set_column(SCHEMA.get_field_index("detail"), SCHEMA.field("detail"), odd)
    ) == digest(batch)


@unhurried
@given(tables_of_rows, st.data())
def test_the_digest_changes_when_two_different_rows_are_swapped(
    rows: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    one, two = data.draw(st.tuples(*[st.integers(0, len(rows) - 1)] * 2))
    assume(rows[one] != rows[two])
    swapped = list(rows)
    swapped[one], swapped[two] = rows[two], rows[one]
    assert digest(encode(swapped)) != digest(encode(rows))


@unhurried
@given(tables_of_rows, st.data())
def test_the_digest_changes_with_any_cell(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(rows) - 1))
    position = data.draw(st.integers(0, len(NAMES) - 1))
    cell = data.draw(cells_for(NAMES[position]))
    row = list(rows[number])
    assume(row[position] != cell)
    row[position] = cell
    changed = [*rows[:number], tuple(row), *rows[number + 1 :]]
    assert digest(encode(changed)) != digest(encode(rows))


@unhurried
@given(tables_of_rows, st.data())
def test_the_digest_changes_when_a_row_is_dropped(
    rows: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(rows) - 1))
    assert digest(encode(rows[:number] + rows[number + 1 :])) != digest(encode(rows))


@pytest.mark.parametrize(
    ("one", "other"), [(["ab", "c"], ["a", "bc"]), (["", "a"], [None, "a"]), (["a", ""], ["", "a"])]
)
def test_the_digest_depends_on_where_a_text_ends_and_on_absence(
    one: list[Any], other: list[Any]
) -> None:
    first, second = (encode([a_row(detail=text) for text in texts]) for texts in (one, other))
    assert digest(first) != digest(second)


def test_the_digest_adds_a_batch_as_a_whole_or_not_at_all() -> None:
    batch = encode([a_row(actor="a", detail="d")])
    result = Digest()
    before = result.hexdigest()
    with pytest.raises(KeyError):
        result.update(batch.drop_columns(["detail"]))
    assert result.hexdigest() == before
    result.update(batch)
    assert result.hexdigest() == digest(batch)


def test_the_digest_of_given_events_never_changes() -> None:
    rows = [
        a_row(time_us=10, kind="started", node="n1", actor="a1", lamport=1),
        a_row(time_us=25, kind="appended", topic="orders", partition=3, base_offset=0, count=50),
        a_row(time_us=25, kind="appended", topic="orders", partition=3, detail="größer"),
    ]
    assert digest(encode(rows)) == (
        "646acacbd0c51a047809eeb178bbd51a0f2c5a0538788dfa4bd5e773a0eab926"
    )
