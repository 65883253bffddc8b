"""An assignor of one's own: the member with the better machine gets twice as much."""

import wavetank as wt

STRENGTH = {"large": 2, "small-1": 1, "small-2": 1}


def by_strength(members, partitions):
    """Deal partitions to whoever has least for its strength; a pure function, as all assignors."""
    shares = {member.id: [] for member in members}
    for topic in sorted(partitions):
        for number in range(partitions[topic]):
            poorest = min(shares, key=lambda name: (len(shares[name]) / STRENGTH[name], name))
            shares[poorest].append(wt.TopicPartition(topic, number))
    return shares


with wt.Cluster.simulated(seed=1) as cluster:
    cluster.create_topic("jobs", partitions=12)
    group = cluster.group("workers", topics=["jobs"], assignor=by_strength)
    for name in STRENGTH:
        group.consumer(name)
    for name, share in sorted(group.assignment().items()):
        print(f"{name}: {len(share)} partitions")
