"""The table of event kinds: one row for each, in the past tense, with its category.

Whoever counts or shows events asks this table which kinds belong to a category. Adding a kind
means adding a row here and recording it. The set is open: users' actors record kinds of their own.
"""

from enum import Enum
from typing import Final

import attrs


class Category(Enum):
    """What an event is about."""

    ACTOR = "actors start, fail and stop"
    MESSAGE = "messages that the network or a dead receiver kept from arriving once and in time"
    FAULT = "faults and stops of nodes, links and clocks, and their repair"
    SAMPLE = "samples of inboxes, of the flow of messages, and of how busy consumers are"
    CLUSTER = "brokers, topics and leaders"
    PROGRESS = "records on their way from a producer to the end of their processing"
    LOSS = "records that somebody will never get"
    RETRY = "attempts that failed and are repeated"
    CLEANUP = "records and groups that were removed"
    PAYLOAD = "values stored outside of their records"
    OWNERSHIP = "groups: members, rebalances, and who owns which partition"


@attrs.frozen
class Kind:
    """One row of the table."""

    name: str
    category: Category
    description: str
    """One sentence for the reference."""
    repairs: tuple[str, ...] = ()
    """The faults that this event ends."""


KINDS: Final[dict[str, Kind]] = {}
"""All kinds that Wavetank records, by name."""


def _kind(name: str, category: Category, description: str, repairs: tuple[str, ...] = ()) -> str:
    KINDS[name] = Kind(name, category, description, repairs)
    return name


def of(*categories: Category) -> frozenset[str]:
    """Return the names of all kinds of some categories."""
    return frozenset(kind.name for kind in KINDS.values() if kind.category in categories)


COMMIT: Final = "commit"
RECORD: Final = "record"
"""The values of `Event.mode`: acknowledged up to a committed offset, or record by record."""

_C = Category

STARTED: Final = _kind("started", _C.ACTOR, "An actor started; the detail is its class.")
STOPPED: Final = _kind("stopped", _C.ACTOR, "An actor ended, for the given reason.")
FAILED: Final = _kind("failed", _C.ACTOR, "A handler raised the error in the detail.")
RESTARTED: Final = _kind("restarted", _C.ACTOR, "A failed actor was replaced by a new one.")

UNHANDLED: Final = _kind(
    "unhandled", _C.MESSAGE, "An actor has no handler for a message that the peer sent."
)
UNDELIVERABLE: Final = _kind(
    "undeliverable", _C.MESSAGE, "A message of the peer reached an actor that has ended."
)
DROPPED: Final = _kind("dropped", _C.MESSAGE, "The network dropped a message to the peer.")
DUPLICATED: Final = _kind("duplicated", _C.MESSAGE, "The network duplicated a message to the peer.")
HELD: Final = _kind("held", _C.MESSAGE, "A link holds a message to the peer until it is healed.")

NODE_CRASHED: Final = _kind("node_crashed", _C.FAULT, "A node crashed, with `count` actors.")
POWER_LOST: Final = _kind(
    "power_lost", _C.FAULT, "A node lost its power: it crashed, and what was not synced is damaged."
)
CRASHES: Final = (NODE_CRASHED, POWER_LOST)
"""Either ends everything that runs on a node."""
NODE_RESTARTED: Final = _kind(
    "node_restarted", _C.FAULT, "A crashed node was started again.",
    repairs=("node_crashed", "power_lost"),
)  # fmt: skip
NODE_STOPPED: Final = _kind("node_stopped", _C.FAULT, "A node was told to stop in an orderly way.")
NODE_STARTED: Final = _kind(
    "node_started", _C.FAULT, "A stopped node was started again, or a new one was added.",
    repairs=("node_stopped",),
)  # fmt: skip
NODE_PAUSED: Final = _kind("node_paused", _C.FAULT, "A node was paused: nothing runs on it.")
NODE_RESUMED: Final = _kind(
    "node_resumed", _C.FAULT, "A paused node runs again.", repairs=("node_paused",)
)
LINK_CUT: Final = _kind("link_cut", _C.FAULT, "The link from the node to the peer was cut.")
LINK_CHANGED: Final = _kind(
    "link_changed", _C.FAULT, "The link from the node to the peer delays or disturbs messages."
)
LINK_HEALED: Final = _kind(
    "link_healed", _C.FAULT, "The link from the node to the peer has no faults any more.",
    repairs=("link_cut", "link_changed"),
)  # fmt: skip
DISK_CHANGED: Final = _kind("disk_changed", _C.FAULT, "A node's disk is slow, is full or fails.")
DISK_HEALED: Final = _kind(
    "disk_healed", _C.FAULT, "A node's disk has no faults any more.", repairs=("disk_changed",)
)
DISK_CORRUPTED: Final = _kind(
    "disk_corrupted", _C.FAULT, "A bit was flipped in a file of the node's disk."
)
CLOCK_SKEWED: Final = _kind("clock_skewed", _C.FAULT, "A node's clock was set off.")

