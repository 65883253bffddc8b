"""An extension of griffe: gives attrs classes the signature that attrs makes for them.

griffe reads source text, and `attrs` writes `__init__` only when a class is imported. Modules that
nobody has imported so far are left out, because some of them would load Spark.
"""

import inspect
import sys
from typing import Any

import attrs
import griffe


class AttrsSignatures(griffe.Extension):
    """Adds the missing `__init__` of attrs classes."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called for each class that griffe has read."""
        made = getattr(sys.modules.get(cls.module.path), cls.name, None)
        if made is not None and attrs.has(made) and "__init__" not in cls.members:
            fields = [field for field in attrs.fields(made) if field.init]
            parameters = griffe.Parameters(*map(_parameter, fields))
            cls.set_member("__init__", griffe.Function("__init__", parameters=parameters))


def _parameter(field: "attrs.Attribute[Any]") -> griffe.Parameter:
    kinds = griffe.ParameterKind
    default: Any = field.default
    if default is attrs.NOTHING:
        text = None
    else:
        text = "..." if isinstance(default, attrs.Factory) else repr(default)  # type: ignore[arg-type]
    return griffe.Parameter(
        field.alias,
        annotation=inspect.formatannotation(field.type),
        kind=kinds.keyword_only if field.kw_only else kinds.positional_or_keyword,
        default=text,
    )
