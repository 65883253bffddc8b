"""A replay: read records again from a time or an offset; the group's position does not change."""

import wavetank as wt

with wt.Cluster.simulated(seed=3) as cluster:
    cluster.create_topic("payments", partitions=1, type=int)
    till = cluster.producer("till")
    for amount in (10, 20, 30):
        till.send("payments", amount).get()
    cluster.run(for_="1h")
    noon = cluster.now
    for amount in (40, 50):
        till.send("payments", amount).get()

    books = cluster.group("books", topics=["payments"])
    clerk = books.consumer("clerk")
    first = [record.value for record in clerk.poll(timeout=5)]
    clerk.commit()
    print(f"booked {first}, lag {sum(books.lag().values())}")

    again = clerk.replay("payments", 0, since=noon)
    print(f"since noon: {[record.value for record in again]}")
    everything = clerk.replay("payments", 0, offset=0)
    print(f"from the start: {[record.value for record in everything]}")
    print(f"lag still {sum(books.lag().values())}")
