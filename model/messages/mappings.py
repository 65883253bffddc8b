"""Mappings in messages."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def read_only(mapping: Mapping[Any, Any]) -> MappingProxyType[Any, Any]:
    """Return a read-only copy, which neither sender nor receiver can change.

    Not generic in its types, because mypy does not understand generic attrs converters.
    """
    return MappingProxyType(dict(mapping))
