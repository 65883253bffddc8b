"""The faults of a link between two nodes, and the verdict on one message that crosses it."""

from typing import Final, NamedTuple

import attrs

from .errors import BadValueError


class Verdict(NamedTuple):
    """What happens to one message from one node to another."""

    delays_us: tuple[int, ...]
    """The delay of each copy that arrives. Empty drops the message, two values duplicate it."""
    hold: bool = False
    """Whether to keep the message until the link is healed, as TCP would by retransmission."""
    ordered: bool = True
    """Whether the message must arrive after those sent before it on the same link."""


DROP: Final = Verdict(())
HOLD: Final = Verdict((), hold=True)


def _probability(_: object, field: "attrs.Attribute[float]", value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadValueError(f"{field.name} = {value!r}: expected a probability from 0 to 1")


@attrs.frozen
class Faults:
    """The faults of one direction of a link."""

    cut: bool = False
    """Whether all messages are dropped."""
    hold: bool = False
    """Whether all messages are held until the link is healed."""
    delay_us: int = 0
    """Delay added to every message."""
    drop: float = attrs.field(default=0.0, validator=_probability)
    """Probability that a message is dropped."""
    duplicate: float = attrs.field(default=0.0, validator=_probability)
    """Probability that a message arrives twice."""
    reorder: float = attrs.field(default=0.0, validator=_probability)
    """Probability that a message is delayed by up to `late_us`, and may be overtaken."""
    late_us: int = 10_000
    """Longest extra delay of a reordered message, and of the second copy of a duplicate."""


CALM: Final = Faults()
