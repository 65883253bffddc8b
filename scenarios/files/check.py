"""Validators for the fields of a scenario; they raise "name = value: expected …".

`attrs.validators` has similar ones, but they accept True as a whole number and their error texts
name Python classes.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from ...model.durations import SECOND_US, Duration, to_us
from ...model.errors import BadValueError, UnknownNameError, WavetankError
from ...model.settings import ClusterSettings, ConsumerSettings, ProducerSettings, from_mapping

Check: TypeAlias = Callable[[Any, "attrs.Attribute[Any]", Any], None]

MOST_NODES: Final = 10_000
"""The largest number of nodes of each kind: a typing error must not exhaust the memory."""
MOST_PARTITIONS: Final = 100_000
LEAST_WHOLE: Final = -(2**63)
MOST_WHOLE: Final = 2**63 - 1
"""TOML integers have 64 bits."""
_MOST_US: Final = 2**62


def key_of(field: "attrs.Attribute[Any]") -> str:
    """The key of a field in a file: `for_` is `for`, which is a keyword in Python."""
    return field.name.rstrip("_")


def refuse(field: "attrs.Attribute[Any]", value: object, expected: str) -> NoReturn:
    """Raise the error for a value."""
    raise BadValueError(f"{key_of(field)} = {value!r}: expected {expected}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(least: int = LEAST_WHOLE, most: int = MOST_WHOLE) -> Check:
    """A whole number from `least` to `most`."""
    expected = "a whole number" + ("" if least == LEAST_WHOLE else f" of {least} or more")

    def check(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
        if not _is_whole(value) or value < least:
            refuse(field, value, expected)
        if value > most:
            refuse(field, value, f"at most {most}")

    return check


def number_in(known: tuple[int, ...]) -> Check:
    """Accept one of a few numbers."""

    def check(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if not _is_whole(value) or value not in known:
            *most, last = map(str, known)
            refuse(field, value, f"{', '.join(most)} or {last}")

    return check


def between(least: float, most: float) -> Check:
    """A number from `least` to `most`."""

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
    """True or false."""
    if not isinstance(value, bool):
        refuse(field, value, "true or false")


def text(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """A string."""
    if not isinstance(value, str):
        refuse(field, value, "a string")


def name(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """A non-empty string."""
    if not isinstance(value, str) or not value:
        refuse(field, value, "a non-empty string")


def function(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """A function, as "module:function"."""
    parts = value.split(":") if isinstance(value, str) else []
    if len(parts) != 2 or not all(parts):
        refuse(field, value, "module:function")


def duration(_: object, field: "attrs.Attribute[Any]", value: Duration) -> None:
    """A duration or a time, zero or more."""
    _check_duration(key_of(field), value, negative=False)


def some_time(_: object, field: "attrs.Attribute[Any]", value: Duration) -> None:
    """A duration of more than zero."""
    _check_duration(key_of(field), value, negative=False)
    if not to_us(value, key_of(field)):
        refuse(field, value, "more than zero")


def whole_seconds(_: object, field: "attrs.Attribute[Any]", value: Duration) -> None:
    """A duration of whole seconds, zero or more."""
    _check_duration(key_of(field), value, negative=False)
    if to_us(value, key_of(field)) % SECOND_US:
        refuse(field, value, "whole seconds")


def signed_duration(_: object, field: "attrs.Attribute[Any]", value: Duration) -> None:
    """A duration that may be negative."""
    _check_duration(key_of(field), value, negative=True)


def _check_duration(what: str, value: Duration, *, negative: bool) -> None:
    try:
        length_us = to_us(value, what, negative=negative)
    except OverflowError:
        length_us = _MOST_US
    if abs(length_us) >= _MOST_US:
        raise BadValueError(f"{what} = {value!r}: expected less than a hundred thousand years")


def maybe(check: Check) -> Check:
    """A value that may be `None`."""

    def optional(instance: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if value is not None:
            check(instance, field, value)

    return optional


def choice(what: str, known: Collection[str]) -> Check:
    """One of the known names; `what` describes them in the error text."""

    def check(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if not isinstance(value, str):
            refuse(field, value, "one of " + ", ".join(known))
        if value not in known:
            raise UnknownNameError(what, value, known)

    return check


def as_tuple(value: Any) -> Any:
    """Convert a list to a tuple; other values are left for the validator to reject."""
    return tuple(value) if isinstance(value, list) else value


def _is_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, str) and one for one in value)


def names(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """One or more non-empty strings."""
    if not _is_names(value) or not value:
        refuse(field, _as_written(value), "a list of names, at least one")


def pair(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Two non-empty strings."""
    if not _is_names(value) or len(value) != 2:
        refuse(field, _as_written(value), "a list of two names")


def _as_written(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def rising(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Whole numbers of 0 or more, in ascending order."""
    good = isinstance(value, tuple) and all(map(_is_whole, value))
    if not good or list(value) != sorted(value) or (value and value[0] < 0):
        refuse(field, _as_written(value), "whole numbers of 0 or more, in ascending order")


def several(kind: type, least: int = 0) -> Check:
    """A list of parts of a scenario."""

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
    """A model: any object with these methods, such as a user's own class."""

    def check(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        known = all(callable(getattr(value, method, None)) for method in methods)
        if isinstance(value, type) or not known:
            refuse(field, value, expected)

    return check


def as_settings(value: Any) -> Any:
    """A copy with tuples instead of lists, so that equal settings compare equal."""
    if not isinstance(value, Mapping):
        return value
    return {key: as_tuple(one) for key, one in value.items()}


@attrs.frozen
class SettingsOf:
    """Settings of a class of model/settings.py."""

    cls: Any

    def __call__(self, _: object, field: "attrs.Attribute[Any]", value: object) -> None:
        """Reject unknown settings, and values that TOML cannot express."""
        if not isinstance(value, Mapping):
            refuse(field, value, "a table of settings")
        for key, one in value.items():
            if not _is_plain(key, one):
                raise _not_plain(key, one)
        from_mapping(self.cls, value)

    def problems(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, WavetankError]]:
        """Find all problems, by setting; a conflict between settings has an empty name."""
        plain = {key: one for key, one in settings.items() if _is_plain(key, one)}
        yield from (
            (str(key), _not_plain(key, settings[key])) for key in settings if key not in plain
        )
        try:
            from_mapping(self.cls, plain)
        except WavetankError as error:
            found = [(key, own) for key, own in self._alone(plain) if str(own) in str(error)]
            yield from found or [("", error)]

    def _alone(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, WavetankError]]:
        """The problems of each setting without the others."""
        for key, value in settings.items():
            try:
                from_mapping(self.cls, {key: value})
            except WavetankError as error:
                yield key, error


def _not_plain(key: object, value: object) -> BadValueError:
    return BadValueError(f"{key} = {value!r}: expected a string, a number, true or false")


def _is_plain(key: object, value: object) -> bool:
    if isinstance(value, tuple):
        return isinstance(key, str) and all(isinstance(one, str) for one in value)
    if isinstance(value, float):
        return isinstance(key, str) and math.isfinite(value)
    return isinstance(key, str) and (value is None or isinstance(value, str | int))


CLUSTER: Final = SettingsOf(ClusterSettings)
PRODUCER: Final = SettingsOf(ProducerSettings)
CONSUMER: Final = SettingsOf(ConsumerSettings)
