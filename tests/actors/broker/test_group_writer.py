"""A writer of groups, on a disk that does as it is told."""

from typing import Any

import attrs

from wavetank.actors.broker.group_writer import GroupWriter, GroupWritten
from wavetank.actors.engine.disk import DiskFailed


@attrs.define
class FakeFile:
    """A file that notes the orders; nothing is ever done at once unless `instant` is set."""

    name: str
    orders: list[tuple[Any, ...]]
    instant: bool = False
    size: int = 0

    def append(self, frame: Any, size: int, message: object = None) -> bool:
        self.orders.append(("append", frame))
        self.size += size
        return self.instant

    def sync(self, message: object) -> None:
        self.orders.append(("sync", message))

    def truncate(self, size: int) -> None:
        self.orders.append(("truncate", size))
        self.size = size


@attrs.define
class FakeDisk:
    """A disk that notes syncs of folders."""

    orders: list[tuple[Any, ...]] = attrs.Factory(list)

    def sync_folder(self, folder: str, message: object = None) -> None:
        self.orders.append(("sync_folder", folder))


def make(*, sync: bool, instant: bool = False) -> tuple[Any, list[tuple[Any, ...]]]:
    disk: Any = FakeDisk()
    writer = GroupWriter(disk, "folder", "log", sync=sync)
    file: Any = FakeFile("folder/0.log", disk.orders, instant)
    writer.use(file)
    return writer, disk.orders


def test_a_group_is_appended_in_order_and_synced_once_after_the_name_of_a_new_file() -> None:
    writer, orders = make(sync=True)
    assert not writer.write([("a", 1), ("b", 2), ("c", 3)])
    done = GroupWritten("log", 1)
    assert orders == [
        ("append", "a"), ("append", "b"), ("append", "c"), ("sync_folder", "folder"),
        ("sync", done),
    ]  # fmt: skip
    assert writer.busy
    assert writer.is_written(done)
    assert not writer.busy
    orders.clear()
    writer.write([("d", 1)])
    assert orders == [("append", "d"), ("sync", GroupWritten("log", 2))]


def test_without_syncs_a_group_that_takes_no_time_is_written_at_once() -> None:
    writer, _ = make(sync=False, instant=True)
    assert writer.write([("a", 1)])
    assert writer.write([("b", 1), ("c", 1)])
    assert not writer.busy


def test_a_failed_group_is_taken_back_and_what_still_comes_about_it_does_not_count() -> None:
    writer, orders = make(sync=True)
    writer.write([("a", 10)])
    assert writer.is_written(GroupWritten("log", 1))
    writer.write([("b", 10), ("c", 10)])
    assert writer.has_failed(DiskFailed(None, "folder/0.log", "append", "full"))
    assert orders[-1] == ("truncate", 10)
    assert not writer.busy
    assert not writer.is_written(GroupWritten("log", 2))
    assert not writer.has_failed(DiskFailed(None, "folder/0.log", "append", "full"))
    writer.write([("b", 10), ("c", 10)])
    assert not writer.is_written(GroupWritten("log", 2)), "that one has failed"
    assert writer.busy
    assert writer.is_written(GroupWritten("log", 4))


def test_a_failure_of_another_file_is_none_of_this_writer() -> None:
    writer, _ = make(sync=True)
    writer.write([("a", 10)])
    assert not writer.has_failed(DiskFailed(None, "folder/1.log", "append", "full"))
    assert not writer.is_written(GroupWritten("state", 1))
    assert writer.busy


def test_the_name_of_a_file_is_synced_with_its_first_group_that_succeeds() -> None:
    writer, orders = make(sync=True)
    writer.write([("a", 10)])
    writer.has_failed(DiskFailed(None, "folder/0.log", "append", "full"))
    orders.clear()
    writer.write([("a", 10)])
    assert ("sync_folder", "folder") in orders
