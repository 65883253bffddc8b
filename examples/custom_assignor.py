"""A custom assignor: the member with the larger machine gets twice as many partitions."""

import wavetank as wt

STRENGTH = {"large": 2, "small-1": 1, "small-2": 1}


def by_strength(members, partitions):
    """Give each partition to the member with the fewest for its strength.

    An assignor must be a pure function.
    """
    shares = {each.id: [] for each in members}
    for topic in sorted(partitions):
        for number in range(partitions[topic]):
            member = min(shares, key=lambda name: (len(shares[name]) / STRENGTH[name], name))
            shares[member].append(wt.TopicPartition(topic, number))
    return shares


with wt.Cluster.simulated(seed=1) as cluster:
    cluster.create_topic("jobs", partitions=12)
    group = cluster.group("workers", topics=["jobs"], assignor=by_strength)
    for name in STRENGTH:
        group.consumer(name)
    for name, share in sorted(group.assignment().items()):
        print(f"{name}: {len(share)} partitions")
