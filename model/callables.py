"""Checks of the functions that users pass in.

An async function or a generator does nothing when it is called: it returns an object that somebody
has to await or iterate. Where nobody does, its work would be skipped without a word.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from .errors import BadValueError


def require_plain(function: object, what: str) -> None:
    """Raise `BadValueError` if `function` is async or a generator; `what` names it."""
    if _is_any(function, inspect.iscoroutinefunction):
        raise BadValueError(f"{what} = {name_of(function)}: expected a plain function, not async")
    require_no_generator(function, what)


def require_no_generator(function: object, what: str) -> None:
    """Raise `BadValueError` if a call of `function` would only make a generator."""
    for test in (inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        if _is_any(function, test):
            raise BadValueError(
                f"{what} = {name_of(function)}: expected a function without yield: a generator "
                "does nothing when it is called"
            )


def require_no_iterator(result: object, function: object) -> None:
    """Raise `BadValueError` if a function returned work that nobody has done yet."""
    if isinstance(result, Iterator) or inspect.isasyncgen(result):
        raise BadValueError(
            f"{name_of(function)} returned a {type(result).__name__}, which does nothing until it "
            "is iterated: expected the work to be done"
        )


def name_of(function: object) -> str:
    """The name of a function, for messages."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _is_any(function: object, test: Callable[[Any], bool]) -> bool:
    """Whether a test holds for a function, also inside a partial, or for an object's call."""
    while isinstance(function, partial):
        function = function.func
    return test(function) or test(inspect.getattr_static(type(function), "__call__", None))
