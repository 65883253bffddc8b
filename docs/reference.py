"""A hook of mkdocs that writes the reference pages from the code, so that they are never outdated.

Pages under reference/ are tables made from the classes themselves, with the docstrings of their
fields. Pages under api/ list the names that the package exports; mkdocstrings adds the docstrings.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs
import click
import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from wavetank.cli.main import main as cli
from wavetank.cli.shell import shell as _shell  # noqa: F401  # it fills the table of commands
from wavetank.cli.shell.command_table import COMMANDS
from wavetank.model import settings
from wavetank.model.durations import Duration
from wavetank.model.events.kinds import KINDS, Category, Kind
from wavetank.model.events.schema import SCHEMA, SCHEMA_VERSION, Event
from wavetank.model.summary.run_metrics import RUN_METRICS
from wavetank.scenarios.actions import ACTIONS, Action
from wavetank.scenarios.files.check import key_of
from wavetank.scenarios.files.converter import FAMILIES
from wavetank.scenarios.scenario import Objective, Scenario

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = "wavetank"


# What mkdocs calls


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the API into the menu."""
    assert config.nav is not None
    for entry in config.nav:
        if isinstance(entry, dict) and "API" in entry:
            entry["API"] = list(api_pages())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of the docs folder."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    pages = {**reference_pages(), **api_pages(), "changelog.md": changelog}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def reference_pages() -> dict[str, str]:
    """The text of each page that is made from a table in the code, by its path."""
    return {
        "reference/commands.md": commands(),
        "reference/shell.md": shell_commands(),
        "reference/scenarios.md": scenario_keys(),
        "reference/objectives.md": objectives(),
        "reference/settings.md": all_settings(),
        "reference/events.md": events(),
        "reference/figures.md": figures(),
    }


# The API


@cache
def api_pages() -> dict[str, str]:
    """A page for the package, and one for each module that it exports or that has an `__all__`.

    The source is parsed, not imported, because importing the analytics loads Spark. `make links`
    makes the folder in which the package has its own name.
    """
    package = griffe.load(PACKAGE, search_paths=[ROOT / ".lint"])
    names = _exported(package)
    spaces = [name for name in names if _is_module(package, name)]
    spaces += [name for name, module in package.modules.items() if module.exports is not None]
    plain = [name for name in names if name not in spaces]
    pages = {"api/index.md": _api_page(PACKAGE, package, plain)}
    for name in dict.fromkeys(spaces):
        module = package[name]
        pages[f"api/{name}.md"] = _api_page(f"{PACKAGE}.{name}", module, _exported(module))
    return pages


def _exported(module: Any) -> list[str]:
    if module.exports is not None:
        return sorted(str(name) for name in module.exports)
    return sorted(name for name, member in module.members.items() if member.is_public)


def _is_module(package: Any, name: str) -> bool:
    return _is_ours(package, name) and package[name].is_module


def _is_ours(module: Any, name: str) -> bool:
    member = module[name]
    return not member.is_alias or member.target_path.startswith(f"{PACKAGE}.")


def _api_page(path: str, module: Any, names: Sequence[str]) -> str:
    parts = [f"# {path}", module.docstring.value if module.docstring else ""]
    parts += [f"::: {path}.{name}" for name in names if _is_ours(module, name)]
    for name in names:
        if not _is_ours(module, name):
            parts.append(f"## {name}\n\nThis is `{module[name].target_path}`.")
    return "\n\n".join(parts) + "\n"


# Scenarios


def scenario_keys() -> str:
    """All keys of a scenario file: tables, actions and models."""
    parts = [
        "# Scenario keys",
        "All keys of a scenario file. A *duration* is a number of seconds, or text with units such "
        'as `"250ms"`, `"45s"`, `"2m 30s"` or `"2h"`. A *model* is a table with a `kind`, or a '
        "shorthand.",
        "## Top level\n\n" + _about(Scenario) + _keys_table(Scenario),
    ]
    for field in attrs.fields(Scenario):
        part, several = _part_of(field.type)
        name = key_of(field)
        if part is Action:
            parts.append(_timeline(name))
        elif part is not None:
            title = f"[[{name}]]" if several else f"[{name}]"
            parts.append(f"## {title} {{ #{name} }}\n\n{_about(part)}{_keys_table(part)}")
            for inner in attrs.fields(part):
                table, _ = _part_of(inner.type)
                if table is not None:
                    title = f"[{name}.{inner.name}] {{ #{inner.name} }}"
                    parts.append(f"### {title}\n\n{_about(table)}{_keys_table(table)}")
    for name, family in FAMILIES.items():
        kind, key = family.stands_for
        parts.append(
            f"## Models: {name} {{ #model-{name} }}\n\n"
            f"Shorthand: a single value, {family.expected}; "
            f'it stands for `{{ kind = "{kind}", {key} = … }}`.'
        )
        for kind, cls in family.kinds.items():
            parts.append(f'### {name}: kind = "{kind}"\n\n{_about(cls)}{_keys_table(cls)}')
    return "\n\n".join(parts) + "\n"


