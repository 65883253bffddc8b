"""What the fields of a scenario take, and how they refuse the rest: "name = value: expected …".

Each is a validator, or makes one. `attrs.validators` has some like them, but those take True for a
whole number and speak of classes.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError, WavetankError
from ..model.settings import ClusterSettings, ConsumerSettings, ProducerSettings, from_mapping

Check: TypeAlias = Callable[[Any, "attrs.Attribute[Any]", Any], None]

MOST_NODES: Final = 10_000
"""Of each kind that a scenario may have: a slip of the finger must not fill the memory."""
MOST_PARTITIONS: Final = 100_000
LEAST_WHOLE: Final = -(2**63)
MOST_WHOLE: Final = 2**63 - 1
"""What fits into the 64 bits that a whole number of a TOML file has."""
_MOST_US: Final = 2**62


def key_of(field: "attrs.Attribute[Any]") -> str:
    """What a file calls a field: `for_` is `for`, which Python keeps for itself."""
    return field.name.rstrip("_")


def refuse(field: "attrs.Attribute[Any]", value: object, expected: str) -> NoReturn:
    """Say what is wrong as everybody here does."""
    raise BadValueError(f"{key_of(field)} = {value!r}: expected {expected}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(least: int = LEAST_WHOLE, most: int = MOST_WHOLE) -> Check:
    """A whole number, maybe from `least` on, maybe to `most`."""
    expected = "a whole number" + ("" if least == LEAST_WHOLE else f" of {least} or more")

    def check(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
        if not _is_whole(value) or value < least:
            refuse(field, value, expected)
        if value > most:
            refuse(field, value, f"at most {most}")

    return check


def between(least: float, most: float) -> Check:
    """A number from one to another."""

    def check(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
        number = _is_whole(value) or isinstance(value, float)
        if not number or not least <= value <= most:
            refuse(field, value, f"a number from {least:g} to {most:g}")

    return check


def not_negative(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """A number of zero or more."""
    number = _is_whole(value) or isinstance(value, float)
    if not number or not 0 <= value < math.inf:
        refuse(field, value, "a number, zero or more")


def flag(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """Yes or no."""
    if not isinstance(value, bool):
        refuse(field, value, "true or false")


def text(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """Any text."""
    if not isinstance(value, str):
        refuse(field, value, "a text")


def name(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """A text that says something."""
    if not isinstance(value, str) or not value:
        refuse(field, value, "a text that is not empty")


def function(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """Where a function is to be found."""
    parts = value.split(":") if isinstance(value, str) else []
    if len(parts) != 2 or not all(parts):
        refuse(field, value, "module:function")


def duration(_: object, field: "attrs.Attribute[Any]", value: Duration) -> None:
    """How long, or when."""
    _check_duration(key_of(field), value, negative=False)


def some_time(_: object, field: "attrs.Attribute[Any]", value: Duration) -> None:
    """How long, and longer than no time."""
    _check_duration(key_of(field), value, negative=False)
    if not to_us(value, key_of(field)):
        refuse(field, value, "more than zero")


def signed_duration(_: object, field: "attrs.Attribute[Any]", value: Duration) -> None:
    """How long, forwards or backwards."""
    _check_duration(key_of(field), value, negative=True)


def _check_duration(what: str, value: Duration, *, negative: bool) -> None:
    try:
        length_us = to_us(value, what, negative=negative)
    except OverflowError:
        length_us = _MOST_US
    if abs(length_us) >= _MOST_US:
        raise BadValueError(f"{what} = {value!r}: expected less than a hundred thousand years")


def maybe(check: Check) -> Check:
    """The same, or nothing."""

    def optional(instance: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if value is not None:
            check(instance, field, value)

    return optional


def choice(what: str, known: Collection[str]) -> Check:
    """One of a few names; `what` they are names of."""

    def check(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if not isinstance(value, str):
            refuse(field, value, "one of " + ", ".join(known))
        if value not in known:
            raise UnknownNameError(what, value, known)

    return check


def as_tuple(value: Any) -> Any:
    """A list as a tuple; anything else stays, for the validator to refuse."""
    return tuple(value) if isinstance(value, list) else value


def _is_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, str) and one for one in value)


def names(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """One text that says something, or more."""
    if not _is_names(value) or not value:
        refuse(field, _as_written(value), "a list of names, at least one")


def pair(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Two of them."""
    if not _is_names(value) or len(value) != 2:
        refuse(field, _as_written(value), "a list of two names")


def _as_written(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def rising(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Whole numbers from 0 on, in order."""
    good = isinstance(value, tuple) and all(map(_is_whole, value))
    if not good or list(value) != sorted(value) or (value and value[0] < 0):
        refuse(field, _as_written(value), "whole numbers from 0 on, in order")


def several(kind: type, least: int = 0) -> Check:
    """Parts of a scenario."""

    def check(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if not isinstance(value, tuple):
            refuse(field, value, f"a list of {kind.__name__}")
        if len(value) < least:
            refuse(field, [], "at least one")
        for index, part in enumerate(value):
            if not isinstance(part, kind):
                raise BadValueError(f"{field.name}[{index}] = {part!r}: expected a {kind.__name__}")

    return check


def one(kind: type) -> Check:
    """A part of a scenario."""

    def check(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if not isinstance(value, kind):
            refuse(field, value, f"a {kind.__name__}")

    return check


def able(expected: str, *methods: str) -> Check:
    """A model: whatever has these methods, such as a user's own."""

    def check(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        known = all(callable(getattr(value, method, None)) for method in methods)
        if isinstance(value, type) or not known:
            refuse(field, value, expected)

    return check


def as_settings(value: Any) -> Any:
    """A copy with tuples for lists, so that equal settings are equal however they were written."""
    if not isinstance(value, Mapping):
        return value
    return {key: as_tuple(one) for key, one in value.items()}


@attrs.frozen
class SettingsOf:
    """Settings that a class of model/settings.py knows."""

    cls: Any

    def __call__(self, _: object, field: "attrs.Attribute[Any]", value: object) -> None:
        """Refuse what it does not know, and what no file could say."""
        if not isinstance(value, Mapping):
            refuse(field, value, "a table of settings")
        for key, one in value.items():
            if not _is_plain(key, one):
                raise _odd(key, one)
        from_mapping(self.cls, value)

    def problems(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, WavetankError]]:
        """Find all that is wrong, by setting; what is wrong between some has no name."""
        plain = {key: one for key, one in settings.items() if _is_plain(key, one)}
        yield from ((str(key), _odd(key, settings[key])) for key in settings if key not in plain)
        try:
            from_mapping(self.cls, plain)
        except WavetankError as error:
            found = [(key, own) for key, own in self._alone(plain) if str(own) in str(error)]
            yield from found or [("", error)]

    def _alone(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, WavetankError]]:
        """What each is refused with if it comes without the others."""
        for key, value in settings.items():
            try:
                from_mapping(self.cls, {key: value})
            except WavetankError as error:
                yield key, error


def _odd(key: object, value: object) -> BadValueError:
    return BadValueError(f"{key} = {value!r}: expected a text, a number, true or false")


def _is_plain(key: object, value: object) -> bool:
    if isinstance(value, tuple):
        return isinstance(key, str) and all(isinstance(one, str) for one in value)
    if isinstance(value, float):
        return isinstance(key, str) and math.isfinite(value)
    return isinstance(key, str) and (value is None or isinstance(value, str | int))


CLUSTER: Final = SettingsOf(ClusterSettings)
PRODUCER: Final = SettingsOf(ProducerSettings)
CONSUMER: Final = SettingsOf(ConsumerSettings)
