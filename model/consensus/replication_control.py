"""The controller's rules about brokers, replicas and leaders, as a pure state machine.

An operation returns the entries for the metadata log and changes nothing; `apply` makes the change
of an entry. So the active controller, the others and a restart all do the same. The entries of an
operation belong together, and are in an order in which the first few of them do no harm: the
operation is repeated by whoever finds it half done.

| entry | meaning |
|---|---|
| epochs, broker epoch, first epoch | the last broker epoch, and what new partitions begin with |
| deletions, name, count | so many topics of this name were deleted |
| broker, name, life, epoch, rack | a process of a broker has registered; it is fenced |
| fence, name | a broker is fenced |
| unfence, name | it is no longer fenced |
| stopping, name | it is in its controlled shutdown |
| leaving, name | it is to be removed, and gets no more replicas |
| unregister, name | it is gone for good |
| partition, topic, number, fields | the fields of a `PartitionRegistration`, in order |

The rules are those of Kafka's `ReplicationControlManager` and `ClusterControlManager`; who leads
is decided in `election`. Operations cost what they touch: all partitions of a broker at most.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, TypeAlias

import attrs

from ..errors import BadValueError, UnknownNameError
from ..topics import Topic, TopicPartition, partitions_of
from .election import Election, change_partition
from .partition_index import PartitionIndex
from .placement import BrokerLoad, place_replicas
from .rebalance import Targets, empty_broker, even_out
from .registration import BrokerRegistration, PartitionRegistration

Entry: TypeAlias = tuple[Any, ...]
"""A change of the metadata: its kind, then its fields, which are plain data."""

_fields: Final = attrgetter(*(field.name for field in attrs.fields(PartitionRegistration)))


class IsrRefusal(StrEnum):
    """Why a change of an in-sync set is refused (AlterPartition)."""

    STALE_BROKER_EPOCH = "stale broker epoch"
    """Another process of the broker has registered since."""
    UNKNOWN_PARTITION = "unknown partition"
    """There is no such partition."""
    NOT_CONTROLLER = "not controller"
    """The leader knows of a later epoch: this controller is no longer the active one."""
    FENCED_LEADER_EPOCH = "fenced leader epoch"
    """A new leader was elected since."""
    NOT_LEADER = "not leader"
    """The broker does not lead the partition."""
    STALE_PARTITION_EPOCH = "stale partition epoch"
    """The partition was changed since: the leader has to learn of it first."""
    INELIGIBLE_REPLICA = "ineligible replica"
    """A member is fenced, stopping, of another process or no replica, or the leader is missing."""


@attrs.define
class ReplicationControl:
    """What the cluster is: its brokers, and the replicas and leaders of all partitions."""

    unclean_leader_election: bool = attrs.field(default=False, eq=False)
    """Whether a partition without eligible replicas is led by any that is active, at once."""
    brokers: dict[str, BrokerRegistration] = attrs.Factory(dict)
    """The registered brokers by name."""
    topics: dict[str, Topic] = attrs.Factory(dict)
    """The topics by name."""
    partitions: dict[TopicPartition, PartitionRegistration] = attrs.Factory(dict)
    """All partitions."""
    index: PartitionIndex = attrs.Factory(PartitionIndex)
    """Finds the partitions of a broker."""
    deletions: dict[str, int] = attrs.Factory(dict)
    """How often a topic of a name was deleted."""
    broker_epoch: int = 0
    """The last broker epoch that was given."""
    first_epoch: int = 0
    """Epochs of a new partition: higher than those of deleted ones, which it may be taken for."""

    # State

    def apply(self, entry: Entry) -> None:
        """Make a change."""
        kind, *fields = entry
        getattr(self, f"apply_{kind}")(*fields)

    def apply_topic(self, topic: Topic) -> None:
        """Know a topic, before its partitions are created."""
        self.topics[topic.name] = topic

    def apply_topic_deleted(self, name: str) -> None:
        """Forget a topic with its partitions."""
        self.deletions[name] = self.deletions.get(name, 0) + 1
        for partition in partitions_of(name, self.topics.pop(name).partitions):
            gone = self.partitions.pop(partition, None)
            if gone is not None:
                self.index.update(partition, gone, None)
                # Each change of the leader is a change of the partition: its epoch is the higher.
                self.first_epoch = max(self.first_epoch, gone.partition_epoch + 1)

    def apply_deletions(self, name: str, count: int) -> None:
        """Know how often a topic of a name was deleted."""
        self.deletions[name] = count

    def apply_epochs(self, broker_epoch: int, first_epoch: int) -> None:
        """Go on after these epochs."""
        self.broker_epoch, self.first_epoch = broker_epoch, first_epoch

    def apply_broker(self, name: str, life: int, epoch: int, rack: str | None) -> None:
        """Know a process of a broker, which is fenced until its first heartbeat."""
        known = self.brokers.get(name)
        leaving = known is not None and known.leaving
        self.brokers[name] = BrokerRegistration(name, life, epoch, rack, leaving=leaving)
        self.broker_epoch = max(self.broker_epoch, epoch)

    def apply_fence(self, name: str) -> None:
        """Note that a broker is fenced."""
        self.brokers[name] = attrs.evolve(self.brokers[name], fenced=True)

    def apply_unfence(self, name: str) -> None:
        """Note that a broker is no longer fenced."""
        self.brokers[name] = attrs.evolve(self.brokers[name], fenced=False)

    def apply_stopping(self, name: str) -> None:
        """Note that a broker is in its controlled shutdown."""
        self.brokers[name] = attrs.evolve(self.brokers[name], stopping=True)

    def apply_leaving(self, name: str) -> None:
        """Note that a broker is to be removed."""
        self.brokers[name] = attrs.evolve(self.brokers[name], leaving=True)

    def apply_unregister(self, name: str) -> None:
        """Forget a broker."""
        del self.brokers[name]

    def apply_partition(self, topic: str, number: int, *fields: Any) -> None:
        """Set the registration of a partition."""
        partition, after = TopicPartition(topic, number), PartitionRegistration(*fields)
        self.index.update(partition, self.partitions.get(partition), after)
        self.partitions[partition] = after

    def entries(self) -> Iterator[Entry]:
        """Describe everything but the topics, which have to be applied first."""
        yield ("epochs", self.broker_epoch, self.first_epoch)
        for name, count in self.deletions.items():
            yield ("deletions", name, count)
        for broker in self.brokers.values():
            yield ("broker", broker.name, broker.life, broker.epoch, broker.rack)
            if not broker.fenced:
                yield ("unfence", broker.name)
            if broker.stopping:
                yield ("stopping", broker.name)
            if broker.leaving:
                yield ("leaving", broker.name)
        for partition, registration in self.partitions.items():
            yield _entry(partition, registration)

    def is_active(self, name: str) -> bool:
        """Tell whether a broker may lead partitions and be in sync."""
        broker = self.brokers.get(name)
        return broker is not None and broker.is_active

    def has_leaders(self, name: str) -> bool:
        """Tell whether a broker leads a partition. A stopping one goes on until it does not."""
        return name in self.index.led

    def affected_brokers(self, entries: Iterable[Entry]) -> dict[str, list[TopicPartition]]:
        """Return which brokers have to be told of which partitions, in order.

        Call it before the entries are applied: brokers that lose a replica have to be told, too.
        """
        affected: dict[str, list[TopicPartition]] = {}
        for kind, *fields in entries:
            if kind == "partition":
                partition = TopicPartition(*fields[:2])
                before = self.partitions.get(partition)
                former = () if before is None else before.replicas
                for broker in dict.fromkeys((*former, *fields[2])):
                    affected.setdefault(broker, []).append(partition)
        return {broker: affected[broker] for broker in sorted(affected)}

    # Brokers

    def register(
        self, name: str, life: int, rack: str | None, epoch: int, clean: bool
    ) -> list[Entry]:
        """Register a new process of a broker.

        Nothing changes for a process that is registered already. The earlier process leads nothing
        any more, and leaves the in-sync sets.

        Args:
            name: Name of the broker.
            life: Number of the process.
            rack: Its rack.
            epoch: Its broker epoch: higher than `broker_epoch`.
            clean: Whether it has all that the earlier process has stored. If not, it is no longer
                eligible to lead (KIP-966).
        """
        known = self.brokers.get(name)
        if known is not None and known.life >= life:
            return []
        assert epoch > self.broker_epoch, f"broker epoch {epoch} after {self.broker_epoch}"
        changes = self._leave_sets(name, lost=not clean)
        return [*changes, ("broker", name, life, epoch, rack)]

    def fence(self, name: str) -> list[Entry]:
        """Fence a broker that is silent: others lead its partitions, if they may."""
        changes = self._leave_sets(name)
        return changes if self.brokers[name].fenced else [*changes, ("fence", name)]

    def unfence(self, name: str) -> list[Entry]:
        """Let a broker take part again. It leads partitions without a leader, if it may."""
        broker = self.brokers[name]
        entries: list[Entry] = [("unfence", name)] if broker.fenced else []
        waiting = self.index.leaderless.get(name, ())
        return entries + self._elect(
            waiting, lambda each: not broker.stopping if each == name else self.is_active(each)
        )

    def begin_shutdown(self, name: str) -> list[Entry]:
        """Begin the controlled shutdown of a broker: others lead its partitions, if they may."""
        changes = self._leave_sets(name)
        return changes if self.brokers[name].stopping else [*changes, ("stopping", name)]

    def remove(self, name: str) -> list[Entry]:
        """Begin to remove a broker: others replace it, and then it can be unregistered.

        `BadValueError` is raised if one of its replicas cannot go anywhere.
        """
        if name not in self.brokers:
            raise UnknownNameError("broker", name, self.brokers)
        if self.brokers[name].leaving:
            return []
        if self._active_brokers() in ([], [name]):
            raise BadValueError(
                f"broker {name!r} cannot be removed: expected another active broker"
            )
        leaderless = sorted(self.index.leaderless.get(name, ()))
        if leaderless:
            raise BadValueError(
                f"broker {name!r} cannot be removed: {leaderless[0]} has no leader to copy it from"
            )
        entries = self.evacuate(name)
        moved = {TopicPartition(entry[1], entry[2]) for entry in entries}
        stuck = sorted(set(self.index.targets.get(name, ())) - moved)
        if stuck:
            raise BadValueError(
                f"broker {name!r} cannot be removed: expected an active broker without a replica "
                f"of {stuck[0]}, which can take over"
            )
        return [("leaving", name), *entries]

    def is_empty(self, name: str) -> bool:
        """Tell whether a broker has no replicas."""
        return not self.index.replicas.get(name)

    def unregister(self, name: str) -> list[Entry]:
        """Forget a broker that is gone for good. Its replicas stay where they are."""
        return [*self._leave_sets(name), ("unregister", name)]

    def _leave_sets(self, name: str, lost: bool = False) -> list[Entry]:
        """Take a broker out of the in-sync sets, which ends what it leads.

        With `lost` it is not eligible any more, either.
        """
        entries: list[Entry] = []
        for partition in sorted(self.index.replicas.get(name, ())):
            before = self.partitions[partition]
            if name in before.isr or (lost and name in before.elr):
                isr = tuple(each for each in before.isr if each != name)
                entries += self._change(
                    partition,
                    attrs.evolve(before, isr=isr),
                    is_active=lambda each: each != name and self.is_active(each),
                    lost=name if lost else None,
                )
        return entries

    # Leaders and in-sync sets

    def alter_isr(
        self,
        partition: TopicPartition,
        broker: str,
        broker_epoch: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[tuple[str, int], ...],
    ) -> list[Entry] | IsrRefusal:
        """Change the in-sync set of a partition, as its leader wants it (KIP-497, KIP-903).

        This completes a reassignment when all replicas that stay are in sync (KIP-455).

        Args:
            partition: The partition.
            broker: The broker that leads it.
            broker_epoch: The epoch of the broker.
            leader_epoch: The epoch of the leader.
            partition_epoch: The epoch of the partition that the leader knows.
            isr: The members, each with its broker epoch.
        """
        refusal = self._refuse_isr(
            partition, broker, broker_epoch, leader_epoch, partition_epoch, isr
        )
        if refusal is not None:
            return refusal
        before = self.partitions[partition]
        return self._change(partition, attrs.evolve(before, isr=tuple(name for name, _ in isr)))

    def _refuse_isr(
        self,
        partition: TopicPartition,
        broker: str,
        broker_epoch: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[tuple[str, int], ...],
    ) -> IsrRefusal | None:
        if not self._is_current(broker, broker_epoch):
            return IsrRefusal.STALE_BROKER_EPOCH
        known = self.partitions.get(partition)
        if known is None:
            return IsrRefusal.UNKNOWN_PARTITION
        if leader_epoch > known.leader_epoch or partition_epoch > known.partition_epoch:
            return IsrRefusal.NOT_CONTROLLER
        if leader_epoch < known.leader_epoch:
            return IsrRefusal.FENCED_LEADER_EPOCH
        if broker != known.leader:
            return IsrRefusal.NOT_LEADER
        if partition_epoch < known.partition_epoch:
            return IsrRefusal.STALE_PARTITION_EPOCH
        members = {name for name, _ in isr}
        valid = broker in members and len(members) == len(isr) and members <= {*known.replicas}
        if not valid or not all(
            self._is_current(name, epoch) and self.is_active(name) for name, epoch in isr
        ):
            return IsrRefusal.INELIGIBLE_REPLICA
        return None

    def _is_current(self, name: str, epoch: int) -> bool:
        broker = self.brokers.get(name)
        return broker is not None and broker.epoch == epoch

    def elect_leaders(self) -> list[Entry]:
        """Elect leaders for all partitions without one, where that is possible.

        That is for a controller that begins to be active, and for one whose setting
        `unclean_leader_election` has changed.
        """
        return self._elect(set().union(*self.index.leaderless.values()), self.is_active)

    def elect_preferred(self, partitions: Iterable[TopicPartition] | None = None) -> list[Entry]:
        """Let partitions be led by their preferred leaders, where these are in sync.

        By default this is for all partitions.
        """
        if partitions is None:
            partitions = set().union(*self.index.displaced.values())
        return [
            entry
            for partition in sorted(set(partitions))
            for entry in self._change(partition, self.find(partition), election=Election.PREFERRED)
        ]

    def elect_unclean(self, partition: TopicPartition) -> list[Entry]:
        """Let any active replica lead a partition without a leader. It may lose records."""
        before = self.find(partition)
        if before.leader is not None:
            return []
        return self._change(partition, before, election=Election.UNCLEAN)

    def imbalance(self, percentage: int) -> dict[str, list[TopicPartition]]:
        """Return the partitions that preferred leaders do not lead, where these are too many.

        Kafka's `leader.imbalance.per.broker.percentage` says how many, of all partitions of which a
        broker is the preferred leader.
        """
        return {
            broker: sorted(displaced)
            for broker, displaced in sorted(self.index.displaced.items())
            if 100 * len(displaced) > percentage * len(self.index.preferred[broker])
        }

    def _elect(
        self, partitions: Iterable[TopicPartition], is_active: Callable[[str], bool]
    ) -> list[Entry]:
        return [
            entry
            for partition in sorted(partitions)
            for entry in self._change(partition, self.partitions[partition], is_active=is_active)
        ]

    def _change(
        self,
        partition: TopicPartition,
        wanted: PartitionRegistration,
        *,
        is_active: Callable[[str], bool] | None = None,
        election: Election = Election.ONLINE,
        lost: str | None = None,
    ) -> list[Entry]:
        """Return the entry for a change of a partition; nothing if nothing changes."""
        before = self.partitions[partition]
        if self.unclean_leader_election and election is Election.ONLINE:
            election = Election.UNCLEAN
        min_insync = self.topics[partition.topic].min_insync_replicas
        after = change_partition(
            before, wanted, min_insync, is_active or self.is_active, election, lost
        )
        return [] if after is before else [_entry(partition, after)]

    def find(self, partition: TopicPartition) -> PartitionRegistration:
        """Return a partition; raise `UnknownNameError` if there is none."""
        known = self.partitions.get(partition)
        if known is None:
            raise UnknownNameError("partition", str(partition), map(str, self.partitions))
        return known

    # Replicas

    def create_partitions(self, topic: str, numbers: Iterable[int], factor: int) -> list[Entry]:
        """Create partitions of a topic, with replicas spread over brokers and racks.

        Brokers that are not active get replicas only if there are too few others, and are not in
        sync then. `BadValueError` is raised if there are too few brokers.
        """
        staying = sorted(name for name, broker in self.brokers.items() if not broker.leaving)
        if factor > len(staying):
            raise BadValueError(
                f"topic {topic!r}: replication_factor = {factor}: expected at most "
                f"{len(staying)}, the number of brokers"
            )
        active = self._active_brokers()
        if not active:
            raise BadValueError(f"topic {topic!r}: expected an active broker for its leaders")
        others = [name for name in staying if name not in active]
        numbers = list(numbers)
        placed = self._place(active, len(numbers), min(factor, len(active)))
        entries = []
        for number, isr in zip(numbers, placed, strict=True):
            first = number % max(1, len(others))
            replicas = (*isr, *others[first:], *others[:first])[:factor]
            registration = PartitionRegistration(
                replicas, isr, leader=isr[0],
                leader_epoch=self.first_epoch, partition_epoch=self.first_epoch,
            )  # fmt: skip
            entries.append(_entry(TopicPartition(topic, number), registration))
        return entries

    def restart_empty(self, partition: TopicPartition) -> list[Entry]:
        """Let a partition begin again without records, on brokers that are active, if any.

        That is for storage in memory, when no replica is left. Replicas that cannot be replaced
        stay, to follow when they are back.
        """
        before = self.find(partition)
        active = self._active_brokers()
        if not active:
            return []
        factor = len(before.target)
        (isr,) = self._place(active, 1, min(factor, len(active)))
        kept = [each for each in before.target if each in self.brokers and each not in isr]
        registration = PartitionRegistration(
            (*isr, *kept)[:factor], isr, leader=isr[0],
            leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1,
            unclean=True,
        )  # fmt: skip
        return [_entry(partition, registration)]

    def reassign(
        self, partition: TopicPartition, target: tuple[str, ...], throttle: int | None = None
    ) -> list[Entry]:
        """Move a partition to other replicas, the first of which is preferred to lead (KIP-455).

        Those to add come first; those to remove stay until all others are in sync. A reassignment
        that is under way is replaced. With a `throttle`, in bytes per second, replicas that are not
        in sync get no more than that.
        """
        before = self.find(partition)
        if not target or len(set(target)) < len(target):
            raise BadValueError(
                f"partition {partition}: replicas = {target!r}: expected brokers, each once"
            )
        for broker in target:
            if broker in before.replicas:
                continue
            if broker not in self.brokers:
                raise UnknownNameError("broker", broker, self.brokers)
            if self.brokers[broker].leaving:
                raise BadValueError(f"partition {partition}: broker {broker!r} is being removed")
        removing = tuple(each for each in before.replicas if each not in target)
        adding = tuple(
            each for each in target if each not in before.replicas or each in before.adding
        )
        wanted = attrs.evolve(
            before,
            replicas=(*target, *removing),
            adding=adding,
            removing=removing,
            throttle=throttle if adding else None,
        )
        return self._change(partition, wanted)

    def cancel_reassignment(self, partition: TopicPartition) -> list[Entry]:
        """Go back to the replicas before the reassignment that is under way, if any."""
        before = self.find(partition)
        isr = tuple(each for each in before.isr if each not in before.adding)
        if before.isr and not isr and not self.unclean_leader_election:
            raise BadValueError(
                f"partition {partition}: its reassignment cannot be cancelled, as only replicas "
                f"that it adds are in sync: {', '.join(before.isr)}"
            )
        replicas = tuple(each for each in before.replicas if each not in before.adding)
        wanted = attrs.evolve(
            before, replicas=replicas, isr=isr, adding=(), removing=(), throttle=None
        )
        return self._change(partition, wanted)

    def rebalance_replicas(self) -> list[Entry]:
        """Begin the reassignments that even out the number of replicas of the active brokers."""
        active, racks = self._active_brokers(), self._racks()
        held = {name: self.index.targets.get(name, ()) for name in active}
        return self._reassign_all(even_out(self.partitions, held, active, racks))

    def evacuate(self, name: str, sole: bool = False) -> list[Entry]:
        """Begin the reassignments that replace a broker by others.

        A partition for which there is no other broker stays.

        Args:
            name: The broker.
            sole: Replace it only where it is the only replica.
        """
        owned = [
            partition
            for partition in self.index.targets.get(name, ())
            if not sole or len(self.partitions[partition].target) == 1
        ]
        load = {
            each: len(self.index.targets.get(each, ()))
            for each in self._active_brokers()
            if each != name
        }
        return self._reassign_all(empty_broker(self.partitions, name, owned, load, self._racks()))

    def _reassign_all(self, targets: Targets) -> list[Entry]:
        return [
            entry
            for partition, target in sorted(targets.items())
            for entry in self.reassign(partition, target)
        ]

    def _place(self, active: list[str], partitions: int, factor: int) -> list[tuple[str, ...]]:
        loads = [
            BrokerLoad(
                name,
                self.brokers[name].rack,
                len(self.index.preferred.get(name, ())),
                len(self.index.targets.get(name, ())),
            )
            for name in active
        ]
        return place_replicas(loads, partitions, factor)

    def _active_brokers(self) -> list[str]:
        """The brokers that can get replicas."""
        return sorted(
            name for name, broker in self.brokers.items() if broker.is_active and not broker.leaving
        )

    def _racks(self) -> dict[str, str | None]:
        return {name: broker.rack for name, broker in self.brokers.items()}


def _entry(partition: TopicPartition, registration: PartitionRegistration) -> Entry:
    return ("partition", *partition, *_fields(registration))
