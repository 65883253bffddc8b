"""The cost of a variant, such as "consumers + 3 * brokers", and the order by cost (see spec.py).

An expression is parsed and computed here, never evaluated as Python code. It can use numbers,
+ - * / // % **, min, max, parentheses, the totals `consumers`, `partitions` and `brokers` of the
variant, and the varied settings by their paths.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...model.errors import BadValueError, UnknownNameError
from .grid import Variant

DEFAULT_ORDER: Final = "consumers, then partitions, then brokers"
_LARGEST_POWER: Final = 100
_LONGEST: Final = 1_000


def by_cost(variants: Sequence[Variant], expression: str | None = None) -> list[Variant]:
    """Order variants by cost, cheapest first; at equal cost they keep the grid's order."""
    costs = {variant.number: cost_of(variant, expression) for variant in variants}
    return sorted(variants, key=lambda variant: (costs[variant.number], variant.number))


def cost_of(variant: Variant, expression: str | None = None) -> tuple[float, ...]:
    """The cost of a variant: an expression's value, or by default the three totals in turn."""
    totals = variant.totals()
    if expression is None:
        return tuple(totals.values())
    return (cost(expression, totals | dict(variant.settings)),)


def cost(expression: str, known: Mapping[str, Any]) -> float:
    """The value of an expression over known names and paths."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        if len(expression) > _LONGEST:
            raise BadValueError(f"expected at most {_LONGEST:,} characters")
        found = _value(tree, known)
        if not math.isfinite(found):
            raise BadValueError("expected a finite number")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        expected = "expected an expression such as consumers + 3 * brokers"
        why = error if isinstance(error, BadValueError) else expected
        raise BadValueError(f"cost = {expression!r}: {why}") from None
    except (ArithmeticError, UnknownNameError) as error:
        raise BadValueError(f"cost = {expression!r}: {error}") from None
    return found


def _value(node: ast.expr, known: Mapping[str, Any]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left, sign, right) if type(sign) in _OPERATIONS:
            return _OPERATIONS[type(sign)](_value(left, known), _value(right, known))
        case ast.UnaryOp(ast.USub(), inner):
            return -_value(inner, known)
        case ast.Call(ast.Name(name), [_, *_] as inner, []) if name in _FUNCTIONS:
            return _FUNCTIONS[name]([_value(each, known) for each in inner])
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return _known(ast.unparse(node), known)
    raise BadValueError(f"{ast.unparse(node)}: expected numbers, names and + - * / ** min max")


def _known(name: str, known: Mapping[str, Any]) -> float:
    if name not in known:
        raise UnknownNameError("setting", name, known)
    value = known[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValueError(f"{name} = {value!r}: expected a number")
    return value


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > _LARGEST_POWER:
        raise BadValueError(f"exponent {exponent:g}: expected at most {_LARGEST_POWER}")
    return math.pow(base, exponent)


_OPERATIONS: Final[Mapping[type, Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., float]]] = {"min": min, "max": max}
