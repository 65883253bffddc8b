"""The package as users get it: what the wheel holds, and what importing it costs."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("actors", "analytics", "cli", "model", "scenarios", "strategies")


def run(*command, cwd, **environment):
    finished = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the checkout as a commit of it would be: leftovers of earlier builds must not help.

    Its name is not the package's, for a clone can be called anything.
    """
    copy = tmp_path_factory.mktemp("source") / "some-clone"
    listed = run(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT
    ).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).exists():  # a file removed but not yet committed is still listed
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # The setuptools that is installed builds it, so that the test needs no network.
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=folder)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    target = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-index", "--target", target)
    run(sys.executable, "-m", "pip", "install", *options, wheel, cwd=target)
    return target


def test_wheel_holds_every_module_of_the_package_and_nothing_else(source, wheel):
    modules = [*source.glob("*.py")]
    for room in ROOMS:
        modules += (source / room).rglob("*.py")
    expected = {f"wavetank/{module.relative_to(source).as_posix()}" for module in modules}

    names = set(zipfile.ZipFile(wheel).namelist())

    packaged = {name for name in names if ".dist-info/" not in name}
    report = [f"analytics/report/{name}" for name in ("page.css", "page.js")]
    template = "scenarios/files/template.toml"
    data = ["py.typed", "analytics/log4j2.properties", *report, template]
    assert packaged == expected | {f"wavetank/{name}" for name in data}


def test_wheel_states_the_python_it_needs(installed):
    (distribution,) = distributions(name="wavetank", path=[str(installed)])

    assert distribution.metadata["Requires-Python"] == ">=3.11"


def test_the_version_is_the_same_everywhere(installed):
    (distribution,) = distributions(name="wavetank", path=[str(installed)])
    version = distribution.version

    assert f'__version__ = "{version}"' in (ROOT / "__init__.py").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_wheel_carries_the_license(installed):
    (distribution,) = distributions(name="wavetank", path=[str(installed)])

    assert distribution.metadata["License"] == "Apache-2.0"
    (path,) = (file for file in distribution.files if file.name == "LICENSE")
    assert "Apache License" in path.read_text()


def test_installed_wheel_can_be_imported(installed, tmp_path):
    program = "import wavetank; print(wavetank.__file__)"

    imported = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(installed))

    assert Path(imported.strip()) == installed / "wavetank" / "__init__.py"


def test_checkout_can_be_imported_from_any_folder(tmp_path):
    program = "import wavetank; print(wavetank.__file__)"

    imported = run(sys.executable, "-I", "-c", program, cwd=tmp_path)

    assert Path(imported.strip()) == ROOT / "__init__.py"


@pytest.mark.parametrize("heavy", ["pyspark", "pandas"])
def test_importing_wavetank_does_not_import(heavy, tmp_path):
    program = f"import sys, wavetank; print({heavy!r} in sys.modules)"

    assert run(sys.executable, "-I", "-c", program, cwd=tmp_path).strip() == "False"
