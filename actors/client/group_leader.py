"""The part of a member that divides the partitions, if it leads its group.

As in Kafka the coordinator only says who the members are: one of them runs the assignor, and sends
the result back with its request to sync.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...model.events import kinds
from ...strategies.assignment import (
    AssignmentMember,
    cooperative,
    range_assignor,
    resolve,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...model.messages.group import JoinAnswer
    from ...model.topics import TopicPartition
    from ...strategies.assignment import ChosenAssignor
    from ..engine.effects import Effects

logger = logging.getLogger("wavetank")


def assign(
    effects: Effects, group: str, answer: JoinAnswer
) -> tuple[tuple[str, tuple[TopicPartition, ...]], ...]:
    """Divide the partitions among the members of a generation; nothing if one does not lead it."""
    if not answer.members:
        return ()
    assignor = resolve(answer.assignor)
    # An eager member owns nothing now; a sticky assignor goes by its previous partitions.
    eager = assignor.protocol == "eager"
    members = [
        AssignmentMember(
            each.member,
            each.topics,
            each.previous if eager else each.owned,
            each.instance,
            each.generation,
        )
        for each in answer.members
    ]
    counts = dict(answer.partitions)
    if assignor.custom:
        assignment = _call_custom(effects, group, answer.generation, assignor, members, counts)
    else:
        assignment = assignor.function(members, counts)
    return tuple((member.id, tuple(assignment[member.id])) for member in members)


def _call_custom(
    effects: Effects,
    group: str,
    generation: int,
    assignor: ChosenAssignor,
    members: Sequence[AssignmentMember],
    counts: Mapping[str, int],
) -> Mapping[str, Sequence[TopicPartition]]:
    """Call a user's function; if it fails or its result is invalid, use the range assignor."""
    try:
        assignment = assignor.function(members, counts)
        validate(assignment, members, counts, assignor.protocol)
        return assignment
    except Exception as error:
        logger.error("assignor %s failed", assignor.name, exc_info=error)
        detail = f"{type(error).__name__}: {error}"
        effects.record(kinds.ASSIGNOR_FAILED, group=group, epoch=generation, detail=detail)
        eager = assignor.protocol == "eager"
        return (range_assignor if eager else cooperative(range_assignor))(members, counts)
