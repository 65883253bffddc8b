"""The package as a zip for executors, and the files that the sweep's cache key covers."""

import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from unittest.mock import Mock
from zipfile import ZipFile

import pytest

from wavetank.scenarios.sweep import archive as archives
from wavetank.scenarios.sweep.archive import build_archive, ship
from wavetank.scenarios.sweep.executor import engine_digest, engine_files

ROOT = Path(__file__).parents[3]
SCENARIO = '{"name": "n", "duration": 1, "topics": [{"name": "t"}]}'
PROGRAM = f"""
import wavetank as wt
from wavetank.scenarios.sweep.spark_job import simulator
print(wt.__file__, simulator({{}})('{SCENARIO}', None)["digest"])
"""
EXAMPLES = """
import sys
from pathlib import Path
import wavetank as wt
for path in Path("examples/scenarios").glob("*.toml"):
    sys.path.insert(0, str(path.parent))
    wt.run(wt.load_scenario(path, ["duration=1s", "timeline=[]"]))
for name, module in sys.modules.items():
    if name.startswith("wavetank."):
        print(module.__file__)
"""


def modules(folder: Path = ROOT) -> Iterator[Path]:
    """All modules of the package, found by its folders with an `__init__.py`."""
    yield from folder.glob("*.py")
    for inner in folder.glob("*/__init__.py"):
        yield from modules(inner.parent)


def data_files() -> Iterator[Path]:
    """The data files of the package, as setup.cfg lists them."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    for package, names in config["options.package_data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        yield from (folder / name.strip() for name in names.split(","))


def test_the_archive_holds_every_module_and_data_file_of_the_package(tmp_path: Path) -> None:
    names = ZipFile(build_archive(tmp_path)).namelist()
    expected = [*modules(), *data_files()]
    assert sorted(names) == sorted(f"wavetank/{path.relative_to(ROOT)}" for path in expected)


def test_the_cache_key_covers_every_module_except_analytics_and_the_command_line() -> None:
    without = ("analytics", "cli")
    expected = [path for path in modules() if path.relative_to(ROOT).parts[0] not in without]
    assert engine_files() == sorted(expected)


def test_the_cache_key_covers_every_module_that_a_simulation_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    imported = {Path(line) for line in done.stdout.splitlines()}
    assert ROOT / "actors/broker/partition.py" in imported
    assert imported <= set(engine_files())


def test_a_new_subpackage_changes_the_archive_and_the_cache_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, out = tmp_path / "package", tmp_path / "out"
    out.mkdir()
    deep = package / "model" / "deep" / "deeper"
    deep.mkdir(parents=True)
    for folder in (package, package / "model"):
        (folder / "__init__.py").touch()
    (package / "py.typed").touch()
    monkeypatch.setattr(archives, "PACKAGE", package)
    before = build_archive(out).name, engine_digest.__wrapped__()
    for folder in (deep.parent, deep):
        (folder / "__init__.py").touch()
    (deep / "rule.py").write_text("RULE = 1\n")
    after = build_archive(out).name, engine_digest.__wrapped__()
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_the_archive_alone_can_simulate_and_its_name_depends_on_its_content(
    tmp_path: Path,
) -> None:
    archive = build_archive(tmp_path)
    first = f"import sys; sys.path.insert(0, {str(archive)!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-c", first + PROGRAM],
        capture_output=True, text=True, timeout=100, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    place, digest = done.stdout.split()
    assert place.startswith(str(archive))
    assert len(digest) > 16
    (tmp_path / "again").mkdir()
    assert build_archive(tmp_path / "again").name == archive.name


def test_a_second_sweep_sends_the_same_file_and_a_local_one_sends_none() -> None:
    # Spark refuses a known name from another path.
    spark = Mock(**{"conf.get.return_value": "spark://there:7077"})
    ship(spark)
    ship(spark)
    first, second = spark.addArtifacts.call_args_list
    assert first == second
    assert Path(first.args[0]).exists()
    near = Mock(**{"conf.get.return_value": "local[2]"})
    ship(near)
    near.addArtifacts.assert_not_called()
