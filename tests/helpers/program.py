"""One program of actors that runs on both engines: a ping-pong and a request/reply protocol.

Run as a script it prints the digest of its events: `python tests/program.py SEED`.
"""

import sys

import attrs

import wavetank as wt

RALLIES = 40
REQUESTS = 25


@attrs.frozen
class Ball:
    """Goes back and forth."""

    rally: int


@attrs.frozen
class Swing:
    """The moment at which a player hits the ball."""

    ball: Ball
    to: wt.Ref


class Player(wt.Actor):
    """Hits the ball back after a moment of its own choosing."""

    def __init__(self, opponent: wt.Ref | None = None) -> None:
        self.opponent = opponent

    def started(self) -> None:
        if self.opponent is not None:
            self.send(self.opponent, Ball(1))

    @wt.receives(Ball)
    def on_ball(self, ball: Ball) -> None:
        self.record("caught", count=ball.rally)
        if ball.rally < RALLIES:
            self.after(self.random.randint(10, 900), Swing(Ball(ball.rally + 1), self.sender))

    @wt.receives(Swing)
    def on_swing(self, swing: Swing) -> None:
        self.send(swing.to, swing.ball)


@attrs.frozen
class Request:
    """Asks the server for the square of a number."""

    number: int


@attrs.frozen
class Answer:
    """The square, with the number it belongs to."""

    number: int
    square: int


@attrs.frozen
class Retry:
    """The answer to this number is overdue."""

    number: int


class Server(wt.Actor):
    """Answers, but forgets one request in five."""

    @wt.receives(Request)
    def on_request(self, request: Request) -> None:
        if self.numpy_random.random() < 0.8:
            self.reply(Answer(request.number, request.number**2))


class Client(wt.Actor):
    """Asks for one square after the other, and again when no answer comes."""

    def __init__(self, server: wt.Ref) -> None:
        self.server = server
        self.total = 0

    def started(self) -> None:
        self.ask_for(1)

    def ask_for(self, number: int) -> None:
        self.send(self.server, Request(number))
        self.timer = self.after(20_000, Retry(number))

    @wt.receives(Retry)
    def on_retry(self, retry: Retry) -> None:
        self.record("retried", count=retry.number)
        self.ask_for(retry.number)

    @wt.receives(Answer)
    def on_answer(self, answer: Answer) -> None:
        self.timer.cancel()
        self.total += answer.square
        self.record("answered", count=answer.number, bytes=self.total)
        if answer.number < REQUESTS:
            self.ask_for(answer.number + 1)


def play(system: wt.SimulatedSystem | wt.LiveSystem) -> None:
    """Run both to their end."""
    receiver = system.spawn(Player, "receiver", node="east")
    system.spawn(Player, "server", receiver, node="west")
    answering = system.spawn(Server, "answering", node="east")
    system.spawn(Client, "client", answering, node="west")
    system.run_until_idle(timeout=60)


def digest(seed: int) -> str:
    """The digest of a simulated run."""
    with wt.SimulatedSystem(seed, network=wt.network.lognormal("300us")) as system:
        play(system)
    return system.events.digest


if __name__ == "__main__":
    print(digest(int(sys.argv[1])))