INBOX_OBSERVED: Final = _kind(
    "inbox_observed", _C.SAMPLE,
    "An inbox holds `count` messages, held `peak` at most, and received `total` since the last.",
)  # fmt: skip
MESSAGES_OBSERVED: Final = _kind(
    "messages_observed", _C.SAMPLE, "An actor received `count` messages of one type from the peer."
)
PROCESSING_OBSERVED: Final = _kind(
    "processing_observed", _C.SAMPLE,
    "A consumer's user processed records for `count` of the last `total` µs.",
)  # fmt: skip
KEY_COUNTED: Final = _kind(
    "key_counted", _C.SAMPLE, "A hot key had `count` of the last `total` records of a partition."
)

CONTROLLER_CHANGED: Final = _kind(
    "controller_changed", _C.CLUSTER,
    "A controller became the active one; the epoch is its term. Not recorded of the first start of "
    "the only controller.",
)  # fmt: skip
BROKER_REGISTERED: Final = _kind(
    "broker_registered", _C.CLUSTER, "The controller registered a broker, the peer."
)
BROKER_LOST: Final = _kind(
    "broker_lost", _C.CLUSTER, "The controller gave a broker up, the peer, for the given reason."
)
BROKER_UNREGISTERED: Final = _kind(
    "broker_unregistered", _C.CLUSTER,
    "A broker, the peer, is about to stop: others have its partitions and coordinators.",
)  # fmt: skip
BROKER_REMOVED: Final = _kind(
    "broker_removed", _C.CLUSTER, "A broker, the peer, was removed for good: it has no replicas."
)
BROKER_FENCED: Final = _kind(
    "broker_fenced", _C.CLUSTER, "A broker gave up its `count` partitions, for the given reason."
)
TOPIC_CREATED: Final = _kind("topic_created", _C.CLUSTER, "A topic with `count` partitions.")
TOPIC_DELETED: Final = _kind("topic_deleted", _C.CLUSTER, "A topic was deleted with its records.")
PARTITIONS_ADDED: Final = _kind(
    "partitions_added", _C.CLUSTER, "A topic has `count` partitions from now on."
)
LEADER_CHANGED: Final = _kind(
    "leader_changed", _C.CLUSTER,
    "A broker, the peer, leads a partition from now on, for the given reason. With an offset: the "
    "log before it is lost.",
)  # fmt: skip
LEADER_LOST: Final = _kind(
    "leader_lost", _C.CLUSTER,
    "A partition has no leader, as none of its replicas may lead; the peer was the last one.",
)  # fmt: skip
IN_SYNC_CHANGED: Final = _kind(
    "in_sync_changed", _C.CLUSTER,
    "Of the `total` replicas of a partition `count` are in sync now: those in the detail.",
)  # fmt: skip
REPLICAS_CHANGED: Final = _kind(
    "replicas_changed", _C.CLUSTER,
    "A partition has other replicas, `total` of them, or a reassignment to others has begun.",
)  # fmt: skip
REPLICA_TRUNCATED: Final = _kind(
    "replica_truncated", _C.CLUSTER,
    "A follower has cut off `count` records that its leader does not have.",
)  # fmt: skip

LOG_RECOVERED: Final = _kind(
    "log_recovered", _C.CLUSTER,
    "A partition read its log from disk: `count` records, which took `total` µs.",
)  # fmt: skip
LOG_TRUNCATED: Final = _kind(
    "log_truncated", _C.CLUSTER, "A partition cut off a damaged file, at the place in the detail."
)
LOG_DAMAGED: Final = _kind(
    "log_damaged", _C.CLUSTER,
    "Records on a disk are damaged and cannot be read, at the place in the detail.",
)  # fmt: skip
STORAGE_FAILED: Final = _kind(
    "storage_failed", _C.CLUSTER, "A broker's disk failed, for the given reason."
)

# Events about records speak of ranges, each within one appended batch.

APPENDED: Final = _kind("appended", _C.PROGRESS, "Records of a producer were appended.")
DEDUPLICATED: Final = _kind(
    "deduplicated", _C.PROGRESS, "Records were sent again and stored only once."
)
DELIVERED: Final = _kind(
    "delivered", _C.PROGRESS, "Records were handed to a consumer's user, after `retries` failures."
)
ACKNOWLEDGED: Final = _kind(
    "acknowledged", _C.PROGRESS,
    "A group is done with records: by committing an offset, or record by record (see `mode`).",
)  # fmt: skip
DEAD_LETTERED: Final = _kind(
    "dead_lettered", _C.PROGRESS, "A group gave records up; they are in its dead-letter topic."
)
REPLAYED: Final = _kind("replayed", _C.PROGRESS, "Records were read again without any group.")

