"""Which controller to ask: a small part of everybody who talks to the controllers.

Only the active controller answers. Another one names it, if it knows it; a controller that gives no
answer at all may be down, and then the next one is asked. When to ask again is up to the owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine.ref import Ref


class ControllerFinder:
    """Remembers which controller to ask."""

    def __init__(self, controllers: tuple[Ref, ...]) -> None:
        self.controllers = controllers
        """All controllers."""
        self.current = controllers[0]
        """The one to ask."""
        self._is_waiting = False
        """Whether it has not answered yet."""

    def to_ask(self) -> Ref:
        """Return the controller to ask; it is the next one if the last one has not answered."""
        if self._is_waiting:
            self.give_up()
        self._is_waiting = True
        return self.current

    def answered(self) -> None:
        """Note an answer of the active controller."""
        self._is_waiting = False

    def found(self, controller: Ref) -> bool:
        """Note that this controller is active; return whether it is another one than before."""
        is_new = controller is not self.current
        self.current, self._is_waiting = controller, False
        return is_new

    def refused(self, controller: Ref, active: Ref | None) -> bool:
        """Note that a controller is not active; return whether to ask `current` at once."""
        if controller is not self.current:
            return False  # it has answered an earlier question
        if active is None:
            self.give_up()
            return False
        self.current, self._is_waiting = active, False
        return True

    def give_up(self) -> None:
        """Go on to the next controller."""
        known = self.controllers
        place = known.index(self.current) if self.current in known else -1
        self.current, self._is_waiting = known[(place + 1) % len(known)], False
