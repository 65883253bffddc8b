"""What is wrong with a scenario, in the words of its file: "groups[0].consumers = 0: expected …".

Errors come as cattrs nests them, or as classes raise them, which know the name of a field but not
where its table stands. Here they get their path, and values are written as TOML has them.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError, IterableValidationNote

from ..model.errors import UnknownNameError, WavetankError
from .fields import LEAST_WHOLE, MOST_WHOLE, key_of

MISSING: Final = object()
"""The value of what is not there."""

_LONGEST: Final = 60
_STEP: Final = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+)")
_QUOTED: Final = re.compile(r"(?<!\w)'([^']*)'(?!\w)")
_ASSIGNED: Final = re.compile(r"([\w.]+(?:\[\d\])?) = ")
_NOUNS: Final = ("objective", "replay")


def shown(value: object) -> str:
    """A value as a file has it, cut short if it is long, and without what is deep inside."""
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
    if isinstance(value, int) and not LEAST_WHOLE <= value <= MOST_WHOLE:
        return f"{value:#x}"  # a decimal text of it may be more than Python is willing to make
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def inside(path: str, key: str) -> str:
    """The path of what is in a table."""
    return f"{path}.{key}" if path else key


def find(data: Any, path: str) -> object:
    """What is at a path, or MISSING."""
    for index, key in _STEP.findall(path):
        try:
            data = data[int(index)] if index else data[key]
        except (LookupError, TypeError):
            return MISSING
    return data


def explain(error: Exception, path: str, value: object) -> Iterator[str]:
    """All that is wrong with the value at a path, one sentence each."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _explain_part(inner, path, value)
    elif isinstance(error, ForbiddenExtraKeysError):
        yield from _explain_extra_keys(error, path, value)
    elif isinstance(error, WavetankError):
        yield _sentence(error, path, value)
    else:
        raise error  # a mistake of ours


def _explain_part(error: Exception, path: str, value: Any) -> Iterator[str]:
    """Go one step down, unless the table is not the file's but what a shorthand stands for."""
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
    """What the path says already: that it is about a group, and which."""
    if isinstance(value, dict):
        for noun in (f"topic {value.get('name')!r}", f"group {value.get('name')!r}", *_NOUNS):
            text = text.removeprefix(f"{noun}: ")
    return text


def _located(path: str, value: object, text: str) -> tuple[str, object, str]:
    """Take "name = value: " off a text; of a table, it says which value is meant."""
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
