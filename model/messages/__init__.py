"""Every message between actors, one module for each conversation.

- `client`: producers and consumers with partitions, and users with their producers and consumers
- `group`: members of a consumer group with the group's coordinator
- `share`: members of a share group with partitions, and users with their share consumers
- `cluster`: the controller with brokers, with clients that ask for metadata, and with users

Messages that an actor sends only to itself, such as timers, are in the module of the actor.

A message is immutable all the way down: its receiver may keep it, and its sender goes on with the
objects it was made of. tests/model/messages holds every message to that, and to a docstring for
each of its fields.
"""
