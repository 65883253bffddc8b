"""The built site: it loads nothing from elsewhere, and its reference leaves nothing out.

`make docs` builds it strictly: a link that leads nowhere, or a page that is not in the menu, fails.
"""

import re
import subprocess
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import attrs
import pytest

import wavetank as wt
from wavetank.cli.main import main as cli
from wavetank.cli.shell.command_table import COMMANDS
from wavetank.model.events import kinds, schema
from wavetank.model.settings import ClusterSettings, ConsumerSettings, ProducerSettings
from wavetank.model.summary.run_metrics import RUN_METRICS
from wavetank.scenarios.actions import ACTIONS
from wavetank.scenarios.files.scenario_file import to_dict

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def site() -> Path:
    """The folder of the built site."""
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "site"


class Resources(HTMLParser):
    """Collects the addresses that a browser loads when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in ("link", "script", "img", "iframe", "source", "video", "audio", "embed"):
            self.found += [given[name] or "" for name in ("src", "href", "srcset") if name in given]


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    loaded: dict[str, list[str]] = {}
    for page in site.rglob("*.html"):
        resources = Resources()
        resources.feed(page.read_text(encoding="utf-8"))
        assert resources.found, page
        loaded[page.name] = [url for url in resources.found if re.match(r"(\w+:)?//", url)]
    assert len(loaded) > 20
    assert {name: urls for name, urls in loaded.items() if urls} == {}


def test_no_stylesheet_loads_anything_from_the_network(site: Path) -> None:
    for sheet in site.rglob("*.css"):
        urls = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", sheet.read_text())
        assert not [url for pair in urls for url in pair if re.match(r"(\w+:)?//", url)], sheet


@pytest.mark.browser
def test_pages_can_be_read_offline_in_a_browser(site: Path, browser: Any) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    for name in ("index.html", "guide/scenarios.html", "reference/settings.html", "api/index.html"):
        page.goto((site / name).as_uri())
        assert page.locator("h1").first.is_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert wrong == []
    context.close()


def codes(page: Path) -> set[str]:
    """All texts that a page shows as code, and its headings."""
    html = page.read_text(encoding="utf-8")
    found = re.findall(r"<code>(.*?)</code>|<h[23][^>]*>(.*?)<a", html, re.DOTALL)
    return {unescape(re.sub(r"<[^>]+>", "", part)) for pair in found for part in pair if part}


def keys_of(data: Any) -> Iterator[str]:
    """All keys of nested tables."""
    if isinstance(data, dict):
        yield from data
        for value in data.values():
            yield from keys_of(value)
    elif isinstance(data, list):
        for value in data:
            yield from keys_of(value)


def a_scenario() -> wt.Scenario:
    """A scenario with one of each part, so that writing it down names all keys."""
    return wt.Scenario(
        name="all",
        duration=10,
        topics=[wt.TopicPlan("orders")],
        producers=[wt.ProducerPlan("shop", "orders", wt.load.Poisson(1))],
        groups=[wt.GroupPlan("billing", ["orders"], service=wt.load.ConstantService(1))],
        objectives=[wt.Objective(max_lag=1)],
    )


def test_the_reference_has_every_key_of_a_scenario(site: Path) -> None:
    shown = codes(site / "reference" / "scenarios.html")
    wanted = {key for key in keys_of(to_dict(a_scenario())) if key != "kind"}
    wanted |= {
        field.name.rstrip("_") for action in ACTIONS.values() for field in attrs.fields(action)
    }
    wanted |= {f'do = "{name}"' for name in ACTIONS}
    assert len(wanted) > 50
    assert wanted - shown == set()


def test_the_reference_has_every_model_with_its_parameters(site: Path) -> None:
    shown = codes(site / "reference" / "scenarios.html")
    models = [
        getattr(namespace, name)
        for namespace in (wt.load, wt.network)
        for name in namespace.__all__
        if attrs.has(getattr(namespace, name)) and name not in ("Load", "NoKeys", "Faults")
    ]
    assert len(models) == 15
    wanted = {field.name for model in models for field in attrs.fields(model) if field.init}
    assert wanted - shown == set()


def test_the_reference_has_every_objective(site: Path) -> None:
    wanted = {field.name for field in attrs.fields(wt.Objective)}
    assert wanted - codes(site / "reference" / "objectives.html") == set()


def test_the_reference_has_every_setting_under_both_names(site: Path) -> None:
    shown = codes(site / "reference" / "settings.html")
    for cls in (ProducerSettings, ConsumerSettings, ClusterSettings):
        names = {field.name for field in attrs.fields(cls)}
        assert names - shown == set()
        dotted = {name.replace("_", ".") for name in names} - {"max.in.flight"}
        assert dotted - shown == set()
    assert "max.in.flight.requests.per.connection" in shown


def test_the_reference_has_every_kind_and_column_of_events(site: Path) -> None:
    texts = {
        text
        for name, text in vars(kinds).items()
        if name.isupper() and isinstance(text, str) and name not in ("COMMIT", "RECORD")
    }
    assert len(texts) > 40
    wanted = texts | set(schema.SCHEMA.names)
    assert wanted - codes(site / "reference" / "events.html") == set()


def test_the_reference_has_every_figure_and_command(site: Path) -> None:
    assert {figure.name for figure in RUN_METRICS} - codes(site / "reference/figures.html") == set()
    assert set(cli.commands) - codes(site / "reference" / "commands.html") == set()
    assert {each.name for each in COMMANDS.values()} - codes(site / "reference/shell.html") == set()


@pytest.mark.parametrize("page", ["scenarios", "objectives", "settings", "events", "commands"])
def test_every_row_of_the_reference_says_what_it_means(site: Path, page: str) -> None:
    html = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    rows = [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in html.split("<tr>")]
    assert any(rows)
    assert [cells[0] for cells in rows if cells and not cells[-1].strip()] == []


def test_the_api_reference_has_every_public_name(site: Path) -> None:
    from wavetank import analytics

    top = (site / "api" / "index.html").read_text(encoding="utf-8")
    modules = [name for name in wt.__all__ if (site / "api" / f"{name}.html").exists()]
    missing = [name for name in wt.__all__ if f'id="wavetank.{name}"' not in top]
    others = [name for name in missing if name not in modules and f">{name}<" not in top]
    assert others == []
    page = (site / "api" / "analytics.html").read_text(encoding="utf-8")
    assert [n for n in analytics.__all__ if f'id="wavetank.analytics.{n}"' not in page] == []
