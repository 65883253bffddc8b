"""The part of a controller that keeps the metadata log with the other controllers, by Raft.

The controller that leads the log is the active one. It makes each change at once and puts it into
the log (`propose`); what tells others of a change waits until the change is committed (`promise`).
The other controllers make the changes when they are committed. A controller that no longer leads
may have made changes that never will be: it makes its metadata again, from what is committed.

On a disk, the log is a journal (`StoredRaft`) that is synced. Without disks, it is kept outside of
the controllers, so that it outlives them: a cluster in memory stands for one whose controllers have
disks that take no time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from ...model.consensus.effects import NEVER, Proposal
from ...model.consensus.messages import EntryKind
from ...model.consensus.raft import Raft, RaftState
from ...model.consensus.stored_raft import StoredRaft
from ...model.journal import encode_entry, scan_entries
from .journal import JOURNAL, SNAPSHOT, Journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...model.consensus.effects import Persist, RaftSettings, Ready
    from ...model.consensus.messages import RaftMessage
    from ..engine.disk import DiskFailed, FolderRead, Scanners
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from ..engine.timers import Timer
    from .group_writer import GroupWritten
    from .journal import Entry, SnapshotDurable

FOLDER: Final = "metadata"
SNAPSHOT_ENTRIES: Final = 10_000
"""Committed changes after which a snapshot takes their place."""


@attrs.frozen
class RaftTick:
    """Time for a heartbeat, or to look for a new leader."""


@attrs.frozen
class MetadataRead:
    """The journal was asked for."""


class LogOwner(Protocol):
    """What a controller does for its log."""

    def apply(self, entry: Entry) -> None:
        """Make a change that is committed."""

    def rebuild(self, entries: Iterable[Entry]) -> None:
        """Begin again with these changes, which are committed."""

    def summarize(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Describe the metadata that these changes lead to."""

    def activated(self) -> None:
        """Go on as the active controller: all that is committed is applied."""

    def deactivated(self, unanswered: Iterable[Ref]) -> None:
        """Go on as one that is not active; what was promised to these actors is not sent."""


