"""Hot keys in a key-shared group: slots move to idle consumers, and every key stays in order."""

from collections import Counter, defaultdict
from itertools import groupby

import wavetank as wt

handled = []


def handler(name):
    return lambda clicks: handled.extend((name, click) for click in clicks)


with wt.Cluster.simulated(seed=4) as cluster:
    cluster.create_topic("clicks")
    group = cluster.group("sessions", ["clicks"], delivery="key_shared")
    for name in ("ann", "bob", "cai", "dee"):
        group.consumer(name, handler(name))
    group.assignment()
    load = wt.load.Load("clicks", wt.load.Poisson(500), keys=wt.load.ZipfKeys(1_000))
    cluster.producer("site", load=load)
    cluster.run(for_="30s")
    moves = cluster.events.of("slots_moved")
    keys = group.keys()[wt.TopicPartition("clicks", 0)]

print("hottest keys:", ", ".join(f"{key} ({n / keys.total:.0%})" for key, n in keys.hot[:4]))
since_us = 0
turns = [(move.time_us, f"; then {move.count} slots move") for move in moves]
for end_us, turn in [*turns, (30_000_000, "")]:
    names = [name for name, click in handled if since_us <= click.read_us < end_us]
    shares = (f"{name} {count / len(names):.0%}" for name, count in sorted(Counter(names).items()))
    print(f"until {end_us // 1_000_000:2} s: {', '.join(shares)}{turn}")
    since_us = end_us

histories = defaultdict(list)
for name, click in handled:
    histories[click.key].append((click.offset, name))
assert all(history == sorted(history) for history in histories.values()), "a key is out of order"
owners = Counter(len(list(groupby(name for _, name in history))) for history in histories.values())
print(f"{len(histories)} keys, each in order: {owners[1]} always with one consumer,", end=" ")
print(f"{owners[2]} with a second one after a move")
