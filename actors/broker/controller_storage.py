"""The part of a controller that stores its state on the disk of its node.

Everything is in one journal. The members of a group are not kept: when all processes have ended,
there are none. Its generation goes on, so that nothing of an earlier member is mistaken for a
later one's. Of an assignor that is a function of the user, the name and the protocol are kept.

| entry | meaning |
|---|---|
| topic, fields | a topic |
| topic_deleted, name | it is gone |
| partition, topic, number, epoch, home | the last leader epoch, and the broker with the log |
| group, name, fields | a group, and what partitions keep for it |
| generation, group, generation, assignor | its last generation |
| coordinator, group, epoch | the last epoch of its coordinator |
| offsets, group, offsets | committed offsets |
| producer, id, epoch | the last epoch of a producer id |
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from ...model.errors import BadValueError
from ...model.journal import encode_entry, scan_entries
from ...model.messages.cluster import GroupConfig, Reservation
from ...model.topics import Topic, TopicPartition
from ...strategies.assignment import EVERYONE, resolve
from .journal import JOURNAL, SNAPSHOT, Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...strategies.assignment import RebalanceProtocol
    from ..engine.disk import FolderRead, Scanners
    from ..engine.effects import Effects
    from .journal import Entry

logger = logging.getLogger("wavetank")

FOLDER = "metadata"


@attrs.frozen
class MetadataRead:
    """The journal was asked for."""


class ControllerStorage:
    """The journal of a controller."""

    def __init__(self, effects: Effects, snapshot: Callable[[], Iterable[Entry]]) -> None:
        """Keep a journal that is synced, as Kafka's metadata log is: it says where the logs are."""
        self._disk = effects.disk
        virtual = effects.time_is_virtual
        self.journal = Journal(
            effects, self._disk, FOLDER, (lambda entry: entry) if virtual else encode_entry,
            snapshot, sync=True,
        )  # fmt: skip

    def open(self) -> None:
        """Read what there is; the answer is a `FolderRead`."""
        scanners: Scanners = {JOURNAL: scan_entries, SNAPSHOT: scan_entries}
        self._disk.read_folder(FOLDER, scanners, MetadataRead())

    def restore(self, read: FolderRead, apply: Callable[[Entry], None]) -> None:
        """Apply all entries that were read, and begin to write."""
        for entry in self.journal.read(read.files):
            apply(entry)
        self.journal.begin()


def topic_entry(topic: Topic) -> Entry:
    """Describe a topic."""
    fields = attrs.asdict(topic, recurse=False)
    fields["type"] = f"{topic.type.__module__}:{topic.type.__qualname__}"
    return ("topic", fields)


def read_topic(fields: dict[str, Any]) -> Topic:
    """Make a topic of its description; its type must be there to be imported."""
    return Topic(**{**fields, "type": _find_type(fields["name"], fields["type"])})


def _find_type(topic: str, path: str) -> type:
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        logger.warning("topic %r: its type %s is not there: values of any type count", topic, path)
        return object
    return found  # type: ignore[no-any-return]


@attrs.frozen
class MissingAssignor:
    """Stands in for the function of a user that was the assignor of a group.

    A function cannot be stored: the program that goes on with the group has to give it again.
    """

    group: str
    name: str
    """Name of the function."""
    protocol: RebalanceProtocol
    """Its rebalance protocol."""

    @property
    def __name__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return (
            f"group {self.group!r}: its assignor is the function {self.name!r}, which is not "
            "stored: expected it as the assignor again, or the name of another one"
        )

    def __call__(self, members: object, partitions: object) -> Any:
        """Raise `BadValueError`."""
        raise BadValueError(str(self))


Functions: TypeAlias = dict[tuple[str, str], Any]
"""Assignors that are functions of the user, by group and name."""


class AssignorStorage:
    """Stores assignors by name, and finds them again."""

    def __init__(self, functions: Functions) -> None:
        """Keep the functions of this program: they outlive its controller, as all code does."""
        self._functions = functions

    def describe(self, group: str, assignor: Any) -> str | tuple[str, str]:
        """Describe the assignor of a group: its name, for a function with the protocol."""
        chosen = resolve(assignor)
        if not chosen.custom:
            return chosen.name
        if not isinstance(assignor, MissingAssignor):
            self._functions[group, chosen.name] = assignor
        return (chosen.name, chosen.protocol)

    def find(self, group: str, described: str | tuple[str, RebalanceProtocol]) -> Any:
        """Return the assignor of a group; a `MissingAssignor` if nobody has given the function."""
        if isinstance(described, str):
            return EVERYONE if described == EVERYONE.name else described
        name, protocol = described
        known = self._functions.get((group, name))
        return MissingAssignor(group, name, protocol) if known is None else known


def group_entry(
    config: GroupConfig, assignor: object, reservation: Reservation, created_us: int
) -> Entry:
    """Describe a group, whose assignor is described already."""
    fields = {**attrs.asdict(config, recurse=False), "assignor": assignor}
    return ("group", fields, attrs.asdict(reservation, recurse=False), created_us)


def offsets_entry(group: str, offsets: Iterable[tuple[TopicPartition, int]]) -> Entry:
    """Describe committed offsets."""
    return ("offsets", group, tuple((*partition, offset) for partition, offset in offsets))