def _timeline(name: str) -> str:
    parts = [f"## [[{name}]] {{ #{name} }}\n\nEach entry is an action; `do` says which."]
    parts += [f'### do = "{do}"\n\n{_about(cls)}{_keys_table(cls)}' for do, cls in ACTIONS.items()]
    return "\n\n".join(parts)


def _part_of(annotation: Any) -> tuple[type | None, bool]:
    """The class behind a table or a list of tables, and whether it is a list."""
    if get_origin(annotation) in (Union, UnionType):
        chosen = [one for one in get_args(annotation) if one is not NoneType]
        annotation = chosen[0] if len(chosen) == 1 else None
    if get_origin(annotation) is tuple and attrs.has(get_args(annotation)[0]):
        return get_args(annotation)[0], True
    return (annotation if attrs.has(annotation) else None), False


def _keys_table(cls: type) -> str:
    documented = field_docs(cls)
    rows = [
        (f"`{key_of(field)}`", _type(field), _default(field), documented.get(field.name, ""))
        for field in attrs.fields(cls)
        if field.init
    ]
    return _table(("key", "type", "default", "meaning"), rows) if rows else "It has no keys."


def _type(field: "attrs.Attribute[Any]") -> str:
    if field.name in FAMILIES:
        return f"[model](#model-{field.name})"
    part, several = _part_of(field.type)
    if part is not None:
        return f"[{'tables' if several else 'table'}](#{field.name})"
    return _type_name(field.type)


_TYPES: Final[Mapping[Any, str]] = {
    Duration: "duration",
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
}


def _type_name(annotation: Any) -> str:
    if annotation in _TYPES:
        return _TYPES[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in inner)
    if origin in (Union, UnionType):
        chosen = tuple(one for one in inner if one is not NoneType)
        return _type_name(Union[chosen])  # noqa: UP007  # the members are only known here
    if origin is tuple:
        texts = dict.fromkeys(_type_name(one) for one in inner if one is not Ellipsis)
        return "list of " + " and ".join(texts)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "table"
    return f"`{getattr(annotation, '__name__', annotation)}`"


def _default(field: "attrs.Attribute[Any]") -> str:
    default: Any = field.default
    if default is attrs.NOTHING:
        return "required"
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        if default.takes_self:
            return "depends"
        default = default.factory()
    return "none" if default is None else f"`{_toml(default)}`"


