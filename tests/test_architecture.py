"""The house rules that a reader of one file cannot see: import arrows and determinism.

Every module of the package is parsed, never imported. A name is followed back to the import that
bound it, so `from time import monotonic as now` is seen for what it is.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from wavetank.actors.engine.actor import Actor

ROOT = Path(__file__).parents[1]

# Which room may import which. The public API, the only module outside them, may import all.
ARROWS = {
    "model": {"model"},
    "strategies": {"model", "strategies"},
    "actors": {"model", "strategies", "actors"},
    "analytics": {"model", "analytics"},
    "scenarios": {"model", "strategies", "actors", "analytics", "scenarios"},
    "cli": {"", "model", "strategies", "actors", "analytics", "scenarios", "cli"},
}
# Where Spark may be used. Everything else must work without loading it.
SPARK = ("analytics/", "scenarios/sweep/")

THREADS = {"_thread", "asyncio", "concurrent", "multiprocessing", "threading"}
CLOCKS = {
    "time",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
}
# What differs from one process to the next.
CHANCE = {"builtins.hash", "builtins.id", "os.urandom", "secrets", "uuid"}
# Of the random modules only what builds a stream from a seed; the rest is global or unseeded.
SEEDED = {
    "random": {"Random"},
    "numpy.random": {"BitGenerator", "Generator", "PCG64", "SeedSequence", "default_rng"},
}

# The two modules that meet the real world. All other actors must be able to run in a simulation.
WALL_CLOCK = {
    "actors/engine/live.py", "actors/engine/live_disk.py", "actors/engine/event_log.py",
}  # fmt: skip

MODULES = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("*.py"))] + [
    path.relative_to(ROOT).as_posix()
    for room in ARROWS
    for path in sorted((ROOT / room).rglob("*.py"))
]


def violations(module: str, source: str) -> list[str]:
    """Every breach of the rules in a module, given by its path inside the package."""
    tree = ast.parse(source)
    room = module.split("/")[0] if "/" in module else None
    imported, bound = _imports(module, tree)
    found = [f"line {line}: {why}" for line, name in imported for why in _bad_import(room, name)]
    forbidden = _forbidden(module, room)
    for line, name in [*imported, *_uses(tree, bound)]:
        if any(_is_within(name, banned) for banned in forbidden):
            found.append(f"line {line}: {name} has no place in {module}")
        elif _is_simulated(module) and _is_unseeded(name):
            found.append(f"line {line}: {name} is not drawn from a seeded stream")
    if not ast.get_docstring(tree):
        found.append("line 1: a module says in a docstring what it is")
    return found


def _imports(module: str, tree: ast.Module) -> tuple[list[tuple[int, str]], dict[str, str]]:
    """The full names a module imports, by line, and what each name bound by an import stands for.

    What a relative import names starts with a dot: `.model.events` is `wavetank.model.events`.
    """
    package = ["", *module.split("/")[:-1]]
    imported = []
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported.append((node.lineno, alias.name))
                top = alias.name.split(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            origin = package[: len(package) - node.level + 1] if node.level else []
            origin = [*origin, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                name = ".".join([*origin, alias.name])
                imported.append((node.lineno, name))
                bound[alias.asname or alias.name] = name
    return imported, bound


def _bad_import(room: str | None, name: str) -> Iterator[str]:
    top = name.split(".")[0]
    if top == "wavetank" or top in ARROWS:
        yield f"{name} is imported absolutely; inside the package imports are relative"
    if room and name.startswith("."):
        # The command line asks the root for the version.
        target = "" if name == ".__version__" else name.split(".")[1]
        if target not in ARROWS[room]:
            yield f"{room} must not import {target}"


def _forbidden(module: str, room: str | None) -> set[str]:
    """The names, with all below them, that a module must not use."""
    forbidden = {"pandas"}
    if not module.startswith(SPARK):
        forbidden |= {"pyspark"}
    if room in ("model", "strategies", "analytics"):
        forbidden |= {"pykka"}
    if room in ("model", "strategies"):
        forbidden |= THREADS
    if _is_simulated(module):
        forbidden |= CLOCKS | CHANCE
    return forbidden


def _is_simulated(module: str) -> bool:
    return module.startswith(("model/", "strategies/", "actors/")) and module not in WALL_CLOCK


def _uses(tree: ast.Module, bound: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The full names that dotted expressions and calls in a module stand for, by line.

    A call without arguments ends in `()`, for that is what tells an unseeded generator.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := _dotted(node, bound)):
            yield node.lineno, name
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("hash", "id"):
                yield node.lineno, f"builtins.{node.func.id}"
            elif not node.args and not node.keywords and (name := _dotted(node.func, bound)):
                yield node.lineno, f"{name}()"


def _dotted(node: ast.expr, bound: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value, bound)):
        return f"{owner}.{node.attr}"
    return None


def _is_within(name: str, banned: str) -> bool:
    return f"{name}.".startswith(f"{banned}.")


def _is_unseeded(name: str) -> bool:
    for family, seeded in SEEDED.items():
        if name.startswith(f"{family}."):
            return name.removeprefix(f"{family}.").split(".")[0] not in seeded
    return False


@pytest.mark.parametrize("module", MODULES)
def test_module_keeps_the_house_rules(module):
    assert violations(module, (ROOT / module).read_text()) == []


@pytest.mark.parametrize(
    ("module", "code", "reason"),
    [
        ("model/log.py", "from ..strategies import network", "must not import strategies"),
        ("model/log.py", "from ..actors.host import Host", "must not import actors"),
        ("model/log.py", "from .. import analytics", "must not import analytics"),
        ("model/log.py", "from .. import cli", "must not import cli"),
        ("strategies/arrivals.py", "from ..actors import Host", "must not import actors"),
        ("strategies/arrivals.py", "from ..analytics import lag", "must not import analytics"),
        ("actors/broker.py", "from ..analytics.lag import lag", "must not import analytics"),
        ("actors/broker.py", "def f():\n    from ..cli import main", "must not import cli"),
        ("analytics/lag.py", "from ..actors import live", "must not import actors"),
        ("analytics/report/lag.py", "from ...strategies import x", "must not import strategies"),
        ("cli/main.py", "import wavetank", "wavetank is imported absolutely"),
        (
            "cli/main.py",
            "from wavetank.model import log",
            "wavetank.model.log is imported absolutely",
        ),
        ("cli/main.py", "from model import log", "model.log is imported absolutely"),
        ("cli/main.py", "import pyspark.sql", "pyspark.sql has no place"),
        ("actors/broker.py", "from pyspark.sql import Row", "pyspark.sql.Row has no place"),
        ("analytics/lag.py", "import pandas as pd", "pandas has no place"),
        ("analytics/lag.py", "import pykka", "pykka has no place"),
        ("model/log.py", "from pykka import Future", "pykka.Future has no place"),
        ("model/log.py", "from threading import Lock", "threading.Lock has no place"),
        ("strategies/arrivals.py", "import concurrent.futures", "concurrent.futures has no place"),
        ("model/log.py", "import time", "time has no place"),
        ("actors/engine/simulated.py", "import time\ntime.time()", "time.time has no place"),
        (
            "actors/engine/simulated.py",
            "from time import monotonic as now",
            "time.monotonic has no",
        ),
        ("actors/engine/simulated.py", "import uuid", "uuid has no place"),
        ("model/log.py", "import datetime as dt\ndt.datetime.now()", "datetime.now has no place"),
        ("model/log.py", "from datetime import date\ndate.today()", "date.today has no place"),
        ("model/log.py", "hash('key') % 3", "builtins.hash has no place"),
        (
            "actors/engine/simulated.py",
            "sorted(refs, key=lambda ref: id(ref))",
            "builtins.id has no",
        ),
        ("actors/broker.py", "import os\nos.urandom(8)", "os.urandom has no place"),
        ("strategies/arrivals.py", "import random\nrandom.random()", "random.random is not drawn"),
        ("strategies/arrivals.py", "from random import choice", "random.choice is not drawn"),
        (
            "strategies/arrivals.py",
            "import random\nf = random.choice",
            "random.choice is not drawn",
        ),
        ("strategies/arrivals.py", "from random import Random\nRandom()", "Random() is not drawn"),
        (
            "strategies/arrivals.py",
            "import numpy as n\nn.random.seed(1)",
            "random.seed is not drawn",
        ),
        ("strategies/arrivals.py", "from numpy import random as r\nr.rand()", "rand is not drawn"),
        (
            "strategies/arrivals.py",
            "import numpy as np\nnp.random.default_rng()",
            "default_rng() is not drawn",
        ),
    ],
)
def test_planted_violation_is_caught(module, code, reason):
    assert reason in "\n".join(violations(module, f'"""Why."""\n{code}\n'))


def test_missing_docstring_is_caught():
    assert "docstring" in "\n".join(violations("model/log.py", "x = 1\n"))


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("model/log.py", "from . import events\nfrom .events import Event"),
        ("strategies/arrivals.py", "from ..model.log import Log\nfrom .network import verdict"),
        ("actors/broker.py", "from ..model import log\nfrom ..strategies import network"),
        ("actors/broker.py", "from . import host\nimport pykka\nfrom threading import Lock"),
        ("analytics/lag.py", "from ..model.events import SCHEMA\nimport pyspark"),
        ("cli/main.py", "from .analytics import lag\nfrom .actors import live"),
        ("__init__.py", "from .model.log import Log"),
        ("actors/engine/live.py", "import time\ntime.monotonic()"),
        ("model/log.py", "from datetime import datetime, UTC\ndatetime.fromtimestamp(0, UTC)"),
        ("model/seeds.py", "import random\nrandom.Random(7).random()"),
        ("model/seeds.py", "import numpy as np\nnp.random.Generator(np.random.PCG64(7))"),
        ("strategies/arrivals.py", "def wait(random): return random.expovariate(1.0)"),
        ("model/log.py", "def find(log): return log.id(3)"),
    ],
)
def test_what_the_rules_allow_is_let_through(module, code):
    assert violations(module, f'"""Why."""\n{code}\n') == []


def _subclasses(cls: type) -> set[type]:
    found = set(cls.__subclasses__())
    return found.union(*map(_subclasses, found))


def test_an_actor_base_class_has_several_children() -> None:
    """Parts are held, not inherited: only a base that several kinds of actors share may exist."""
    for path in sorted((ROOT / "actors").rglob("*.py")):
        import_module(".".join(("wavetank", *path.relative_to(ROOT).with_suffix("").parts)))
    ours = {cls for cls in _subclasses(Actor) if cls.__module__.startswith("wavetank.")}
    lonely = {
        cls.__name__: [child.__name__ for child in children]
        for cls in ours
        if len(children := [child for child in ours if cls in child.__bases__]) == 1
    }
    assert lonely == {}
