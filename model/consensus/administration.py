"""What users can order about leaders, replicas and brokers, and what it changes.

Each order becomes the entries of one operation of `ReplicationControl`, or an error that says why
it is impossible.
"""

from ..errors import BadValueError
from ..messages.cluster import AdminOrder, ElectLeaders, ReassignPartition, RemoveBroker
from ..topics import TopicPartition
from .replication_control import Entry, ReplicationControl


def plan_order(control: ReplicationControl, order: AdminOrder) -> list[Entry]:
    """Return the entries that carry out an order of a user.

    Raises:
        BadValueError: The order is impossible.
        UnknownNameError: There is no such partition or broker.
    """
    match order:
        case ElectLeaders(partitions=partitions, unclean=True):
            return [entry for each in partitions or () for entry in _elect_unclean(control, each)]
        case ElectLeaders():
            return _elect_preferred(control, order)
        case ReassignPartition(partition, brokers, throttle):
            if brokers is not None:
                return control.reassign(partition, brokers, throttle)
            if not control.find(partition).is_reassigning:
                raise BadValueError(f"partition {partition} is not being reassigned")
            return control.cancel_reassignment(partition)
        case RemoveBroker():
            return control.remove(order.broker)


def _elect_preferred(control: ReplicationControl, order: ElectLeaders) -> list[Entry]:
    for partition in order.partitions or ():
        known = control.find(partition)
        preferred = known.replicas[0]
        eligible = known.isr or known.elr
        if preferred not in eligible or not control.is_active(preferred):
            raise BadValueError(
                f"partition {partition}: its preferred leader {preferred!r} cannot lead: expected "
                "it to be running and in sync"
            )
    return control.elect_preferred(order.partitions)


def _elect_unclean(control: ReplicationControl, partition: TopicPartition) -> list[Entry]:
    leader = control.find(partition).leader
    if leader is not None:
        raise BadValueError(f"partition {partition} is led by {leader!r}: expected no leader")
    entries = control.elect_unclean(partition)
    if not entries:
        raise BadValueError(f"partition {partition}: expected a replica on an active broker")
    return entries
