"""Consensus and replication, as pure state machines.

Raft, which controllers keep their metadata with:

- `raft`: the state machine, with the table that drives it
- `messages`: what the nodes send each other, and what stands in the log
- `effects`: what the machine asks its owner to do
- `raft_log`: the part of the log that is in memory
- `progress`: how far a leader has come with each other node
- `quorum`: arithmetic of majorities

The metadata of replicas, which the controllers agree on:

- `replication_control`: the state machine of brokers, replicas and leaders
- `administration`: what users can order about them
- `registration`: what is known of a broker and of a partition
- `election`: who leads a partition, with the table that drives elections
- `placement`: which brokers get the replicas of new partitions
- `rebalance`: which replicas move to other brokers
- `partition_index`: finds the partitions of a broker
"""
