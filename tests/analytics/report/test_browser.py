"""Reports in a real browser: charts are drawn, and the layout is right."""

from pathlib import Path
from typing import Any

import pytest

from helpers.report_runs import sample
from wavetank.analytics.report.charts import Chart
from wavetank.analytics.report.contents import SECTIONS
from wavetank.analytics.report.page import PageTable
from wavetank.analytics.report.report import Report

pytestmark = pytest.mark.browser

PARTS = [
    part
    for section in SECTIONS
    for make in section.parts
    if (part := make(sample(Path("made-up"))))
]
CHARTS = [part.name for part in PARTS if isinstance(part, Chart)]
TABLES = [part.title for part in PARTS if isinstance(part, PageTable)]
SIZES = {"desktop": (1280, 900), "narrow": (800, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page about one run, and one that compares two."""
    folder = tmp_path_factory.mktemp("pages")
    one, other = sample(folder / "first"), sample(folder / "second")
    return {
        "one": Report((one,)).save(folder / "one.html"),
        "two": Report((one, other)).save(folder / "two.html"),
    }


class Opened:
    """A page open in the browser, offline."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on(
            "console", lambda message: self.errors.append(f"{message.type}: {message.text}")
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.chart')].every(e => e.querySelector('svg'))"
        )

    def ranges(self) -> list[list[float]]:
        """The ranges of the time axes."""
        return self.page.evaluate(
            "[...document.querySelectorAll('[data-time]')].map(e => e.layout.xaxis.range)"
        )


@pytest.fixture
def opened(browser: Any, request: pytest.FixtureRequest) -> Any:
    def make(path: Path, size: str = "desktop", scheme: str = "light") -> Opened:
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
def test_every_chart_is_drawn_without_errors(
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
    assert len(drawn) == len(CHARTS) * (1 if which == "one" else 2)
    assert all(chart["width"] > 200 and chart["height"] > 150 for chart in drawn)
    assert all(chart["traces"] >= chart["wanted"] > 0 for chart in drawn)
    assert it.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert it.errors == []
    assert [url for url in it.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_colours_follow_the_light_or_dark_scheme(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["one"])
    tick = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    light = it.page.evaluate(tick)
    it.page.emulate_media(color_scheme="dark")
    it.page.wait_for_function(f"() => {tick} !== '{light}'")
    back = it.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in back.strip("rgb()").split(",")) < 150
    assert it.errors == []


def test_hovering_shows_the_figures(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["one"])
    chart = it.page.locator("[id$='-lag']")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    it.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.5)
    it.page.wait_for_selector("[id$='-lag'] .hoverlayer .hovertext")
    assert "records" in chart.locator(".hoverlayer").text_content()


def test_zooming_one_chart_zooms_all_charts_over_time(opened: Any, pages: dict[str, Path]) -> None:
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


def test_buttons_switch_the_view_of_a_chart(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["one"])
    title = "document.querySelector('[id$=\"-throughput\"]').layout.yaxis.title.text"
    assert "records per second" in it.page.evaluate(title)
    it.page.get_by_role("button", name="bytes").click()
    it.page.wait_for_function(f"() => {title}.includes('bytes per second')")
    assert it.errors == []


def test_all_charts_and_tables_are_in_order_and_links_lead_to_sections(
    opened: Any, pages: dict[str, Path]
) -> None:
    it = opened(pages["one"])
    ids = it.page.evaluate("[...document.querySelectorAll('.chart')].map(e => e.id)")
    assert [name.split("-", 2)[2] for name in ids] == CHARTS
    heads = "[...document.querySelectorAll('.card')].filter(e => e.querySelector('table'))"
    assert it.page.evaluate(f"{heads}.map(e => e.querySelector('h3').textContent)") == TABLES
    for link in it.page.locator("nav a").all():
        link.click()
        target = it.page.locator("section" + link.get_attribute("href"))
        top = target.evaluate("e => e.getBoundingClientRect().top")
        at_end = it.page.evaluate(
            "window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 2"
        )
        assert 0 <= top < 80 or at_end, link.text_content()


@pytest.mark.parametrize("which", ["one", "two"])
def test_wide_tables_scroll_in_their_own_box_on_a_phone(
    opened: Any, pages: dict[str, Path], which: str
) -> None:
    it = opened(pages[which], "phone")
    beyond = it.page.evaluate(
        """[...document.querySelectorAll('main *')].filter(e =>
            !e.closest('.scroll, nav, svg') && !e.closest('.js-plotly-plot .plot-container') &&
            e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.outerHTML)"""
    )
    assert beyond == []
    boxes = "[...document.querySelectorAll('.scroll')]"
    assert it.page.evaluate(f"{boxes}.some(e => e.scrollWidth > e.clientWidth)")


@pytest.mark.parametrize("size", SIZES)
def test_legends_do_not_cover_the_data(opened: Any, pages: dict[str, Path], size: str) -> None:
    it = opened(pages["one"], size)
    over = it.page.evaluate(
        """[...document.querySelectorAll('.chart')].filter(e => {
            const legend = e.querySelector('.legend');
            const top = e.querySelector('.nsewdrag').getBoundingClientRect().top;
            return legend && legend.getBoundingClientRect().bottom > top + 1;
        }).map(e => e.id)"""
    )
    assert over == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["one", "two"])
