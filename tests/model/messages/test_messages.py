"""Every message: frozen, of immutable fields, each of them documented.

A message may be kept by its receiver, repeated by the network, and handed to a thread: if anything
inside could change, two actors would share state.
"""

import ast
import inspect
import pkgutil
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from typing import Any, Literal, NamedTuple, Union

import attrs
import pytest

import wavetank.actors
import wavetank.model.messages
import wavetank.model.payloads
from wavetank.actors.engine.actor import Actor
from wavetank.actors.engine.ref import Ref
from wavetank.model.log.batch import Batch
from wavetank.model.messages.group import GroupView
from wavetank.model.topics import TopicPartition

IMMUTABLE = (
    str, bytes, int, float, bool, type(None), type, Enum,
    Batch,  # refuses every assignment
    Ref,  # an address, compared by identity
    Exception,  # handed through to the user as raised
)  # fmt: skip

OPAQUE = {
    "Send.value": "the user's",
    "Send.key": "the user's",
    "Send.headers": "the user's",
    "SendMany.values": "the user's",
    "SendMany.keys": "the user's",
    "KeysView.hot": "the user's keys",
    "RaftEntry.payload": "a change of the metadata: plain data",
    "InstallSnapshot.parts": "changes of the metadata: plain data",
    "Leader.ref": "an address",
    "Metadata.coordinators": "addresses",
    "NotController.active": "an address",
    "ReplicaLeads.ref": "an address",
    "ReplicaFetched.snapshot": "changes of a partition: plain data",
    "ReplicaFetched.changes": "changes of a partition: plain data",
    "CoordinatorHosted.ref": "an address",
    "GroupConfig.assignor": "a name or a function of the user",
    "SetAssignor.assignor": "a name or a function of the user",
    "JoinAnswer.assignor": "a name or a function of the user",
    "StoredMember.address": "an address",
    "CallbackDue.handle": "a callback of the receiver's own event loop",
    "StoredGroup.assignor": "a name or a function of the user",
    "DiskFailed.message": "the message that the actor gave the disk, for itself",
    "FolderRead.message": "the message that the actor gave the disk, for itself",
    "FramesRead.message": "the message that the actor gave the disk, for itself",
    "FileContents.frames": "what the actor had written, or the disk decoded",
    "FileContents.lost": "what the actor had written",
}
"""Fields that may hold `Any` or `object`, and what they hold."""


def modules_below(package: types.ModuleType) -> list[types.ModuleType]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [import_module(module.name) for module in found]


def subclasses(cls: type) -> Iterator[type]:
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


class Idle(Actor):
    """Receives only what the engine sends to every actor."""


def message_classes() -> list[type]:
    """List the classes in model/messages and those that any actor of the package receives."""
    actor_modules = {module.__name__ for module in modules_below(wavetank.actors)}
    found: dict[type, None] = {}
    for module in [*modules_below(wavetank.model.messages), wavetank.model.payloads]:
        for value in vars(module).values():
            own = inspect.isclass(value) and value.__module__ == module.__name__
            if own and (module is not wavetank.model.payloads or attrs.has(value)):
                found[value] = None
    for actor in subclasses(Actor):
        if actor.__module__ in actor_modules:
            received = [cls for cls in actor.handlers if cls not in Idle.handlers]  # type: ignore[attr-defined]
            found |= dict.fromkeys(received)
    return list(found)


MESSAGES = message_classes()


each_message = pytest.mark.parametrize(
    "cls", [pytest.param(c, id=f"{c.__module__.rpartition('.')[2]}.{c.__name__}") for c in MESSAGES]
)


# Frozen


def is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_frozen(cls: type) -> bool:
    if attrs.has(cls):
        return attrs.inspect(cls).is_frozen
    return is_named_tuple(cls)


@each_message
def test_a_message_is_frozen(cls: type) -> None:
    assert is_frozen(cls)


# Fields of immutable types


def hints_of(cls: type) -> dict[str, Any]:
    """Resolve the types of a class's fields, also those imported for type checkers alone."""
    names: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("wavetank."):
            names |= vars(module)
    hints = typing.get_type_hints(cls, localns=names | vars(sys.modules[cls.__module__]))
    fields = [field.name for field in attrs.fields(cls)] if attrs.has(cls) else cls._fields  # type: ignore[attr-defined]
    return {name: hints[name] for name in fields}


