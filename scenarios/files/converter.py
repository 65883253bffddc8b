"""Converts the tables of a scenario file to objects and back.

A model is a table with a `kind`, an action a table with a `do`. A common kind has a shorthand:
`arrivals = 100`. Each field is validated on its own, by its validator in the class, so that all
problems of a table are found at once.
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

from ...model.disk import DiskModel
from ...model.durations import Duration
from ...model.errors import BadValueError, UnknownNameError, WavetankError
from ...strategies.arrivals import Arrivals, Bursts, Constant, Daily, Poisson, Trace, trace
from ...strategies.workload import (
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
from ..actions import ACTIONS, Action
from ..scenario import ConstantLatency, Latency, LognormalLatency, Scenario, UniformLatency
from . import check

Table: TypeAlias = dict[str, Any]
Hook: TypeAlias = Callable[[Any, Any], Any]


@attrs.frozen
class _TraceTable:
    """A recorded load: the path of its file, or the file's content."""

    path: str | None = attrs.field(default=None, validator=check.maybe(check.name))
    """A text file with a time in seconds, or a time and a count, in each line."""
    times_us: tuple[int, ...] = attrs.field(
        default=(), converter=check.as_tuple, validator=check.rising
    )
    """Instead of a path: the times in µs, in order."""
    totals: tuple[int, ...] = attrs.field(
        default=(), converter=check.as_tuple, validator=check.rising
    )
    """Instead of a path: the number of records before each time, and at the end."""
    factor: float = attrs.field(default=1.0, validator=check.not_negative)
    """The factor by which the load is multiplied."""

    def __attrs_post_init__(self) -> None:
        if self.path is None and len(self.totals) != len(self.times_us) + 1:
            raise BadValueError("expected a path, or times_us and totals, which has one value more")

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
            why = f"cannot read it: {error.strerror}"
        except (FloatingPointError, ValueError, csv.Error) as error:
            why = str(error)
        raise ExceptionGroup("trace", [_at("path", BadValueError(why))])


@attrs.frozen
class _Family:
    """The models that a key of a file accepts."""

    kinds: Mapping[str, type]
    expected: str
    shorthand: tuple[type, ...]
    """The types of values that can replace a table."""
    stands_for: tuple[str, str]
    """The table that such a value stands for: its kind, and the key that gets the value."""

    def expanded(self, value: object) -> object:
        """The table that a shorthand stands for; any other value unchanged."""
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
    "a size in bytes",
    _NUMBER,
    ("fixed", "bytes"),
)
SERVICES: Final = _Family(
    {
        "constant": ConstantService,
        "exponential": ExponentialService,
        "lognormal": LognormalService,
    },
    "the processing time of a record",
    _DURATION,
    ("constant", "per_record"),
)
LATENCIES: Final = _Family(
    {"constant": ConstantLatency, "uniform": UniformLatency, "lognormal": LognormalLatency},
    "the latency of a message",
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
"""By key in a file."""

_BY_TYPE: Final[tuple[tuple[Any, _Family], ...]] = (
    (Arrivals, ARRIVALS),
    (KeyModel, KEYS),
    (SizeModel, SIZES),
    (ServiceTime, SERVICES),
    (Latency, LATENCIES),
)

_UNVALIDATED: Final[Mapping[Any, check.Check]] = {
    Duration: check.duration,
    int: check.whole(),
}
"""For fields of other modules, which have no validators."""


# Tables into objects


def structure(data: object) -> Scenario:
    """The scenario that plain data describes; `problems.explain` explains the errors it raises."""
    return _converter().structure(data, Scenario)


@cache
def _converter() -> Converter:
    """Built once, on first use, because cattrs generates a function for each class."""
    converter = Converter(detailed_validation=True, forbid_extra_keys=True)
    converter.register_structure_hook_factory(attrs.has, lambda cls: _table_hook(cls, converter))
    converter.register_structure_hook_factory(_is_tables, lambda t: _tables_hook(t, converter))
    converter.register_structure_hook_func(
        _same(DiskModel | None), _maybe(_table_hook(DiskModel, converter))
    )
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
        field.name: override(rename=check.key_of(field), struct_hook=_field_hook(field, converter))
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
    """The table without its `kind` or `do`, and the class that this names."""
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
    """Note the key that an error is about, if any, as cattrs does."""
    if key:
        error.add_note(AttributeValidationNote("", key, None))
    return error


def _field_hook(field: "attrs.Attribute[Any]", converter: Converter) -> Hook:
    """Convert a field and validate it."""
    type: Any = field.type
    validate = field.validator or _UNVALIDATED[type]
    convert: Any = field.converter
    nested = attrs.has(type) or _is_tables(type) or _is_model(type) or type == DiskModel | None

    def hook(value: Any, _: object) -> Any:
        if nested:
            value = converter.structure(value, type)
        elif convert is not None:
            value = convert(value)
        if isinstance(validate, check.SettingsOf) and isinstance(value, Mapping):
            found = [_at(key, error) for key, error in validate.problems(value)]
            if found:
                raise ExceptionGroup("settings", found)
        validate(None, field, value)
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
        key, value = check.key_of(field), getattr(part, field.name, None)
        if _is_model(field.type):
            plain[key] = None if value is None else _plain_model(key, value)
        elif field.init:
            plain[key] = unstructure(value)
    return plain


def _plain_model(key: str, model: Any) -> Table:
    """The table of a model; a user's own model has no kind and could not be read back."""
    if isinstance(model, Trace):
        times_us, totals = (tuple(map(int, column)) for column in (model.times_us, model.totals))
        model = _TraceTable(None, times_us, totals, model.factor)
    kinds = FAMILIES[key].kinds
    for kind, cls in kinds.items():
        if type(model) is cls:
            return {"kind": kind} | _plain_fields(model)
    raise BadValueError(f"{key} = {model!r}: expected one of {', '.join(kinds)}")
