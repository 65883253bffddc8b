"""What make says before anything long runs, and what it offers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKED_OUT = ("Makefile", "setup.cfg", "pyproject.toml", ".ci/check-tools", ".ci/find-browser")
CHMOD = shutil.which("chmod")
DOCUMENTED = (
    "help",
    "demo",
    "test",
    "test-storms",
    "test-kill",
    "test-durability",
    "test-raft",
    "test-replication",
    "test-browser",
    "test-kafka",
    "lint",
    "docs",
    "picture",
    "bench",
    "bench-report",
    "clean",
)


@pytest.fixture
def checkout(tmp_path):
    """A checkout with no more in it than make needs to get as far as the tool check."""
    copy = tmp_path / "checkout"
    (copy / ".ci").mkdir(parents=True)
    for name in CHECKED_OUT:
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture
def tools(tmp_path):
    """A folder that is the whole PATH: this Python, no Java, and what the check itself uses."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("awk", "make", "sed"):
        (folder / name).symlink_to(shutil.which(name))
    (folder / "python3").symlink_to(sys.executable)
    return folder


def script(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def fake_java(path, version):
    script(path, f"""echo 'openjdk version "{version}" 2025-01-01' >&2""")


def make(checkout, tools, *arguments, **variables):
    # Nothing is inherited: a make above this test run would hand down its flags and variables.
    return subprocess.run(
        ["make", *arguments],
        cwd=checkout,
        env={"PATH": str(tools), "LC_ALL": "C", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def the_one_sentence(result):
    """What the user is told: one line, followed by nothing but make's own error line."""
    assert result.returncode != 0
    assert result.stdout == ""
    sentence, make_error = result.stderr.splitlines()
    assert make_error.startswith("make: ***")
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("version", ["17", "17.0.15", "21", "21.0.7", "24-ea", "25.0.1+8"])
def test_java_17_or_newer_is_accepted_in_silence(checkout, tools, version):
    fake_java(tools / "java", version)

    result = make(checkout, tools, "tools")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("version", ["1.7.0_80", "1.8.0_402", "9", "11.0.22", "16.0.2"])
def test_older_java_is_named_together_with_what_to_install(checkout, tools, version):
    fake_java(tools / "java", version)

    sentence = the_one_sentence(make(checkout, tools, "tools"))

    assert f"the 'java' on PATH is Java {version}" in sentence
    assert "install a JDK or JRE 17 or newer" in sentence


def test_missing_java_is_said(checkout, tools):
    sentence = the_one_sentence(make(checkout, tools, "tools"))

    assert "no 'java' was found on PATH" in sentence
    assert "install a JDK or JRE 17 or newer" in sentence


def test_java_that_cannot_start_is_said(checkout, tools):
    script(tools / "java", "echo 'Unable to locate a Java Runtime.' >&2; exit 1")

    sentence = the_one_sentence(make(checkout, tools, "tools"))

    assert "the 'java' on PATH does not tell its version" in sentence


def test_what_java_prints_before_its_version_does_not_confuse(checkout, tools):
    script(
        tools / "java",
        "echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2\n"
        """echo 'java version "17.0.1" 2021-10-19 LTS' >&2""",
    )

    assert make(checkout, tools, "tools").returncode == 0


def test_java_home_wins_over_path_when_it_is_older(checkout, tools, tmp_path):
    fake_java(tools / "java", "21")
    fake_java(tmp_path / "jdk 11" / "bin" / "java", "11.0.22")

    result = make(checkout, tools, "tools", JAVA_HOME=str(tmp_path / "jdk 11"))

    assert f"JAVA_HOME ({tmp_path / 'jdk 11'}) is Java 11.0.22" in the_one_sentence(result)


def test_java_home_wins_over_path_when_it_is_newer(checkout, tools, tmp_path):
    fake_java(tools / "java", "1.8.0_402")
    fake_java(tmp_path / "jdk" / "bin" / "java", "21")

    assert make(checkout, tools, "tools", JAVA_HOME=str(tmp_path / "jdk")).returncode == 0


def test_java_home_without_java_is_said_even_if_path_has_one(checkout, tools, tmp_path):
    fake_java(tools / "java", "21")

    result = make(checkout, tools, "tools", JAVA_HOME=str(tmp_path / "gone"))

    assert f"JAVA_HOME ({tmp_path / 'gone'}) has no bin/java" in the_one_sentence(result)


@pytest.mark.parametrize("version", ["2.7.18", "3.9.18", "3.10.14"])
def test_older_python_is_named_together_with_what_to_install(checkout, tools, version):
    (tools / "python3").unlink()
    script(tools / "python3", f"echo {version}")

    sentence = the_one_sentence(make(checkout, tools, "tools"))

    assert f"'python3' is Python {version}" in sentence
    assert "install Python 3.11 or newer" in sentence


def test_missing_python_is_said(checkout, tools):
    (tools / "python3").unlink()

    assert "'python3' was not found" in the_one_sentence(make(checkout, tools, "tools"))


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_another_python_can_be_named(checkout, tools, how):
    script(tools / "python3.9", "echo 3.9.18")

    if how == "argument":
        result = make(checkout, tools, "tools", "PYTHON=python3.9")
    else:
        result = make(checkout, tools, "tools", PYTHON="python3.9")

    assert "'python3.9' is Python 3.9.18" in the_one_sentence(result)


def test_python_without_venv_is_said(checkout, tools):
    (tools / "python3").unlink()
    script(
        tools / "python3",
        'case "$2" in *venv*) echo "ModuleNotFoundError" >&2; exit 1 ;; *) echo 3.12.3 ;; esac',
    )

    assert "python3-venv" in the_one_sentence(make(checkout, tools, "tools"))


@pytest.mark.parametrize("target", [name for name in DOCUMENTED if name not in ("help", "clean")])
def test_nothing_is_installed_before_the_tools_are_checked(checkout, tools, target):
    fake_java(tools / "java", "11.0.22")

    result = make(checkout, tools, target)

    assert "Java 11.0.22" in the_one_sentence(result)
    assert not (checkout / ".venv").exists()


def test_nothing_is_installed_before_the_tools_are_checked_by_a_parallel_make(checkout, tools):
    fake_java(tools / "java", "11.0.22")

    assert make(checkout, tools, "-j4", "test").returncode != 0
    assert not (checkout / ".venv").exists()


@pytest.fixture
def prepared(checkout, tools):
    """The checkout with an environment whose Python only prints its arguments."""
    fake_java(tools / "java", "21")
    script(checkout / ".venv" / "bin" / "python", 'echo "ran: $*"')
    for stamp in (".installed", ".browser"):
        (checkout / ".venv" / stamp).touch()
    return checkout


def test_tests_in_a_browser_and_with_kafka_run_only_in_their_own_targets(prepared, tools):
    script(tools / "chromium", "exit 0")

    assert make(prepared, tools, "test").stdout == "ran: -m pytest -m not browser and not kafka\n"
    assert make(prepared, tools, "test-browser").stdout == "ran: -m pytest -m browser\n"
    assert make(prepared, tools, "test-kafka").stdout == "ran: -m pytest -m kafka\n"


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_is_found_under_any_of_its_names(checkout, tools, name):
    script(tools / name, "exit 0")

    found = subprocess.run(
        [checkout / ".ci/find-browser"], env={"PATH": tools}, capture_output=True
    )

    assert found.stdout.decode() == f"{tools / name}\n"


@pytest.mark.parametrize("problem", ["no apt-get", "not root", "apt-get fails", "a stub"])
def test_a_missing_browser_is_said_in_the_last_lines_and_is_no_failure(prepared, tools, problem):
    script(tools / "id", "echo 1000" if problem == "not root" else "echo 0")
    if problem != "no apt-get":
        script(tools / "apt-get", "echo 'E: no network'; exit 100")
    if problem == "a stub":
        script(tools / "chromium-browser", "echo 'install the snap'; exit 1")

    result = make(prepared, tools, "test-browser")

    assert result.returncode == 0
    assert "NOT RUN" in result.stdout.splitlines()[-3]
    assert ("E: no network" in result.stderr) == (problem in ("apt-get fails", "a stub"))


def test_a_missing_browser_is_installed_without_questions(prepared, tools):
    script(tools / "id", "echo 0")
    chromium = f"printf '#!/bin/sh\\nexit 0\\n' > {tools}/chromium; {CHMOD} +x {tools}/chromium"
    script(
        tools / "apt-get",
        '[ "$DEBIAN_FRONTEND" = noninteractive ] || exit 1\n'
        f'case "$*" in *chromium) {chromium};; esac',
    )

    assert make(prepared, tools, "test-browser").stdout == "ran: -m pytest -m browser\n"


@pytest.mark.parametrize("arguments", [(), ("help",)])
def test_help_lists_every_documented_target(checkout, tools, arguments):
    result = make(checkout, tools, *arguments)

    assert result.returncode == 0
    listed = [line.split()[1] for line in result.stdout.splitlines()]
    assert listed == list(DOCUMENTED)


def test_the_scripts_of_ci_are_executable():
    for name in ("run", "check-tools", "find-browser"):
        assert os.access(ROOT / ".ci" / name, os.X_OK)
