"""Reports in a real browser: every chart is drawn, and nothing is wrong or out of place."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reports import sample

from wavetank.analytics.report import Report

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: make test-browser"
)

pytestmark = pytest.mark.browser

SIZES = {"desk": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium: that of the system, or the one that playwright has installed."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as started:
        if found is None and not Path(started.chromium.executable_path).exists():
            pytest.skip("there is no Chromium: make test-browser")
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page on one run, and one that compares two."""
    folder = tmp_path_factory.mktemp("pages")
    one, other = sample(folder / "first"), sample(folder / "second")
    return {
        "one": Report((one,)).save(folder / "one.html"),
        "two": Report((one, other)).save(folder / "two.html"),
    }


class Opened:
    """A page as a reader has it before them, without a network."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.wrong.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.chart')].every(e => e.querySelector('svg'))"
        )

    def ranges(self) -> list[list[float]]:
        """What the time axes show."""
        return self.page.evaluate(
            "[...document.querySelectorAll('[data-time]')].map(e => e.layout.xaxis.range)"
        )


@pytest.fixture
def opened(browser: Any, request: pytest.FixtureRequest) -> Any:
    def make(path: Path, size: str = "desk", scheme: str = "light") -> Opened:
        width, height = SIZES[size]
        made = Opened(
            browser, path, viewport={"width": width, "height": height}, color_scheme=scheme
        )
        request.addfinalizer(made.context.close)
        return made

    return make


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["one", "two"])
def test_every_chart_is_drawn_and_nothing_goes_wrong(
    opened: Any, pages: dict[str, Path], which: str, size: str, scheme: str
) -> None:
    it = opened(pages[which], size, scheme)
    drawn = it.page.evaluate(
        """[...document.querySelectorAll('.chart')].map(e => ({
            width: e.querySelector('.main-svg').getBoundingClientRect().width,
            height: e.querySelector('.main-svg').getBoundingClientRect().height,
            traces: e.querySelectorAll('.scatterlayer .trace, .barlayer .trace').length,
            wanted: e.data.filter(trace => trace.x.length).length}))"""
    )
    assert len(drawn) == (4 if which == "one" else 8)
    assert all(chart["width"] > 200 and chart["height"] > 150 for chart in drawn)
    assert all(chart["traces"] >= chart["wanted"] > 0 for chart in drawn)
    assert it.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert it.wrong == []
    assert [url for url in it.asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_ink_and_paper_follow_the_readers_scheme(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["one"])
    tick = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    light = it.page.evaluate(tick)
    it.page.emulate_media(color_scheme="dark")
    it.page.wait_for_function(f"() => {tick} !== '{light}'")
    back = it.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in back.strip("rgb()").split(",")) < 150
    assert it.wrong == []


def test_hovering_tells_the_figures(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["one"])
    chart = it.page.locator("[id$='-lag']")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    it.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.5)
    it.page.wait_for_selector("[id$='-lag'] .hoverlayer .hovertext")
    assert "records" in chart.locator(".hoverlayer").text_content()


def test_zooming_one_chart_zooms_all_over_time_and_back(
    opened: Any, pages: dict[str, Path]
) -> None:
    it = opened(pages["one"])
    whole = it.ranges()
    chart = it.page.locator("[id$='-lag'] .nsewdrag").last
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    middle = box["y"] + box["height"] / 2
    it.page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    it.page.mouse.down()
    it.page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
    it.page.mouse.up()
    it.page.wait_for_function(
        """() => {
            const axes = [...document.querySelectorAll('[data-time]')].map(e => e.layout.xaxis);
            const shown = new Set(axes.map(axis => axis.range.map(v => v.toFixed(3)).join()));
            return shown.size === 1 && axes[0].range[0] > 1;
        }"""
    )
    assert whole[0][0] < it.ranges()[0][0] < it.ranges()[0][1] < whole[0][1]
    start = "document.querySelector('[data-time]').layout.xaxis.range[0]"
    it.page.mouse.dblclick(box["x"] + box["width"] / 2, middle)
    it.page.wait_for_function(f"() => {start} === 0")
    assert it.ranges() == whole


def test_a_chart_has_other_views(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["one"])
    title = "document.querySelector('[id$=\"-throughput\"]').layout.yaxis.title.text"
    assert "records a second" in it.page.evaluate(title)
    it.page.get_by_role("button", name="bytes").click()
    it.page.wait_for_function(f"() => {title}.includes('bytes a second')")
    assert it.wrong == []


def test_it_prints_on_white_whatever_the_scheme(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["one"], scheme="dark")
    assert it.page.pdf().startswith(b"%PDF")
    it.page.emulate_media(media="print", color_scheme="dark")
    back = it.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == "rgb(255, 255, 255)"
    assert it.page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert it.wrong == []
