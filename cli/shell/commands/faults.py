"""Shell commands that change the nodes and links of a cluster: crash, pause, cut, add a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..command_table import BROKER, FLAG, NODE, command

if TYPE_CHECKING:
    from ..session import ShellSession


@command("crash node NODE", "crash node broker-1", types={"NODE": NODE})
def crash_node(session: ShellSession, node: str) -> str:
    """Crash a broker, producer or consumer. It loses its memory."""
    session.cluster.system.crash(node)
    if node in session.consumers:
        session.consumers[node].drop_records()
    return f"{node} is crashed"


@command("restart node NODE", "restart node broker-1", types={"NODE": NODE})
def restart_node(session: ShellSession, node: str) -> str:
    """Restart a crashed node."""
    session.cluster.system.restart(node)
    return f"{node} is up"


@command("pause node NODE", "pause node ann", types={"NODE": NODE})
def pause_node(session: ShellSession, node: str) -> str:
    """Freeze a node. Nothing runs on it, and nothing is lost."""
    session.cluster.system.pause(node)
    return f"{node} is paused"


@command("resume node NODE", "resume node ann", types={"NODE": NODE})
def resume_node(session: ShellSession, node: str) -> str:
    """Resume a paused node."""
    session.cluster.system.resume(node)
    return f"{node} is up"


@command(
    "cut NODE OTHER",
    "cut ann broker-0 hold",
    types={"NODE": NODE, "OTHER": NODE},
    one_way=FLAG,
    hold=FLAG,
)
def cut(session: ShellSession, node: str, other: str, **options: bool) -> str:
    """Block traffic between two nodes. With one_way, only from NODE to OTHER. Messages are lost;
    with hold, they are delivered after heal."""
    session.cluster.system.network.cut(node, other, **options)
    direction = "from {} to {}" if options.get("one_way") else "between {} and {}"
    return f"traffic {direction.format(node, other)} is blocked"


@command("heal NODE OTHER", "heal ann broker-0", types={"NODE": NODE, "OTHER": NODE})
def heal(session: ShellSession, node: str, other: str) -> str:
    """Restore traffic between two nodes."""
    session.cluster.system.network.heal(node, other)
    return f"traffic between {node} and {other} is restored"


@command("add broker", "add broker")
def add_broker(session: ShellSession) -> str:
    """Add a broker to the cluster. Partitions move to it."""
    session.require_brokers()
    return f"{session.cluster.add_broker()} joined"


@command("remove broker BROKER", "remove broker broker-1", types={"BROKER": BROKER})
def remove_broker(session: ShellSession, broker: str) -> str:
    """Remove a broker for good, once other brokers have its partitions."""
    session.require_controller()
    session.cluster.remove_broker(broker)
    return f"{broker} is removed"
