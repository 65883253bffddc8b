"""What a variant costs: "consumers + 3 * brokers", worked out without running anybody's code.

Known are the sizes of a scenario (`consumers`, `partitions`, `brokers`: all of them together) and
the varied settings, by their paths. There are numbers, + - * / // % **, min, max and brackets.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..model.errors import BadValueError, UnknownNameError

_LARGEST_POWER: Final = 100
_LONGEST: Final = 1_000


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


def cost(expression: str, known: Mapping[str, Any]) -> float:
    """The value of an expression over what is known, by name or by path."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        if len(expression) > _LONGEST:
            raise BadValueError(f"expected at most {_LONGEST:,} signs")
        found = _value(tree, known)
        if not math.isfinite(found):
            raise BadValueError("expected a number that is finite")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error if isinstance(error, BadValueError) else "expected a sum such as consumers + 3"
        raise BadValueError(f"cost = {expression!r}: {why}") from None
    except ArithmeticError as error:
        raise BadValueError(f"cost = {expression!r}: {error}") from None
    except UnknownNameError as error:
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
