"""A tour in one run: two nodes, a cut link, a crash; simulated, recorded, read back in Spark.

A client asks a server for work and asks again when no answer comes in time. On the way the link
between them is cut for two seconds and the server's node crashes. Nothing is lost for good.
"""

import tempfile
from pathlib import Path

import attrs

import wavetank as wt

REQUESTS = 500
PATIENCE_US = 250_000


@attrs.frozen
class Request:
    """Asks for one piece of work."""

    number: int


@attrs.frozen
class Answer:
    """Says that it is done."""

    number: int


@attrs.frozen
class Overdue:
    """Tells the client that an answer should be here by now."""

    number: int


class Server(wt.Actor):
    """Does each piece of work at once."""

    @wt.receives(Request)
    def on_request(self, request: Request) -> None:
        self.record("served", count=request.number)
        self.reply(Answer(request.number))


class Client(wt.Actor):
    """Wants every piece of work done, one after the other."""

    def __init__(self, server: wt.Ref) -> None:
        self.server = server

    def started(self) -> None:
        self.ask_for(1)

    def ask_for(self, number: int) -> None:
        self.record("asked", count=number)
        self.send(self.server, Request(number))
        self.timer = self.after(PATIENCE_US, Overdue(number))

    @wt.receives(Overdue)
    def on_overdue(self, overdue: Overdue) -> None:
        self.ask_for(overdue.number)

    @wt.receives(Answer)
    def on_answer(self, answer: Answer) -> None:
        self.timer.cancel()
        self.record("answered", count=answer.number)
        if answer.number < REQUESTS:
            self.ask_for(answer.number + 1)


def simulate(out: Path) -> None:
    """Run the story once, in virtual time."""
    with wt.SimulatedSystem(seed=7, network=wt.uniform("3ms", "9ms"), out=out) as system:
        server = system.spawn(Server, "server", node="backend")
        system.spawn(Client, "client", server, node="frontend")
        system.run(until=2)
        system.cut("frontend", "backend")
        system.run(until=4)
        system.heal("frontend", "backend")
        system.run(until=5)
        system.crash("backend")
        system.run(until=6)
        system.restart("backend")
        system.run_until_idle()
        answered = {event.count for event in system.events.of("answered")}
        asked = len(system.events.of("asked"))
        print(
            f"{len(answered)} of {REQUESTS} requests answered in {system.now:.3f} virtual seconds"
        )
        print(f"{asked - REQUESTS} had to be sent again")
    print(f"digest {system.events.digest[:16]}: the same in every run with this seed")


def report(out: Path) -> None:
    """Read the event log in Spark and show what happened, second by second."""
    from wavetank import analytics

    spark = analytics.session()
    analytics.happenings(analytics.load(spark, out)).filter("kind != 'started'").show(60)
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        simulate(Path(folder, "run"))
        report(Path(folder, "run"))
