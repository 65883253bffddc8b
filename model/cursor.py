"""One group's position in one partition, kept with the partition: committed offset and owner."""

import attrs


@attrs.define
class Cursor:
    """Where a group stands in a partition, and who may move it there."""

    committed: int | None = None
    """All records before this are done; None until the group commits for the first time."""
    owner: str | None = None
    generation: int = -1
    """In which the owner has claimed the partition; who comes from an older one is fenced."""

    def claim(self, member: str, generation: int) -> bool:
        """Take the partition over, unless a newer generation has; whether it was granted."""
        if generation < self.generation:
            return False
        if generation == self.generation and self.owner not in (None, member):
            return False
        self.owner, self.generation = member, generation
        return True

    def may_act(self, member: str, generation: int) -> bool:
        """Whether this member owns the partition, now or kept since an older generation."""
        return member == self.owner and generation >= self.generation

    def commit(self, offset: int) -> int:
        """Move the position to an offset, never back; give the position it had before."""
        before = self.committed if self.committed is not None else 0
        self.committed = max(offset, before)
        return before
