"""What the controller knows of a broker and of a partition."""

import attrs


@attrs.frozen
class BrokerRegistration:
    """A process of a broker that has registered."""

    name: str
    """Name of the broker."""
    life: int
    """Number of the process: a broker that is started again has a higher one."""
    epoch: int
    """The broker epoch: higher than that of every registration before. What a process says under
    an older one is refused (KIP-903)."""
    rack: str | None = None
    """The rack it stands in. Brokers without one share a rack."""
    fenced: bool = True
    """Whether it has not been heard of for too long, or not yet. It leads nothing then."""
    stopping: bool = False
    """Whether it is in its controlled shutdown."""
    leaving: bool = False
    """Whether it is being removed for good: it gets no more replicas."""

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in sync."""
        return not self.fenced and not self.stopping


@attrs.frozen
class PartitionRegistration:
    """The replicas of a partition. The sets of brokers are in the order of `replicas`, or of the
    leader that proposed the in-sync set."""

    replicas: tuple[str, ...]
    """The brokers that have a replica. The first is the preferred leader."""
    isr: tuple[str, ...]
    """Those that are in sync. It is empty if and only if there is no leader."""
    elr: tuple[str, ...] = ()
    """Eligible leader replicas (KIP-966): no longer in sync, but they have all committed records,
    since none was committed after they left."""
    last_known_leader: str | None = None
    """The last leader of a partition that has none."""
    leader: str | None = None
    """The broker that leads it; `None` if none may."""
    leader_epoch: int = 0
    """Rises with each change of the leader."""
    partition_epoch: int = 0
    """Rises with each change of any field."""
    adding: tuple[str, ...] = ()
    """Replicas that a reassignment adds (KIP-455)."""
    removing: tuple[str, ...] = ()
    """Replicas that it removes once all others are in sync."""
    unclean: bool = False
    """Whether the leader may lack committed records, as it was neither in sync nor eligible."""
    throttle: int | None = None
    """Bytes per second that replicas which are not in sync get while a reassignment is under way;
    `None` for no limit."""

    @property
    def target(self) -> tuple[str, ...]:
        """The replicas after the reassignment that is under way, if any."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)