def test_the_toolbar_of_a_chart_covers_nothing(
    opened: Any, pages: dict[str, Path], which: str, size: str
) -> None:
    it = opened(pages[which], size)
    covered = it.page.evaluate(
        """[...document.querySelectorAll('.chart')].filter(e => {
            const bar = e.querySelector('.modebar').getBoundingClientRect();
            const card = e.closest('.card');
            const others = [e.querySelector('.main-svg'), card.querySelector('.head'),
                            card.querySelector('p')];
            return bar.height === 0 || others.some(each => {
                const box = each.getBoundingClientRect();
                return box.top < bar.bottom - 1 && bar.top + 1 < box.bottom
                    && box.left < bar.right && bar.left < box.right;
            });
        }).map(e => e.id)"""
    )
    assert covered == []


@pytest.mark.parametrize("which", ["one", "two"])
def test_tables_fit_into_a_page_of_800_pixels(
    opened: Any, pages: dict[str, Path], which: str
) -> None:
    it = opened(pages[which], "narrow")
    wide = it.page.evaluate(
        """[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)
            .map(e => e.closest('.card').querySelector('h3').textContent)"""
    )
    assert wide == []


def test_parts_side_by_side_are_titled_with_the_run(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["two"])
    heads = it.page.locator(".columns h3").all_text_contents()
    lag = "Lag, rebalances and faults"
    assert heads[:2] == [f"first: {lag}", f"second: {lag}"]
    assert all(head.startswith(("first", "second")) for head in heads)


@pytest.mark.parametrize("which", ["one", "two"])
def test_it_prints_dark_on_white_and_fits_the_sheet(
    opened: Any, pages: dict[str, Path], which: str
) -> None:
    it = opened(pages[which], scheme="dark")
    before = it.page.evaluate("document.querySelector('.chart .main-svg').clientWidth")
    assert it.page.pdf().startswith(b"%PDF")
    it.page.emulate_media(media="print", color_scheme="dark")
    it.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    it.page.wait_for_function(
        """() => [...document.querySelectorAll('.chart')].every(e =>
            e.querySelector('.main-svg').clientWidth === 700)"""
    )
    ink = it.page.evaluate(
        """[...new Set([...document.querySelectorAll('.xtick text, .legendtext')].map(
            e => getComputedStyle(e).fill))]"""
    )
    assert ink == ["rgb(68, 68, 68)"]
    back = it.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == "rgb(255, 255, 255)"
    assert it.page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    it.page.emulate_media(media="screen", color_scheme="dark")
    it.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    width = "document.querySelector('.chart .main-svg').clientWidth"
    it.page.wait_for_function(f"() => {width} === {before}")
    assert it.errors == []
