"""A poison message: its neighbours go through, it ends in the dead letters and is helped there."""

import logging

import wavetank as wt

# Failures of handlers are logged with their tracebacks; here the event log tells of them.
logging.getLogger("wavetank").disabled = True

PRICES = {"tea": 3, "coffee": 4}
paid = {}


def charge(orders):
    """Write by id: what was in a lot that failed comes again, and must not be charged twice."""
    for order in orders:
        paid[order.value["id"]] = PRICES[order.value["item"]]


with wt.Cluster.simulated(seed=5) as cluster:
    cluster.create_topic("orders", type=dict)
    till = cluster.group(
        "till", ["orders"], delivery="shared", max_deliveries=3, dead_letter_topic="unpaid"
    )
    till.consumer("cashier", charge)
    shop = cluster.producer("shop")
    for number, item in enumerate(["tea", "coffee", "cocoa", "tea", "coffee"]):
        shop.send("orders", {"id": number, "item": item})
    cluster.run(for_="10s")
    for event in cluster.events:
        if event.kind in ("delivered", "nacked", "acknowledged", "dead_lettered"):
            offsets = f"{event.base_offset} to {event.base_offset + event.count - 1}"
            print(f"{event.time_us:7} {event.kind:13} {offsets}  {event.detail or ''}".rstrip())
    print(f"paid: {paid}, still to do: {sum(till.lag().values())}")

    letters = list(till.dead_letters())
    for letter in letters:
        why = wt.dead_letter(letter)
        print(f"{letter.value} was delivered {why.deliveries} times, at last {why.reason}")
    PRICES["cocoa"] = 5
    print(f"cocoa has a price now, {till.republish(letters)} order republished")
    cluster.run(for_="1s")
    print(f"paid: {paid}, still to do: {sum(till.lag().values())}")