def _toml(value: Any) -> str:
    """A value as a scenario file has it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if not attrs.has(type(value)):
        return str(value)
    fields = {key_of(field): getattr(value, field.name) for field in attrs.fields(type(value))}
    for family in FAMILIES.values():
        for kind, cls in family.kinds.items():
            if type(value) is cls:
                return _toml({"kind": kind} | fields)
    return "all defaults"


def objectives() -> str:
    """What a scenario can demand."""
    return (
        "# Objectives\n\n"
        "An entry of `[[objectives]]` in a scenario file has one or more of these keys. A run "
        "meets an objective if every group that `group` names stays within every limit.\n\n"
        f"{_keys_table(Objective)}\n"
    )


# Settings

_UNITS: Final = {"ms": "ms", "us": "µs", "bytes": "bytes", "size": "bytes"}


def all_settings() -> str:
    """The settings of producers, consumers and clusters."""
    parts = [
        "# Settings",
        "Names and defaults are those of Kafka 4, in snake case. A `.properties` file has them "
        "with dots. Settings of Kafka that have no effect here, such as `bootstrap.servers`, are "
        "accepted and reported.",
    ]
    classes = (settings.ProducerSettings, settings.ConsumerSettings, settings.ClusterSettings)
    for cls in classes:
        documented = field_docs(cls)
        rows = [
            (
                f"`{field.name}`",
                f"`{kafka_name(field.name)}`",
                _setting_default(field),
                _UNITS.get(field.name.rpartition("_")[2], ""),
                f"{documented.get(field.name, '')} Accepts {field.metadata['expected']}.",
            )
            for field in attrs.fields(cls)
        ]
        title = cls.__name__.removesuffix("Settings")
        heads = ("setting", "in a .properties file", "default", "unit", "meaning")
        parts.append(f"## {title}\n\n{_about(cls)}{_table(heads, rows)}")
    return "\n\n".join(parts) + "\n"


def kafka_name(name: str) -> str:
    """The name of a setting in a .properties file."""
    long = {ours: theirs for theirs, ours in settings._LONG_NAMES.items()}
    return long.get(name, name).replace("_", ".")


def _setting_default(field: "attrs.Attribute[Any]") -> str:
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return "depends"
    return "none" if default is None else f"`{str(default).lower()}`"


# Events


def events() -> str:
    """The columns of the event log, and the kinds of events."""
    documented = field_docs(Event)
    columns = [
        (
            f"`{field.name}`",
            "integer" if str(field.type) == "int64" else "text",
            "yes" if field.nullable else "no",
            documented.get(field.name, ""),
        )
        for field in SCHEMA
    ]
    parts = [
        "# Events",
        f"Every event is one row of one schema, version {SCHEMA_VERSION}. Times are whole "
        "microseconds.",
        "## Columns\n\n" + _table(("column", "type", "may be absent", "meaning"), columns),
        "## Kinds\n\nActors of your own can record kinds of their own.",
    ]
    for category in Category:
        rows = [
            (f"`{kind.name}`", kind.description + _repairs(kind))
            for kind in KINDS.values()
            if kind.category is category
        ]
        title, about = category.name.capitalize(), category.value
        parts.append(f"### {title}\n\nAbout {about}.\n\n{_table(('kind', 'meaning'), rows)}")
    return "\n\n".join(parts) + "\n"


def _repairs(kind: Kind) -> str:
    return f" It ends {' and '.join(f'`{name}`' for name in kind.repairs)}." if kind.repairs else ""


# Figures and commands


def figures() -> str:
    """The figures of a run."""
    rows = [(f"`{figure.name}`", figure.unit, figure.title) for figure in RUN_METRICS]
    return (
        "# Figures\n\n"
        "One number each for a whole run: the columns of a sweep's results, and what `--figure` "
        "takes. Of several groups the worst one counts, or the sum.\n\n"
        f"{_table(('figure', 'unit', 'title'), rows)}\n"
    )


def commands() -> str:
    """What `wavetank` can be called with."""
    parts = [
        "# Commands",
        "`wavetank COMMAND --help` prints the same. The exit status is 0 for success, 1 if "
        "objectives are not met, 2 for bad input, 130 after Ctrl-C.",
    ]
    for name, command in sorted(cli.commands.items()):
        context = click.Context(command, info_name=f"wavetank {name}")
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        rows = [
            (f"`{', '.join(option.opts)}`", option.make_metavar(context), option.help or "")
            for option in command.params
            if isinstance(option, click.Option)
        ]
        rows = [
            (names, "" if "BOOLEAN" in kind else f"`{kind}`", text) for names, kind, text in rows
        ]
        text = inspect.cleandoc(command.help or "")
        example = (command.epilog or "").removeprefix("Example: ")
        parts.append(f"## {name}\n\n{text}\n\n```text\n{usage}\n```\n\nExample: `{example}`")
        parts.append(_table(("option", "value", "meaning"), rows) if rows else "")
    return "\n\n".join(parts) + "\n"


def shell_commands() -> str:
    """What the shell understands."""
    parts = [
        "# Shell commands",
        "Arguments come first; options (`name=value`) and flags follow in any order.",
    ]
    for command in COMMANDS.values():
        parts.append(
            f"## {command.name}\n\n{command.help}\n\n```text\n{command.usage}\n```\n\n"
            f"Example: `{command.example}`"
        )
    return "\n\n".join(parts) + "\n"


# Text


def field_docs(cls: type) -> dict[str, str]:
    """The strings below the fields of a class and of its bases, by field."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if attrs.has(base):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            found |= _docs_of(tree.body[0].body)  # type: ignore[attr-defined]
    return found


def _docs_of(statements: Sequence[ast.stmt]) -> dict[str, str]:
    found = {}
    for statement, following in pairwise(statements):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def _about(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "") + "\n\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([_cell(cell) for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