def problems_of(cls: type, seen: set[type] | None = None) -> list[str]:
    """List the fields of a class, and of the classes in it, that could change."""
    seen = set() if seen is None else seen
    if cls in seen:
        return []
    seen.add(cls)
    return [
        problem
        for name, hint in hints_of(cls).items()
        for problem in problems_in(hint, f"{cls.__name__}.{name}", seen)
    ]


def problems_in(hint: Any, field: str, seen: set[type]) -> list[str]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return [] if field in OPAQUE else [f"{field} may be anything"]
    if origin is Literal or origin is type or typing.get_origin(hint) is Callable:
        return []
    if origin in (Union, types.UnionType, tuple, frozenset, types.MappingProxyType):
        parts = [part for part in arguments if part is not Ellipsis]
        return [problem for part in parts for problem in problems_in(part, field, seen)]
    if hint is None or (inspect.isclass(hint) and issubclass(hint, IMMUTABLE)):
        return []
    if inspect.isclass(hint) and is_frozen(hint):
        return problems_of(hint, seen)
    return [f"{field} is a {hint}"]


@each_message
def test_a_message_has_only_fields_that_cannot_change(cls: type) -> None:
    assert problems_of(cls) == []


def test_every_opaque_field_exists() -> None:
    fields = {f"{cls.__name__}.{name}" for cls in nested_classes() for name in hints_of(cls)}
    assert OPAQUE.keys() <= fields


def nested_classes() -> set[type]:
    """Collect all messages and the frozen classes inside them."""
    seen: set[type] = set()
    for cls in MESSAGES:
        problems_of(cls, seen)
    return seen


@attrs.frozen
class Sound:
    """Nothing in it can change."""

    numbers: tuple[int, ...]
    where: TopicPartition | None
    names: types.MappingProxyType[str, frozenset[str]]
    action: Callable[[], None]
    kind: Literal["a", "b"]


class Nested(NamedTuple):
    """Has a list inside."""

    pairs: tuple[tuple[str, list[int]], ...]


@attrs.frozen
class Unsound:
    """Everything in it can change."""

    numbers: list[int]
    names: dict[str, int]
    members: set[str] | None
    mapping: typing.Mapping[str, int]
    anything: Any
    nested: Nested
    sound: Sound


def test_a_field_that_can_change_is_found_however_deep_it_is() -> None:
    assert problems_of(Sound) == []
    assert [problem.split()[0] for problem in problems_of(Unsound)] == [
        "Unsound.numbers",
        "Unsound.names",
        "Unsound.members",
        "Unsound.mapping",
        "Unsound.anything",
        "Nested.pairs",
    ]


def test_a_mapping_in_a_message_is_a_read_only_copy() -> None:
    members = {"a": (TopicPartition("orders", 0),)}
    view = GroupView("readers", "Stable", 1, "range", "eager", members, {"a": "a"})
    members.clear()
    assert view.members == {"a": (TopicPartition("orders", 0),)}
    with pytest.raises(TypeError, match="does not support item assignment"):
        view.members["b"] = ()  # type: ignore[index]


# Documented fields


def undocumented_fields(cls: type) -> list[str]:
    """List the fields without a string literal right below them."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    after = [*definition.body[1:], None]
    return [
        ast.unparse(line.target)
        for line, following in zip(definition.body, after, strict=True)
        if isinstance(line, ast.AnnAssign) and not is_text(following)
    ]


def is_text(line: ast.stmt | None) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


@each_message
def test_a_message_and_each_of_its_fields_is_documented(cls: type) -> None:
    assert (cls.__doc__ or "").strip()
    assert undocumented_fields(cls) == []


def test_classes_inside_messages_are_documented_as_messages_are() -> None:
    missing = {cls.__name__: undocumented_fields(cls) for cls in nested_classes()}
    assert {name: fields for name, fields in missing.items() if fields} == {}


def test_a_field_without_a_docstring_is_found() -> None:
    assert undocumented_fields(Nested) == ["pairs"]
