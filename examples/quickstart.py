"""First steps with a simulated cluster: two consumers share a topic."""

import wavetank as wt

with wt.Cluster.simulated(seed=7, brokers=3) as cluster:
    cluster.create_topic("orders", partitions=6, type=dict)
    shop = cluster.producer("shop", partitioner="key")
    receipt = shop.send("orders", {"id": 0}, key="alice").get()
    print(f"appended to partition {receipt.partition} at offset {receipt.offset}")
    for number in range(1, 20):
        shop.send("orders", {"id": number}, key=f"customer-{number}")

    billing = cluster.group("billing", topics=["orders"], assignor="range")
    a = billing.consumer("a")
    b = billing.consumer("b")
    for name, share in billing.assignment().items():
        print(f"{name} owns {', '.join(map(str, share))}")

    orders = []
    while len(orders) < 20:
        for consumer in (a, b):
            orders += consumer.poll(max_records=100, timeout=1.0)
    for consumer in (a, b):
        consumer.commit()
    print(f"{len(orders)} orders polled, the first one: {orders[0].value}")

    billing.set_assignor("roundrobin")
    for name, share in billing.assignment().items():
        print(f"{name} owns {', '.join(map(str, share))}")
    print(cluster.describe())
