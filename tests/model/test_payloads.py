"""Payload stores compared with a dict, and references that detect damage."""

import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import wavetank as wt
from wavetank.model.log.batch import Batch
from wavetank.model.payloads import (
    DirectoryStore,
    Encoded,
    MemoryStore,
    Payload,
    PayloadBackend,
    decode,
    encode,
    number_in,
    payload_id,
    references,
    verify,
)

AWKWARD = [
    "", ".", "..", "/", "../up", "a/b", "a%2Fb", "a b\n", "\0", "ключ", "\ud800", "con", "~",
    "x" * 300, "x" * 192, "x" * 192 + ".payload/y", "x" * 192 + ".payload", "é" * 400, "a.draft",
]  # fmt: skip
IDS = st.sampled_from(AWKWARD) | st.text(st.characters(codec=None), max_size=20)


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PayloadBackend:
    """Make a store of each kind."""
    return MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path / "store")


# Stores


class StoresAndDict(RuleBasedStateMachine):
    """Applies the same operations to both stores and to a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.memory, self.directory = MemoryStore(), DirectoryStore(self.folder.name)
        self.model: dict[str, bytes] = {}

    def stores(self) -> Iterator[PayloadBackend]:
        yield self.memory
        yield self.directory

    @rule(id=IDS, data=st.binary(max_size=20))
    def put(self, id: str, data: bytes) -> None:
        self.model[id] = data
        for store in self.stores():
            store.put(id, data)

    @rule(id=IDS)
    def remove_any(self, id: str) -> None:
        there = self.model.pop(id, None) is not None
        assert [store.remove(id) for store in self.stores()] == [there, there]

    @rule(data=st.data())
    def remove_existing(self, data: st.DataObject) -> None:
        if self.model:
            self.remove_any(data.draw(st.sampled_from(sorted(self.model))))

    @rule(id=IDS)
    def get_any(self, id: str) -> None:
        for store in self.stores():
            if id in self.model:
                assert store.get(id) == self.model[id]
            else:
                with pytest.raises(KeyError):
                    store.get(id)

    @rule()
    def open_the_directory_again(self) -> None:
        self.directory = DirectoryStore(self.folder.name)

    @invariant()
    def both_stores_equal_the_dict(self) -> None:
        for store in self.stores():
            assert store.ids() == sorted(self.model)
            assert {id: store.get(id) for id in store.ids()} == self.model

    def teardown(self) -> None:
        self.folder.cleanup()


TestStoresAndDict = StoresAndDict.TestCase
TestStoresAndDict.settings = settings(max_examples=30, stateful_step_count=20)


def test_a_store_accepts_any_id_and_does_not_mix_them_up(store: PayloadBackend) -> None:
    for number, id in enumerate(AWKWARD):
        store.put(id, b"%d" % number)
    assert [store.get(id) for id in AWKWARD] == [b"%d" % number for number in range(len(AWKWARD))]
    assert store.ids() == sorted(AWKWARD)
    assert [store.remove(id) for id in AWKWARD] == [True] * len(AWKWARD)
    assert store.ids() == []


def test_a_directory_store_writes_only_inside_its_directory_and_leaves_no_drafts(
    tmp_path: Path,
) -> None:
    store = DirectoryStore(tmp_path / "deep" / "store")
    for id in AWKWARD:
        store.put(id, b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["store"]
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {".payload", ""}


def test_other_files_in_the_directory_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    store = DirectoryStore(tmp_path)
    store.put("a", b"data")
    assert store.ids() == ["a"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_failed_write_keeps_the_old_data_and_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    store.put("a", b"old")

    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        store.put("a", b"new")
    assert store.get("a") == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_in_place_of_the_directory_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(
        wt.errors.BadValueError, match=r"payload_dir = '.*taken': expected a directory"
    ):
        DirectoryStore(tmp_path / "taken")


# References

VALUES = st.recursive(
    st.integers() | st.text() | st.binary() | st.booleans() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(VALUES)
def test_a_decoded_value_equals_the_encoded_one(value: Any) -> None:
    encoded = encode(value)
    assert encoded is not None
    reference = encoded.reference("id")
    verify(reference, encoded.data)
    back = decode(encoded.data)
    assert back == value
    assert type(back) is type(value)
    assert (reference.size, reference.type_name) == (len(encoded.data), type(value).__name__)


@given(st.binary(min_size=1), st.data())
def test_any_damage_to_a_single_byte_or_the_length_is_detected(
    data: bytes, draw: st.DataObject
) -> None:
    reference = Encoded(data, "bytes").reference("id")
    place = draw.draw(st.integers(0, len(data) - 1))
    flipped = bytes([data[place] ^ draw.draw(st.integers(1, 255))])
    with pytest.raises(wt.errors.PayloadError, match="damaged: checksum 0x"):
        verify(reference, data[:place] + flipped + data[place + 1 :])
    with pytest.raises(
        wt.errors.PayloadError, match=f"damaged: {place} bytes instead of {len(data)}"
    ):
        verify(reference, data[:place])


def test_none_stays_none() -> None:
    assert encode(None) is None


def test_a_value_that_cannot_be_pickled_is_refused_with_its_type() -> None:
    with pytest.raises(wt.errors.BadValueError, match="a value of type function cannot be stored"):
        encode(lambda: None)


def test_data_that_cannot_be_decoded_raises_a_payload_error() -> None:
    gone = pickle.dumps(wt.Payload).replace(b"Payload", b"Pailoat")
    with pytest.raises(wt.errors.PayloadError, match="cannot be decoded: AttributeError"):
        decode(gone)


def test_the_size_of_a_reference_does_not_depend_on_its_checksum() -> None:
    texts = {len(repr(Payload("id", 3, checksum, "int"))) for checksum in (0, 9, 2**32 - 1)}
    assert len(texts) == 1


@given(st.text(max_size=5), st.text(max_size=5), st.integers(1, 20), st.integers(1, 10**12))
def test_an_id_contains_its_topic_and_number_whatever_the_names(
    topic: str, producer: str, life: int, number: int
) -> None:
    id = payload_id(topic, producer, life, number)
    assert Payload(id, 1, 1, "int").topic == topic
    assert number_in(id) == number


def test_names_that_are_equal_when_joined_have_different_ids() -> None:
    assert payload_id("a/b", "c", 1, 1) != payload_id("a", "b/c", 1, 1)


@pytest.mark.parametrize("id", ["", "a", "a-", "-", "a-x", "a-²"])
def test_the_number_of_a_foreign_id_is_zero(id: str) -> None:
    assert number_in(id) == 0


def test_references_lists_the_references_among_the_values_of_a_batch() -> None:
    first, second = Payload("a", 1, 1, "int"), Payload("b", 1, 1, "int")
    batch = Batch.of("shop", 0, [first, None, second], timestamps_us=0, sizes=1)
    assert references(batch) == (first, second)
    assert references(batch[1:]) == (second,)
    assert references(batch[1:2]) == ()


@pytest.mark.parametrize("values", [None, range(3), "text", (1, "two", None)])
def test_a_batch_of_other_values_has_no_references(values: Any) -> None:
    assert references(Batch("shop", 0, 3, values=values, timestamps_us=0, sizes=1)) == ()


# Topics


def test_only_a_topic_with_external_payloads_accepts_references_as_values() -> None:
    reference = Payload("a", 1, 1, "dict")
    wt.Topic("videos", 1, dict, "external").check(reference)
    with pytest.raises(wt.errors.BadValueError, match="type dict, not Payload"):
        wt.Topic("videos", 1, dict).check(reference)
    with pytest.raises(wt.errors.BadValueError, match="type dict, not str"):
        wt.Topic("videos", 1, dict, "external").check("text")


def test_payloads_are_inline_or_external() -> None:
    with pytest.raises(
        wt.errors.BadValueError,
        match="topic 'videos': payloads = 'extern': expected \"inline\" or \"external\"",
    ):
        wt.Topic("videos", 1, payloads="extern")  # type: ignore[arg-type]


@pytest.mark.parametrize(("payloads", "serializer"), [("external", "json"), ("inline", "payload")])
def test_only_topics_with_external_payloads_store_references(
    payloads: Any, serializer: str
) -> None:
    with pytest.raises(
        wt.errors.BadValueError, match=f"topic 'videos': serializer = '{serializer}': exp"
    ):
        wt.Topic("videos", 1, payloads=payloads, serializer=serializer)
    assert wt.Topic("videos", 1, payloads="external").make_serializer().name == "payload"
