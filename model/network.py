"""What the network knows and says: a link's faults, and the verdict on one message."""

from typing import Final, NamedTuple

import attrs

from .errors import BadValueError


class Verdict(NamedTuple):
    """What becomes of one message that crosses from one node to another."""

    delays_us: tuple[int, ...]
    """One copy arrives after each of these: none drops the message, two duplicate it."""
    hold: bool = False
    """Keep it until the link is healed, then deliver it (what a TCP peer would see)."""
    ordered: bool = True
    """Never overtake what this link carries already; a reordering fault says False."""


DROP: Final = Verdict(())
HOLD: Final = Verdict((), hold=True)


def _share(_: object, field: "attrs.Attribute[float]", value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadValueError(f"{field.name} = {value!r}: expected a share between 0 and 1")


@attrs.frozen
class Faults:
    """What is wrong with one direction of a link."""

    cut: bool = False
    """Nothing gets through: it is dropped."""
    hold: bool = False
    """Nothing gets through now; it arrives when the link is healed."""
    delay_us: int = 0
    """Added to every delay."""
    drop: float = attrs.field(default=0.0, validator=_share)
    """The share of messages that vanish."""
    duplicate: float = attrs.field(default=0.0, validator=_share)
    """The share of messages that arrive twice."""
    reorder: float = attrs.field(default=0.0, validator=_share)
    """The share of messages that are late by up to `late_us` and may be overtaken."""
    late_us: int = 10_000
    """How much later a reordered message, or the second copy of one, may arrive."""


CALM: Final = Faults()
