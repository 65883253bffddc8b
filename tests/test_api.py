"""The public API: what `import wavetank as wt` offers, and that all of it is documented."""

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import wavetank as wt

NAMESPACES = (wt.actions, wt.load, wt.network, wt.errors)


def public_names() -> Iterator[tuple[str, Any]]:
    for module in (wt, *NAMESPACES):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def test_the_top_level_stays_small_and_families_are_in_namespaces() -> None:
    assert len(wt.__all__) <= 41
    modules = {name for name in wt.__all__ if isinstance(getattr(wt, name), ModuleType)}
    assert modules == {"actions", "errors", "load", "network"}
    names = [name for module in NAMESPACES for name in module.__all__]
    assert not set(names) & set(wt.__all__), "a name is in one place"


PUBLIC = dict(public_names())


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_class_and_method_has_a_docstring(name: str) -> None:
    thing = PUBLIC[name]
    if not inspect.isclass(thing) and not callable(thing):
        return  # a constant
    assert inspect.getdoc(thing), name
    if not inspect.isclass(thing) or not thing.__module__.startswith("wavetank."):
        return
    for base in thing.__mro__:
        if not base.__module__.startswith("wavetank."):
            continue
        for member, value in vars(base).items():
            plain = getattr(value, "__func__", getattr(value, "fget", value))
            if not member.startswith("_") and inspect.isfunction(plain):
                assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"
