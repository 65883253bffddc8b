"""The documentation is true: its code runs and prints what the pages say, its commands exist."""

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

import wavetank as wt
from wavetank import analytics
from wavetank.cli import main as cli
from wavetank.model.settings import ClusterSettings, ConsumerSettings, ProducerSettings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"`wavetank (\w+)([^`]*)`")
DOTTED = re.compile(r"`(wt|analytics|cluster|system|group|consumer)((?:\.\w+)+)")
SETTING = re.compile(r"`(\w+_ms)\b")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
LANGUAGES = {"python", "console", "sh", "toml", "properties", "text"}
NEEDS_SPARK = re.compile(
    r"analytics|wt\.(sweep|plan)\(|\.report\(|\$ wavetank (report|sweep|plan|watch)"
)
MOST_LINES = 150
PATIENCE_SECONDS = 300
"""`make demo` may have to set up everything first."""

# A command that takes too long is ended by us, who can then show what it has printed.
pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 20)


@attrs.frozen
class Block:
    """A block of code of a page."""

    language: str
    title: str | None
    """The name of the file that it is, if it is one."""
    text: str
    output: str
    """What the block of text right after it says; empty if there is none."""


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order, each with the output that the page shows for it."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    assert text.count("```") == 2 * len(found), f"{page}: a block is indented or has no language"
    result = []
    for match, following in zip_longest(found, found[1:]):
        shown = ""
        if following and following[1] == "text" and following.start() == match.end() + 2:
            shown = following[3]
        result.append(Block(match[1], match[2], match[3], shown))
    return result


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_code(block: Block) -> bool:
    return block.language != "text"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_language_that_is_run_or_is_text(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES
    files = [block for block in blocks(page) if block.language in ("toml", "properties")]
    assert all(block.title for block in files), "a file that no command can read is text"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(map(is_code, blocks(page)))], ids=name_of
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if any(NEEDS_SPARK.search(block.text) for block in blocks(page) if is_code(block)):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])  # commands add the folder of a scenario to it
    for block in blocks(page):
        if block.title is not None:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            assert_shown(printed(block.text), block.output)
        elif block.language == "console":
            for command, output in typed(block.text):
                assert_shown(answered(command), output)
        elif block.language == "sh":
            for command in block.text.splitlines():
                carry_out(command)


def printed(program: str) -> str:
    """Run a program in this process, so that all share one Spark session; what it prints."""
    with redirect_stdout(io.StringIO()) as output:
        exec(compile(program, "<page>", "exec"), {"__name__": "__main__"})
    return output.getvalue()


def typed(session: str) -> Iterator[tuple[str, str]]:
    """The commands of a terminal session, and what each prints."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def answered(command: str) -> str:
    """Run a `wavetank` command that must succeed; what it prints."""
    program, *words = command.split()
    assert program == "wavetank"
    done = CliRunner().invoke(cli.main, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def assert_shown(printed: str, shown: str) -> None:
    """Compare without blanks at the ends of lines; a line `…` stands for any lines."""
    lines = [f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines()]
    parts = [re.escape(part) for part in shown.split("…\n")]
    assert re.fullmatch("(?:.*\n)*".join(parts), "".join(lines)), printed


def carry_out(command: str) -> None:
    """Run a command in the checkout: the demonstration for real, all else only prepared."""
    words = command.split()
    if words[0] == "make":
        words += [] if command == "make demo" else ["--dry-run"]
    else:
        assert words[1:3] == ["-m", "pytest"], f"{command}: nobody can tell whether this works"
        words += ["--collect-only", "-n", "0"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_every_command_is_in_the_guide_and_only_with_options_that_it_has() -> None:
    mentioned = [match for page in PAGES for match in TYPED.findall(page.read_text("utf-8"))]
    assert {command for command, _ in mentioned} == set(cli.main.commands)
    for command, words in mentioned:
        known = [option for param in cli.main.commands[command].params for option in param.opts]
        assert set(re.findall(r"--[\w-]+", words)) <= {*known, "--help"}, command


@pytest.fixture(scope="module")
def named() -> Iterator[dict[str, Any]]:
    """What the pages mean by the first part of a dotted name."""
    with wt.Cluster.simulated() as cluster:
        cluster.create_topic("orders")
        group = cluster.group("billing", ["orders"])
        yield {
            "wt": wt,
            "analytics": analytics,
            "cluster": cluster,
            "system": cluster.system,
            "group": group,
            "consumer": group.consumer("a"),
        }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_name_in_the_text_of_a_page_exists(page: Path, named: dict[str, Any]) -> None:
    for first, rest in DOTTED.findall(page.read_text(encoding="utf-8")):
        found = named[first]
        for name in rest[1:].split("."):
            assert hasattr(found, name), f"{first}{rest}"
            found = getattr(found, name)


def test_every_setting_in_the_text_of_a_page_exists() -> None:
    classes = (ProducerSettings, ConsumerSettings, ClusterSettings)
    known = {field.name for cls in classes for field in attrs.fields(cls)}
    for page in PAGES:
        assert set(SETTING.findall(page.read_text(encoding="utf-8"))) <= known, page


def test_every_example_scenario_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guide" / "scenarios.md").read_text(encoding="utf-8")
    files = (ROOT / "examples" / "scenarios").glob("*.toml")
    assert [path.name for path in files if f"`{path.name}`" not in guide] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_files_of_the_checkout_lead_somewhere(name: str) -> None:
    links = LINK.findall((ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES
