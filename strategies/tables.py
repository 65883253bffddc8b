"""The tables of a scenario file: how each becomes an object, and each object a table again.

A model is a table with a `kind`, an action one with a `do`. What is most often wanted has a
shorthand: `arrivals = 100`. Every field of a class is judged by itself, by the class's own
validator, so that all that is wrong with a table is found at once.
"""

import csv
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias, get_args, get_origin

import attrs
import numpy as np
from cattrs import Converter
from cattrs.errors import AttributeValidationNote
from cattrs.gen import make_dict_structure_fn, override

from ..model.durations import Duration
from ..model.errors import BadValueError, UnknownNameError, WavetankError
from . import fields
from .actions import Action
from .arrivals import Arrivals, Bursts, Constant, Daily, Poisson, Trace, trace
from .scenario import ConstantLatency, Latency, LognormalLatency, Scenario, UniformLatency
from .timeline import ACTIONS
from .workload import (
    ConstantService,
    ExponentialService,
    FixedSize,
    KeyModel,
    LognormalService,
    LognormalSizes,
    NoKeys,
    OneKey,
    ServiceTime,
    SizeModel,
    UniformKeys,
    ZipfKeys,
)

Table: TypeAlias = dict[str, Any]
Hook: TypeAlias = Callable[[Any, Any], Any]


@attrs.frozen
class _TraceTable:
    """A recorded load: a file of it, or what was in the file."""

    path: str | None = attrs.field(default=None, validator=fields.maybe(fields.name))
    times_us: tuple[int, ...] = attrs.field(
        default=(), converter=fields.as_tuple, validator=fields.rising
    )
    totals: tuple[int, ...] = attrs.field(
        default=(), converter=fields.as_tuple, validator=fields.rising
    )
    factor: float = attrs.field(default=1.0, validator=fields.not_negative)

    def __attrs_post_init__(self) -> None:
        if self.path is None and len(self.totals) != len(self.times_us) + 1:
            raise BadValueError("expected a path, or times_us and one more of totals")

    def trace(self) -> Trace:
        if self.path is None:
            times_us, totals = (np.array(c, np.int64) for c in (self.times_us, self.totals))
            return Trace(times_us, totals, self.factor)
        try:
            with np.errstate(invalid="raise"):
                return attrs.evolve(trace(self.path), factor=self.factor)
        except FileNotFoundError:
            why = "there is no such file"
        except OSError as error:
            why = f"it cannot be read: {error.strerror}"
        except (FloatingPointError, ValueError, csv.Error) as error:
            why = str(error)
        raise ExceptionGroup("trace", [_at("path", BadValueError(why))])


@attrs.frozen
class _Family:
    """The models that one key of a file can have."""

    kinds: Mapping[str, type]
    expected: str
    shorthand: tuple[type, ...]
    """What may stand for a table …"""
    stands_for: tuple[str, str]
    """… of this kind, with the value under this key."""

    def expanded(self, value: object) -> object:
        """The table that a shorthand stands for; anything else as it is."""
        if isinstance(value, self.shorthand) and not isinstance(value, bool):
            kind, key = self.stands_for
            return {"kind": kind, key: value}
        return value


_NUMBER: Final = (int, float)
_DURATION: Final = (int, float, str)

ARRIVALS: Final = _Family(
    {
        "constant": Constant,
        "poisson": Poisson,
        "bursts": Bursts,
        "daily": Daily,
        "trace": _TraceTable,
    },
    "records per second",
    _NUMBER,
    ("poisson", "rate"),
)
KEYS: Final = _Family(
    {"none": NoKeys, "one": OneKey, "uniform": UniformKeys, "zipf": ZipfKeys},
    "a number of keys",
    _NUMBER,
    ("uniform", "n"),
)
SIZES: Final = _Family(
    {"fixed": FixedSize, "lognormal": LognormalSizes},
    "bytes",
    _NUMBER,
    ("fixed", "bytes"),
)
SERVICES: Final = _Family(
    {
        "constant": ConstantService,
        "exponential": ExponentialService,
        "lognormal": LognormalService,
    },
    "the time that a record takes",
    _DURATION,
    ("constant", "per_record"),
)
LATENCIES: Final = _Family(
    {"constant": ConstantLatency, "uniform": UniformLatency, "lognormal": LognormalLatency},
    "the time that a message takes",
    _DURATION,
    ("constant", "delay"),
)

FAMILIES: Final[Mapping[str, _Family]] = {
    "arrivals": ARRIVALS,
    "keys": KEYS,
    "sizes": SIZES,
    "service": SERVICES,
    "latency": LATENCIES,
}
"""By the key that has them in a file."""

_BY_TYPE: Final[tuple[tuple[Any, _Family], ...]] = (
    (Arrivals, ARRIVALS),
    (KeyModel, KEYS),
    (SizeModel, SIZES),
    (ServiceTime, SERVICES),
    (Latency, LATENCIES),
)

_UNVALIDATED: Final[Mapping[Any, fields.Check]] = {Duration: fields.duration, int: fields.whole()}
"""For fields of other modules, whose classes look at them only once they are made."""


# Tables into objects


def structure(data: object) -> Scenario:
    """The scenario that plain data describes; raises what `explaining.explain` explains."""
    return _converter().structure(data, Scenario)


@cache
def _converter() -> Converter:
    """Made once, and when it is needed, for cattrs writes a function for each class."""
    converter = Converter(detailed_validation=True, forbid_extra_keys=True)
    converter.register_structure_hook_factory(attrs.has, lambda cls: _table_hook(cls, converter))
    converter.register_structure_hook_factory(_is_tables, lambda t: _tables_hook(t, converter))
    converter.register_structure_hook_func(lambda t: t is Action, _action_hook(converter))
    for model, family in _BY_TYPE:
        hook = _model_hook(family, converter)
        converter.register_structure_hook_func(_same(model), hook)
        converter.register_structure_hook_func(_same(model | None), _maybe(hook))
    return converter


def _same(wanted: object) -> Callable[[object], bool]:
    return lambda type: type == wanted


def _is_tables(type: Any) -> bool:
    return get_origin(type) is tuple and attrs.has(get_args(type)[0])


def _table_hook(cls: type, converter: Converter) -> Hook:
    keys: dict[str, Any] = {
        field.name: override(rename=fields.key_of(field), struct_hook=_field_hook(field, converter))
        for field in attrs.fields(cls)
        if field.init
    }
    make: Hook = make_dict_structure_fn(cls, converter, **keys)

    def hook(value: Any, _: object) -> Any:
        if not isinstance(value, dict):
            raise BadValueError("expected a table")
        return make(value, cls)

    return hook


def _tables_hook(type: Any, converter: Converter) -> Hook:
    parts: Any = list[get_args(type)[0]]  # type: ignore[misc]

    def hook(value: Any, _: object) -> Any:
        if not isinstance(value, list | tuple):
            raise BadValueError("expected a list of tables")
        return tuple(converter.structure(value, parts))

    return hook


def _action_hook(converter: Converter) -> Hook:
    def hook(value: Any, _: object) -> Any:
        rest, cls = _chosen(value, "do", "action", ACTIONS)
        return converter.structure(rest, cls)

    return hook


def _model_hook(family: _Family, converter: Converter) -> Hook:
    def hook(value: Any, _: object) -> Any:
        table = family.expanded(value)
        if not isinstance(table, dict):
            raise BadValueError(f"expected {family.expected}, or a table with a kind")
        rest, cls = _chosen(table, "kind", "kind", family.kinds)
        made: Any = converter.structure(rest, cls)
        return made.trace() if isinstance(made, _TraceTable) else made

    return hook


def _maybe(hook: Hook) -> Hook:
    return lambda value, type: None if value is None else hook(value, type)


def _chosen(value: Any, key: str, what: str, known: Mapping[str, type]) -> tuple[Table, type]:
    """A table without the key that says what it is, and the class that it says."""
    if not isinstance(value, dict):
        raise BadValueError("expected a table")
    rest = dict(value)
    if key not in rest:
        raise BadValueError(f"{key} is missing: expected one of {', '.join(known)}")
    name = rest.pop(key)
    if not isinstance(name, str) or name not in known:
        raise ExceptionGroup(what, [_at(key, UnknownNameError(what, name, known))])
    return rest, known[name]


def _at(key: str, error: WavetankError) -> WavetankError:
    """Say in the way of cattrs which key of a file an error is about, if it is about one."""
    if key:
        error.add_note(AttributeValidationNote("", key, None))
    return error


def _field_hook(field: "attrs.Attribute[Any]", converter: Converter) -> Hook:
    """Read a field, and let its own validator judge it."""
    type: Any = field.type
    check = field.validator or _UNVALIDATED[type]
    convert: Any = field.converter
    nested = attrs.has(type) or _is_tables(type) or _is_model(type)

    def hook(value: Any, _: object) -> Any:
        if nested:
            value = converter.structure(value, type)
        elif convert is not None:
            value = convert(value)
        if isinstance(check, fields.SettingsOf) and isinstance(value, Mapping):
            found = [_at(key, error) for key, error in check.problems(value)]
            if found:
                raise ExceptionGroup("settings", found)
        check(None, field, value)
        return value

    return hook


def _is_model(type: Any) -> bool:
    return any(type in (model, model | None) for model, _ in _BY_TYPE)


# Objects into tables


def unstructure(part: object) -> Any:
    """The plain data that describes a scenario, or a part of one."""
    if isinstance(part, list | tuple):
        return [unstructure(one) for one in part]
    if not attrs.has(type(part)):
        return dict(part) if isinstance(part, Mapping) else part
    label = {"do": part.do} if isinstance(part, Action) else {}
    return label | _plain_fields(part)


def _plain_fields(part: Any) -> Table:
    plain = {}
    for field in attrs.fields(type(part)):
        key, value = fields.key_of(field), getattr(part, field.name, None)
        if _is_model(field.type):
            plain[key] = None if value is None else _plain_model(key, value)
        elif field.init:
            plain[key] = unstructure(value)
    return plain


def _plain_model(key: str, model: Any) -> Table:
    """Only what a file can name: a model of the user's own could not be read back."""
    if isinstance(model, Trace):
        times_us, totals = (tuple(map(int, column)) for column in (model.times_us, model.totals))
        model = _TraceTable(None, times_us, totals, model.factor)
    kinds = FAMILIES[key].kinds
    for kind, cls in kinds.items():
        if type(model) is cls:
            return {"kind": kind} | _plain_fields(model)
    raise BadValueError(f"{key} = {model!r}: expected one of {', '.join(kinds)} to write it down")
