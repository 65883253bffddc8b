"""The disks of a system, and the faults that are injected into them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ...model.disk import HEALTHY, Damage, DiskFaults
from ...model.events import kinds

if TYPE_CHECKING:
    from .disk import NodeDisk
    from .node import Node
    from .system import System


class Disks:
    """What a user does to the disks of nodes. Every node has one; it is empty until it is used."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._disks: dict[Node, NodeDisk] = {}

    def of(self, node: Node) -> NodeDisk:
        """The disk of a node."""
        disk = self._disks.get(node)
        if disk is None:
            with self._system.lock:
                disk = self._disks.get(node) or self._system.make_disk(node)
                self._disks[node] = disk
        return disk

    def find(self, node: Node) -> NodeDisk | None:
        """The disk of a node, if it has been used."""
        return self._disks.get(node)

    def slow(self, node: str, factor: float) -> None:
        """Let everything that a disk does take longer by a factor."""
        self._change(node, slow=factor)

    def fill(self, node: str) -> None:
        """Leave no room on a disk: writes fail until it is healed. Reads go on."""
        self._change(node, full=True)

    def fail_writes(self, node: str) -> None:
        """Let all writes to a disk fail."""
        self._change(node, fail_writes=True)

    def fail_syncs(self, node: str) -> None:
        """Let all syncs of a disk fail."""
        self._change(node, fail_syncs=True)

    def heal(self, node: str) -> None:
        """Remove every fault of a disk; damaged files stay damaged."""
        self._change(node, **attrs.asdict(HEALTHY))

    def flip_bit(self, node: str, file: str = "*.log") -> Damage:
        """Change one bit in one of the files that match a pattern, chosen at random.

        Raises:
            UnknownNameError: No file with contents matches.
        """
        system = self._system
        with system.lock:
            here = system.node(node)
            damage = self.of(here).flip_bit(file)
            where = f"{damage.file} at {damage.position}"
            system.note(kinds.DISK_CORRUPTED, here, detail=where)
            return damage

    def _change(self, node: str, **changes: Any) -> None:
        system = self._system
        with system.lock:
            here = system.node(node)
            disk = self.of(here)
            faults = attrs.evolve(disk.faults, **changes)
            disk.change(HEALTHY if faults == HEALTHY else faults)
            kind = kinds.DISK_HEALED if faults == HEALTHY else kinds.DISK_CHANGED
            system.note(kind, here, detail=_describe(faults))


def _describe(faults: DiskFaults) -> str:
    wrong = attrs.asdict(faults, filter=lambda field, value: value != field.default)
    return ", ".join(f"{name} {value}" for name, value in wrong.items()) or "healthy"
