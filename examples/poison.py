"""A poison message: other records are processed, this one becomes a dead letter and is resent."""

import logging

import wavetank as wt

# Handler failures are logged with tracebacks; this example shows them from the event log.
logging.getLogger("wavetank").disabled = True

PRICES = {"tea": 3, "coffee": 4}
paid = {}


def charge(orders):
    """Charge by id, so that an order that is redelivered after a failure is not charged twice."""
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
            print(f"{event.time_us:7} {event.kind:13} {offsets}  {event.remarks()}".rstrip())
    print(f"paid: {paid}, lag: {sum(till.lag().values())}")

    letters = list(till.dead_letters())
    for letter in letters:
        why = wt.dead_letter(letter)
        print(f"{letter.value} was delivered {why.deliveries} times, last error: {why.reason}")
    PRICES["cocoa"] = 5
    print(f"cocoa has a price now, {till.republish(letters)} order republished")
    cluster.run(for_="1s")
    print(f"paid: {paid}, lag: {sum(till.lag().values())}")
