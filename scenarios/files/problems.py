"""Describes the problems of a scenario by path: "groups[0].consumers = 0: expected …".

The errors come nested from cattrs, or from classes that know the name of a field but not the path
of its table. Here they get their full path, and values are shown in TOML syntax.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError, IterableValidationNote

from ...model.errors import UnknownNameError, WavetankError
from .check import key_of

MISSING: Final = object()
"""Stands for an absent value."""

_LONGEST: Final = 60
_MOST_BITS: Final = 4 * _LONGEST
"""Longer whole numbers would be cut off anyway."""
_STEP: Final = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+)")
_QUOTED: Final = re.compile(r"(?<!\w)'([^']*)'(?!\w)")
_ASSIGNED: Final = re.compile(r"([\w.]+(?:\[\d\])?) = ")
_NOUNS: Final = ("objective", "replay")


def shown(value: object) -> str:
    """A value in TOML syntax, shortened if long, without the content of nested values."""
    if isinstance(value, list | tuple):
        return _cut("[" + ", ".join(_scalar(one) for one in value[:_LONGEST]) + "]")
    return _cut(_scalar(value))


def _scalar(value: object) -> str:
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list | tuple):
        return "[…]" if value else "[]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"{value:#x}"  # Python refuses to convert very long numbers to decimal
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def inside(path: str, key: str) -> str:
    """The path of a key in a table."""
    return f"{path}.{key}" if path else key


def find(data: Any, path: str) -> object:
    """The value at a path, or MISSING."""
    for index, key in _STEP.findall(path):
        try:
            data = data[int(index)] if index else data[key]
        except (LookupError, TypeError):
            return MISSING
    return data


def explain(error: Exception, path: str, value: object) -> Iterator[str]:
    """The problems of the value at a path, one sentence each."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _explain_part(inner, path, value)
    elif isinstance(error, ForbiddenExtraKeysError):
        yield from _explain_extra_keys(error, path, value)
    elif isinstance(error, WavetankError):
        yield _sentence(error, path, value)
    else:
        raise error  # a bug, not a problem of the scenario


def _explain_part(error: Exception, path: str, value: Any) -> Iterator[str]:
    """Go one step down, except into a table that the file has only as a shorthand."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote) and isinstance(value, dict):
            key = note.name.rstrip("_") if note.type else note.name
            if isinstance(error, KeyError) and key not in value:
                yield f"{path}: {key} is missing" if path else f"{key} is missing"
            else:
                yield from explain(error, inside(path, key), value.get(key, MISSING))
            return
        if isinstance(note, IterableValidationNote):
            index = int(note.index)
            yield from explain(error, f"{path}[{index}]", value[index])
            return
    yield from explain(error, path, value)


def _explain_extra_keys(error: ForbiddenExtraKeysError, path: str, value: Any) -> Iterator[str]:
    known = [key_of(field) for field in attrs.fields(error.cl) if field.init]
    for key in value:
        if key in error.extra_fields:
            hint = UnknownNameError("key", key, known).hint(shown)
            yield f"{inside(path, str(key))}: unknown key; {hint}"


def _sentence(error: WavetankError, path: str, value: object) -> str:
    if isinstance(error, UnknownNameError):
        unseen = isinstance(value, dict) or value is MISSING
        what = f"{error.what} {shown(error.name)}" if unseen else error.what
        return f"{_assigned(path, value)}: unknown {what}; {error.hint(shown)}"
    path, value, text = _located(path, value, _without_noun(str(error), value))
    return f"{_assigned(path, value)}: " + _QUOTED.sub(r'"\1"', text)


def _without_noun(text: str, value: object) -> str:
    """Remove the prefix that the path makes redundant, such as "group 'billing': "."""
    if isinstance(value, dict):
        for noun in (f"topic {value.get('name')!r}", f"group {value.get('name')!r}", *_NOUNS):
            text = text.removeprefix(f"{noun}: ")
    return text


def _located(path: str, value: object, text: str) -> tuple[str, object, str]:
    """Remove "name = value: " from a text; in a table it tells which key is wrong."""
    match = _ASSIGNED.match(text)
    if match is None:
        return path, value, text
    meant = [(path, value)]
    if isinstance(value, dict):
        meant.append((inside(path, match[1]), value.get(match[1], MISSING)))
    for where, one in meant:
        assigned = f"{match[0]}{None if one is MISSING else one!r}: "
        if text.startswith(assigned):
            return where, one, text.removeprefix(assigned)
    return path, value, text


def _assigned(path: str, value: object) -> str:
    return path if isinstance(value, dict) or value is MISSING else f"{path} = {shown(value)}"
