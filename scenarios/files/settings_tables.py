"""The `settings` of a scenario file: a table, the path of a .properties file, or both.

TOML reads `max.poll.records = 5` without quotes as tables in tables; Kafka means one name. A table
with `extends` starts from a .properties file and changes some of its settings.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ...model.errors import BadValueError, UnknownNameError, WavetankError
from ...model.settings import (
    DISK_SETTINGS,
    NOT_READ,
    has_no_effect,
    read_properties,
    setting_name,
)
from . import check
from .problems import inside, shown

EXTENDS: Final = "extends"
_CHECKS: Final = {"cluster": check.CLUSTER, "producers": check.PRODUCER, "groups": check.CONSUMER}


def flat(settings: Any) -> Any:
    """Settings with dotted names instead of nested tables, or `{extends = path}` for a path."""
    if isinstance(settings, str):
        return {EXTENDS: settings}
    if not isinstance(settings, dict):
        return settings
    table: dict[Any, Any] = {}
    for key, value in _leaves(settings):
        if key in table:
            raise BadValueError(f"{key} = {value!r}: expected once, but it is given twice")
        table[key] = value
    return table


def _leaves(table: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[Any, Any]]:
    for key, value in table.items():
        name = f"{prefix}{key}" if isinstance(key, str) else key
        if isinstance(key, str) and isinstance(value, dict) and value:
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def put_setting(table: dict[str, Any], name: str, value: object) -> None:
    """Set one of the settings, whatever the spelling of its name in the table."""
    for key in [key for key in table if setting_name(str(key)) == setting_name(name)]:
        del table[key]
    table[name] = value


def resolve(data: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[str]]:
    """A copy of a scenario's data with plain tables of settings, and the problems of their files.

    Paths are relative to `folder`.
    """
    problems: list[str] = []

    def resolved(part: Any, path: str, kind: str) -> Any:
        if not isinstance(part, dict) or "settings" not in part:
            return part
        where = inside(path, "settings")
        try:
            table = flat(part["settings"])
        except BadValueError as error:
            problems.append(f"{where}: {error}")
            return part
        if not isinstance(table, dict) or EXTENDS not in table:
            return part | {"settings": table}
        file = table.pop(EXTENDS)
        if isinstance(part["settings"], dict):
            where = inside(where, EXTENDS)
        base, wrong = _read_file(file, folder, kind)
        if kind == "cluster" and not _has_disks(data):
            base |= {name: NOT_READ for name in base if setting_name(name) in DISK_SETTINGS}
        problems.extend(f"{where} = {shown(file)}: {problem}" for problem in wrong)
        for name, value in table.items():
            put_setting(base, name, value)
        return part | {"settings": base}

    resolved_data = dict(data)
    if "cluster" in data:
        resolved_data["cluster"] = resolved(data["cluster"], "cluster", "cluster")
    for kind in ("producers", "groups"):
        if isinstance(data.get(kind), list | tuple):
            resolved_data[kind] = [
                resolved(part, f"{kind}[{index}]", kind) for index, part in enumerate(data[kind])
            ]
    return resolved_data, problems


def _has_disks(data: Mapping[str, Any]) -> bool:
    """Whether the brokers of a scenario have disks, as `Scenario.storage` says."""
    default = "memory" if data.get("engine") == "live" else "disk"
    return (data["cluster"].get("storage") or default) != "memory"


def _read_file(file: object, folder: Path, kind: str) -> tuple[dict[str, Any], list[str]]:
    """The settings of a .properties file, and its problems."""
    if not isinstance(file, str) or not file:
        return {}, ["expected the path of a .properties file"]
    try:
        pairs: dict[str, Any] = dict(read_properties(folder / file))
    except FileNotFoundError:
        return {}, ["there is no such file"]
    except WavetankError as error:
        return {}, [str(error)]
    except (OSError, ValueError) as error:
        return {}, [f"cannot read it: {getattr(error, 'strerror', None) or error}"]
    settings = _CHECKS[kind]
    wrong = {
        name: error
        for name, error in settings.problems(pairs)
        # A conflict between two settings is left alone: the scenario may change one of them.
        if name and (isinstance(error, UnknownNameError) or str(error).startswith(f"{name} = "))
    }
    good = {name: value for name, value in pairs.items() if name not in wrong}
    ignored = [name for name in good if has_no_effect(settings.cls, name)]
    return good | dict.fromkeys(ignored, NOT_READ), [str(error) for error in wrong.values()]