class MetadataLog:
    """One controller's copy of the metadata log."""

    def __init__(
        self,
        effects: Effects,
        settings: RaftSettings,
        voters: tuple[str, ...],
        owner: LogOwner,
    ) -> None:
        """Belong to a new cluster with these controllers, unless there is a log already."""
        self._effects = effects
        self._voters = voters
        self._owner = owner
        self._settings = settings
        self._stored = StoredRaft(voters)
        self.journal: Journal | None = None
        """The log on the disk, if there is one."""
        self.raft: Raft | None = None
        """The state machine; `None` until the disk is read."""
        self.is_active = False
        """Whether this is the active controller, as far as it knows."""
        self._term = 0
        """The term in which it is active."""
        self._applied = 0
        """Index of the last entry that the metadata have."""
        self._outbox: deque[tuple[int, Ref, object]] = deque()
        """Messages that wait until an entry is committed, by its index."""
        self._reads: dict[int, tuple[Ref, object]] = {}
        """Messages that wait until others confirm that this is the active controller."""
        self._on_their_way: deque[tuple[int, int]] = deque()
        """Orders to the disk: the last change of the journal, and the number of the order."""
        self._last_read = 0
        self._queue: deque[Ready] = deque()
        self._is_busy = False
        self._is_held = False
        """Whether nobody gets an answer yet."""
        self._timer: Timer | None = None
        self._timer_due_us = 0

    @property
    def is_committed(self) -> bool:
        """Whether all changes so far are committed."""
        assert self.raft is not None
        return self.raft.log.last_index <= self._applied

    @property
    def term(self) -> int:
        """The term in which this controller became active last."""
        return self._term

    # Starting

    def open_memory(self, retained: dict[str, StoredRaft]) -> None:
        """Go on with the log that was kept for this controller."""
        self._stored = retained.setdefault(self._effects.ref.name, self._stored)
        self._start()

    def open_disk(self) -> None:
        """Read the log; the answer is a `FolderRead`.

        Nobody gets an answer before that, and from the only controller before it is active.
        """
        effects = self._effects
        disk, virtual = effects.disk, effects.time_is_virtual
        self.journal = Journal(
            effects, disk, FOLDER, (lambda entry: entry) if virtual else encode_entry,
            lambda: self._stored.entries(), sync=True,
        )  # fmt: skip
        effects.hold_messages()
        self._is_held = True
        scanners: Scanners = {JOURNAL: scan_entries, SNAPSHOT: scan_entries}
        disk.read_folder(FOLDER, scanners, MetadataRead())

    def on_folder_read(self, read: FolderRead) -> None:
        """Go on with what was read, once it is synced."""
        assert self.journal is not None
        for entry in self.journal.read(read.files):
            self._stored.apply(entry)
        self.journal.begin()

    def on_snapshot_durable(self, durable: SnapshotDurable) -> None:
        """Begin to take part, if it is the snapshot of the start."""
        assert self.journal is not None
        if self.journal.on_snapshot_durable(durable):
            self._start()
            assert self.raft is not None
            if self.raft.voters != (self._effects.ref.name,):
                self._release()

    def _release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._effects.release_messages()

    def on_written(self, written: GroupWritten) -> None:
        """Go on with what waited for the disk."""
        assert self.journal is not None
        self.journal.on_written(written)
        self._confirm_persisted()

    def _confirm_persisted(self) -> None:
        """Go on with what had to be on the disk."""
        assert self.journal is not None
        number = 0
        while self._on_their_way and self._on_their_way[0][0] <= self.journal.written:
            _, number = self._on_their_way.popleft()
        if number:
            assert self.raft is not None
            self._process(self.raft.persisted(number, self._effects.monotonic))

    def on_failed(self, failed: DiskFailed) -> None:
        """Try again later to write."""
        assert self.journal is not None
        self.journal.on_failed(failed)

    def retry(self) -> None:
        """Write what could not be written."""
        assert self.journal is not None
        self.journal.retry()
        self._confirm_persisted()

    def _start(self) -> None:
        effects, stored = self._effects, self._stored.state
        self.raft = Raft(
            effects.ref.name, stored, self._settings, effects.random, effects.monotonic
        )
        self._applied = stored.snapshot.index
        self._owner.rebuild(self._committed())
        is_new = not stored.term
        # The only controller need not wait for others. In a new cluster there is no leader to wait
        # for, and the last one to start finds all others there.
        is_last = effects.ref.name == max(self._voters)
        if self.raft.voters == (effects.ref.name,) or (is_new and is_last):
            self._process(self.raft.campaign(effects.monotonic))
        else:
            self._set_timer()

    # What the active controller does

    def propose(self, entries: Iterable[Entry]) -> None:
        """Put changes into the log, which are made here already."""
        assert self.raft is not None
        proposals = [Proposal(entry) for entry in entries]
        ready = self.raft.propose(proposals, self._effects.monotonic)
        assert ready.refused is None
        self._process(ready)

    def promise(self, to: Ref, message: object) -> None:
        """Send a message once all changes so far are committed."""
        assert self.raft is not None
        index = self.raft.log.last_index
        if index <= self._applied:
            self._effects.send(to, message)
        else:
            self._outbox.append((index, to, message))

    def confirm(self, to: Ref, message: object) -> None:
        """Send a message once a majority has confirmed that this is still the active controller."""
        assert self.raft is not None
        self._last_read += 1
        self._reads[self._last_read] = (to, message)
        ready = self.raft.read(self._last_read, self._effects.monotonic)
        assert ready.refused is None
        self._process(ready)

    @property
    def leader(self) -> Ref | None:
        """The controller that leads the log, if that is known and another one."""
        leader = None if self.raft is None else self.raft.leader
        if leader is None or leader == self._effects.ref.name:
            return None
        return self._effects.find(leader)

    # What happens

    def receive(self, message: RaftMessage) -> None:
        """Handle a message of another controller; before the disk is read there is no answer."""
        if self.raft is not None:
            self._process(self.raft.receive(message, self._effects.monotonic))

    def tick(self) -> None:
        """Do what is due by now."""
        assert self.raft is not None
        self._timer = None
        self._process(self.raft.tick(self._effects.monotonic))

    def catch_up(self) -> None:
        """Do what is overdue: a controller that was paused may not be the active one any more."""
        raft = self.raft
        if raft is not None and self._timer is not None:
            now_us = self._effects.monotonic
            if raft.deadline_us <= now_us:
                self._process(raft.tick(now_us))

    def _process(self, ready: Ready) -> None:
        """Carry out what Raft wants done. What that leads to comes after it, in order."""
        self._queue.append(ready)
        if self._is_busy:
            return
        self._is_busy = True
        while self._queue:
            self._carry_out(self._queue.popleft())
        self._is_busy = False
        self._set_timer()

    def _carry_out(self, ready: Ready) -> None:
        assert self.raft is not None
        order = ready.persist
        is_persisted = order is not None and self._persist(order)
        for message in ready.messages:
            to = self._effects.find(message.to)
            if to is not None:
                self._effects.send(to, message)
        self._apply(ready)
        for read in ready.reads:
            waiting = self._reads.pop(read.request, None)
            if waiting is not None:
                self._effects.send(*waiting)
        for request in ready.failed_reads:
            self._reads.pop(request, None)
        if order is not None and is_persisted:
            self._queue.append(self.raft.persisted(order.number, self._effects.monotonic))
        if not self._queue and self._applied - self.raft.log.base_index > SNAPSHOT_ENTRIES:
            parts = tuple(self._owner.summarize(self._committed()))
            self._queue.append(self.raft.compact(self._applied, parts, self._effects.monotonic))

    def _persist(self, order: Persist) -> bool:
        """Give an order to the disk; return whether it is carried out already."""
        journal = self.journal
        for entry in list(self._stored.changes(order)):
            if journal is not None:
                journal.add(entry)
            self._stored.apply(entry)
        if journal is None or journal.is_written:
            return True
        self._on_their_way.append((journal.added, order.number))
        return False

    def _apply(self, ready: Ready) -> None:
        """Make the metadata those that are committed, and send what waited for that."""
        raft = self.raft
        assert raft is not None
        leads = raft.state is RaftState.LEADER
        if self.is_active and not (leads and raft.term == self._term):
            self.is_active = False
            unanswered = [to for _, to, _ in self._outbox]
            unanswered += [to for to, _ in self._reads.values()]
            self._outbox.clear()
            self._reads.clear()
            self._applied = raft.applied_index
            self._owner.rebuild(self._committed())
            self._owner.deactivated(unanswered)
        elif ready.restore is not None:
            self._applied = raft.applied_index
            self._owner.rebuild(self._committed())
        begins = False
        for entry in ready.committed:
            if entry.index <= self._applied:
                continue
            self._applied = entry.index
            if entry.kind is EntryKind.DATA and not (self.is_active and entry.term == self._term):
                payload: Any = entry.payload
                self._owner.apply(payload)
            elif entry.kind is EntryKind.NO_OP and leads and entry.term == raft.term:
                begins = True
        if begins:
            self.is_active, self._term = True, raft.term
            self._owner.activated()
            self._release()
        while self._outbox and self._outbox[0][0] <= self._applied:
            _, to, message = self._outbox.popleft()
            self._effects.send(to, message)

    def _committed(self) -> Iterator[Entry]:
        """All changes up to the last one that is applied: a snapshot, and what came after it."""
        assert self.raft is not None
        log: Any = self.raft.log
        yield from log.snapshot.parts
        for entry in log.between(log.base_index, self._applied):
            if entry.kind is EntryKind.DATA:
                yield entry.payload

    def _set_timer(self) -> None:
        """Keep a timer that fires at the deadline or earlier."""
        assert self.raft is not None
        due_us = self.raft.deadline_us
        if due_us == NEVER or (self._timer is not None and self._timer_due_us <= due_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_us = max(0, due_us - self._effects.monotonic)
        self._timer = self._effects.after(wait_us, RaftTick(), background=True)
        self._timer_due_us = due_us
