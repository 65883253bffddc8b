"""Consensus: Raft as a pure state machine, which controllers are built on.

- `raft`: the state machine, with the table that drives it
- `messages`: what the nodes send each other, and what stands in the log
- `effects`: what the machine asks its owner to do
- `raft_log`: the part of the log that is in memory
- `progress`: how far a leader has come with each other node
- `quorum`: arithmetic of majorities
"""