ARCHIVED: Final = _kind(
    "archived", _C.LOSS, "A group gave records up, and it has no dead-letter topic."
)
LOST: Final = _kind(
    "lost", _C.LOSS,
    "Records are gone for the given reason: all copies, or before the group had consumed them.",
)  # fmt: skip
TAIL_LOST: Final = _kind(
    "tail_lost", _C.LOSS,
    "Records that no consumer could see are lost: their producer was told that they are stored, "
    "and the next leader does not have them.",
)  # fmt: skip
GIVEN_UP: Final = _kind(
    "given_up", _C.LOSS, "A producer gave a batch up, for the given reason, after `retries`."
)

SEND_RETRIED: Final = _kind(
    "send_retried", _C.RETRY, "A producer sends a batch again, for the given reason."
)
NACKED: Final = _kind("nacked", _C.RETRY, "A consumer refused records; they are delivered again.")
ACK_TIMED_OUT: Final = _kind(
    "ack_timed_out", _C.RETRY, "A consumer did not acknowledge records in time."
)
HANDLER_FAILED: Final = _kind(
    "handler_failed", _C.RETRY, "A consumer's handler raised the error in the detail."
)

LISTENER_FAILED: Final = _kind(
    "listener_failed",
    _C.OWNERSHIP,
    "A consumer's rebalance listener raised the error in the detail.",
)

REMOVED: Final = _kind(
    "removed", _C.CLEANUP, "Records were removed by the topic's clean-up policy, the reason."
)
CLEANUP_FAILED: Final = _kind("cleanup_failed", _C.CLEANUP, "A partition could not be compacted.")
SUBSCRIPTION_REMOVED: Final = _kind(
    "subscription_removed", _C.CLEANUP, "A partition forgot a group that was away too long."
)

PAYLOAD_STORED: Final = _kind("payload_stored", _C.PAYLOAD, "Values were stored.")
PAYLOAD_REMOVED: Final = _kind("payload_removed", _C.PAYLOAD, "Values were removed.")
PAYLOAD_KEPT: Final = _kind("payload_kept", _C.PAYLOAD, "A value could not be removed.")
PAYLOAD_MISSING: Final = _kind("payload_missing", _C.PAYLOAD, "A value is lost or damaged.")

MEMBER_JOINED: Final = _kind(
    "member_joined", _C.OWNERSHIP, "A member joined; a static one in place of the peer."
)
MEMBER_LEFT: Final = _kind("member_left", _C.OWNERSHIP, "A member left, for the given reason.")
REBALANCE_STARTED: Final = _kind(
    "rebalance_started", _C.OWNERSHIP, "A group rebalances, for the given reason."
)
REBALANCE_COMPLETED: Final = _kind(
    "rebalance_completed", _C.OWNERSHIP, "All `count` members of a group have their assignment."
)
ASSIGNED: Final = _kind("assigned", _C.OWNERSHIP, "A member started on a partition.")
REVOKED: Final = _kind("revoked", _C.OWNERSHIP, "A member gave a partition up, for the reason.")
CLAIMED: Final = _kind("claimed", _C.OWNERSHIP, "A partition accepted a member as its reader.")
ASSIGNOR_FAILED: Final = _kind(
    "assignor_failed", _C.OWNERSHIP, "A user's assignor failed; the group uses ranges instead."
)
FENCED: Final = _kind(
    "fenced", _C.OWNERSHIP, "A partition refused a member or a producer of an older epoch."
)
OFFSET_RESET: Final = _kind(
    "offset_reset", _C.OWNERSHIP, "A group without a valid position starts where the reason says."
)
OFFSET_REWOUND: Final = _kind(
    "offset_rewound", _C.OWNERSHIP, "A group committed an offset before its committed one."
)
STUCK: Final = _kind(
    "stuck", _C.OWNERSHIP, "A member leaves because its user has not polled in time."
)
SUBSCRIBER_INACTIVE: Final = _kind(
    "subscriber_inactive", _C.OWNERSHIP, "A partition gives a member no more records."
)
SUBSCRIBER_REMOVED: Final = _kind(
    "subscriber_removed", _C.OWNERSHIP, "A partition forgot a member, for the given reason."
)
SLOTS_MOVED: Final = _kind(
    "slots_moved", _C.OWNERSHIP, "A partition moved `count` slots of keys to other members."
)
