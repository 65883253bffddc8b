"""The arguments that users and their editors see are those that settings and topics have."""

import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_type_hints

import attrs
import pytest

import wavetank as wt
from wavetank.actors.cluster import DEFAULTS
from wavetank.actors.groups import ConsumerGroup, ConsumerHandle
from wavetank.actors.handles import ProducerHandle
from wavetank.model.settings import FILE_SETTINGS, ClusterSettings

EXACT_TIMERS = {"timer_stagger_percent": 0, "timer_jitter_percent": 0}
"""Scenarios have others: there it counts that seeds vary, here that a test can rely on times."""
MAKE = [wt.Cluster.simulated, wt.Cluster.live]


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword arguments of a function."""
    found = inspect.signature(function).parameters
    return {name: each for name, each in found.items() if each.kind is each.KEYWORD_ONLY}


def fields(cls: type) -> dict[str, tuple[Any, Any]]:
    """The types and defaults of a class's fields."""
    hints = get_type_hints(cls)
    return {field.name: (hints[field.name], field.default) for field in attrs.fields(cls)}


FIELDS = fields(ClusterSettings).items()


@pytest.mark.parametrize("make", MAKE)
def test_a_cluster_takes_every_cluster_setting_with_its_type_and_default(make: Any) -> None:
    found = parameters(make)
    expected = fields(ClusterSettings)
    if make == wt.Cluster.live:  # "disk" with a data_dir, else "memory"
        expected["storage"] = (Literal["memory", "disk"] | None, None)
    else:  # a simulated disk has no indexes
        del expected["log_index_interval_bytes"]
    for name, (kind, default) in expected.items():
        assert eval(found[name].annotation, vars(typing).copy()) == kind
        assert found[name].default == (DEFAULTS | EXACT_TIMERS).get(name, default)


@pytest.mark.parametrize("make", MAKE)
def test_a_cluster_takes_every_option_of_the_constructor(make: Any) -> None:
    options, found = parameters(wt.Cluster), parameters(make)
    del options["disk" if make == wt.Cluster.live else "data_dir"]
    settings = set(fields(ClusterSettings))
    if make == wt.Cluster.simulated:
        settings -= FILE_SETTINGS
    assert {*options, *settings} == set(found)
    assert [found[name].annotation for name in options] == [
        option.annotation for option in options.values()
    ]


def test_both_engines_take_the_same_arguments_but_for_their_disks() -> None:
    simulated, live = (
        dict(inspect.signature(make).parameters) for make in (wt.Cluster.simulated, wt.Cluster.live)
    )
    del simulated["disk"], live["data_dir"], simulated["storage"], live["storage"]
    del live["log_index_interval_bytes"]  # a simulated disk has no indexes
    assert simulated == live


@pytest.mark.parametrize("make", MAKE)
def test_a_cluster_uses_every_setting_it_is_given(make: Any, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        name: not default if isinstance(default, bool) else (default or 0) + 1
        for name, (_, default) in FIELDS
        if type(default) is not str
    }
    given["timer_stagger_percent"] = 99  # it is at most 100, the default
    given |= {"storage": "disk", "flush": "commit"}
    where = {"data_dir": tmp_path} if make == wt.Cluster.live else {}
    if make == wt.Cluster.simulated:
        del given["log_index_interval_bytes"]
    with make(**given, **where) as cluster:
        assert {name: getattr(cluster.settings, name) for name in given} == given


@pytest.mark.parametrize("make", MAKE)
def test_a_cluster_passes_every_option_on_to_the_constructor(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {name: object() for name in parameters(wt.Cluster)}
    del given["disk" if make == wt.Cluster.live else "data_dir"]
    passed: dict[str, Any] = {}
    monkeypatch.setattr(
        wt.Cluster, "__init__", lambda self, *args, **options: passed.update(options)
    )
    make(**given)
    assert passed == given


def test_a_topic_takes_every_option_that_topics_have() -> None:
    found = inspect.signature(wt.Cluster.create_topic).parameters
    expected = fields(wt.Topic)
    del expected["id"]
    expected["min_insync_replicas"] = int, None  # that of the cluster
    assert list(found)[1:] == list(expected)
    for name, (_, default) in expected.items():
        if default is not attrs.NOTHING:
            assert found[name].default == default


def test_a_topic_uses_every_option_it_is_given() -> None:
    given = {
        "type": str, "payloads": "external", "cleanup": "delete", "retention": "1h",
        "retention_bytes": 10, "retain_unconsumed": False, "min_insync_replicas": 2,
    }  # fmt: skip
    with wt.Cluster.simulated() as cluster:
        cluster.create_topic("orders", 3, **given)
        topic = cluster.metadata().topics["orders"]
    assert topic == wt.Topic("orders", 3, **given)


def public_methods() -> Iterator[Any]:
    for cls in (wt.Cluster, ConsumerGroup, ConsumerHandle, ProducerHandle):
        for name, member in inspect.getmembers(cls, callable):
            if not name.startswith("_"):
                yield pytest.param(member, id=f"{cls.__name__}.{name}")


@pytest.mark.parametrize("method", list(public_methods()))
def test_every_method_that_users_call_documents_its_arguments(method: Any) -> None:
    text = inspect.getdoc(method)
    assert text, "it has a docstring"
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    if "Args:" in text:
        documented = text.split("Args:")[1]
        assert all(f"{name}:" in documented for name in names)
    else:
        assert len(names) <= 2, "two arguments at most can explain themselves"
