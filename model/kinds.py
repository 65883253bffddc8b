"""The kinds of events, past tense. The set is open: actors record kinds of their own."""

from typing import Final

# The engines

STARTED: Final = "started"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
RESTARTED: Final = "restarted"
UNHANDLED: Final = "unhandled"
UNDELIVERABLE: Final = "undeliverable"
DROPPED: Final = "dropped"
DUPLICATED: Final = "duplicated"
HELD: Final = "held"
NODE_CRASHED: Final = "node_crashed"
NODE_RESTARTED: Final = "node_restarted"
NODE_PAUSED: Final = "node_paused"
NODE_RESUMED: Final = "node_resumed"
LINK_CUT: Final = "link_cut"
LINK_HEALED: Final = "link_healed"
LINK_CHANGED: Final = "link_changed"
CLOCK_SKEWED: Final = "clock_skewed"
INBOX_OBSERVED: Final = "inbox_observed"
MESSAGES_OBSERVED: Final = "messages_observed"

# Brokers and topics

BROKER_REGISTERED: Final = "broker_registered"
BROKER_LOST: Final = "broker_lost"
BROKER_FENCED: Final = "broker_fenced"
TOPIC_CREATED: Final = "topic_created"
TOPIC_DELETED: Final = "topic_deleted"
PARTITIONS_ADDED: Final = "partitions_added"
LEADER_CHANGED: Final = "leader_changed"

# Records: ranges, each within one appended batch

APPENDED: Final = "appended"
DEDUPLICATED: Final = "deduplicated"
DELIVERED: Final = "delivered"
ACKNOWLEDGED: Final = "acknowledged"
NACKED: Final = "nacked"
ACK_TIMED_OUT: Final = "ack_timed_out"
ARCHIVED: Final = "archived"
DEAD_LETTERED: Final = "dead_lettered"
REMOVED: Final = "removed"
CLEANUP_FAILED: Final = "cleanup_failed"
REPLAYED: Final = "replayed"
LOST: Final = "lost"
GIVEN_UP: Final = "given_up"
SEND_RETRIED: Final = "send_retried"

# Values kept apart from their records

PAYLOAD_STORED: Final = "payload_stored"
PAYLOAD_REMOVED: Final = "payload_removed"
PAYLOAD_KEPT: Final = "payload_kept"
PAYLOAD_MISSING: Final = "payload_missing"

# Groups

MEMBER_JOINED: Final = "member_joined"
MEMBER_LEFT: Final = "member_left"
REBALANCE_STARTED: Final = "rebalance_started"
REBALANCE_COMPLETED: Final = "rebalance_completed"
ASSIGNED: Final = "assigned"
REVOKED: Final = "revoked"
CLAIMED: Final = "claimed"
ASSIGNOR_FAILED: Final = "assignor_failed"
FENCED: Final = "fenced"
OFFSET_RESET: Final = "offset_reset"
HANDLER_FAILED: Final = "handler_failed"
STUCK: Final = "stuck"
SUBSCRIBER_INACTIVE: Final = "subscriber_inactive"
SUBSCRIBER_REMOVED: Final = "subscriber_removed"
SUBSCRIPTION_REMOVED: Final = "subscription_removed"
SLOTS_MOVED: Final = "slots_moved"
KEY_COUNTED: Final = "key_counted"
