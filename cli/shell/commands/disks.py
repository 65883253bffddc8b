"""Shell commands that do something to the disks of nodes: power loss, faults, damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..command_table import DISK_NODE, FACTOR, command

if TYPE_CHECKING:
    from ..session import ShellSession


@command("power loss NODE", "power loss broker-0", types={"NODE": DISK_NODE})
def power_loss(session: ShellSession, node: str) -> str:
    """Let a broker or the controller lose its power. It crashes, and what was not synced is lost
    or damaged. restart node starts it again."""
    session.cluster.system.power_loss(session.disk_node(node))
    return f"{node} is without power"


@command(
    "slow disk NODE FACTOR", "slow disk broker-0 10", types={"NODE": DISK_NODE, "FACTOR": FACTOR}
)
def slow_disk(session: ShellSession, node: str, factor: float) -> str:
    """Let everything that a disk does take FACTOR times as long."""
    session.cluster.system.disks.slow(session.disk_node(node), factor)
    return f"the disk of {node} takes {factor:g} times as long"


@command("fill disk NODE", "fill disk broker-0", types={"NODE": DISK_NODE})
def fill_disk(session: ShellSession, node: str) -> str:
    """Leave no room on a disk. Writes fail until heal disk."""
    session.cluster.system.disks.fill(session.disk_node(node))
    return f"the disk of {node} is full"


@command("fail writes NODE", "fail writes broker-0", types={"NODE": DISK_NODE})
def fail_writes(session: ShellSession, node: str) -> str:
    """Let all writes to a disk fail until heal disk."""
    session.cluster.system.disks.fail_writes(session.disk_node(node))
    return f"writes to the disk of {node} fail"


@command("fail syncs NODE", "fail syncs broker-0", types={"NODE": DISK_NODE})
def fail_syncs(session: ShellSession, node: str) -> str:
    """Let all syncs of a disk fail until heal disk."""
    session.cluster.system.disks.fail_syncs(session.disk_node(node))
    return f"syncs of the disk of {node} fail"


@command("flip bit NODE [FILE]", "flip bit broker-0 orders-0/*.log", types={"NODE": DISK_NODE})
def flip_bit(session: ShellSession, node: str, file: str = "*.log") -> str:
    """Change one bit in a file of a node. FILE is a name or a pattern, by default that of all logs.
    The damage is found when the node reads the file at its next start."""
    damage = session.cluster.system.disks.flip_bit(session.disk_node(node), file)
    return f"{damage.file} is damaged at byte {damage.position}"


@command("heal disk NODE", "heal disk broker-0", types={"NODE": DISK_NODE})
def heal_disk(session: ShellSession, node: str) -> str:
    """Remove all faults from a disk. Damaged files stay damaged."""
    session.cluster.system.disks.heal(session.disk_node(node))
    return f"the disk of {node} works"
