"""The type of addresses in messages: this package knows no actors, so it is `Any`."""

from typing import Any, TypeAlias

Address: TypeAlias = Any
