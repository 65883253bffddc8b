"""Reports in a real browser: every chart is drawn, and nothing is wrong or out of place."""

from pathlib import Path
from typing import Any

import pytest
from reports import sample

from wavetank.analytics.report import Report

pytestmark = pytest.mark.browser

CHARTS = [
    "lag", "throughput", "latency", "ownership", "skew_partition", "skew_member", "monitors",
    "inboxes", "drift",
]  # fmt: skip
TABLES = [
    "Objectives", "Faults", "Latency from append on, over the whole run", "Rebalances", "Hot keys",
    "Losses and dead letters", "Delivered again", "Sent again", "How wrong the exporter is",
    "Burrow", "Messages between actors", "The run",
]  # fmt: skip
SIZES = {"desk": (1280, 900), "phone": (390, 844)}


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
    assert len(drawn) == len(CHARTS) * (1 if which == "one" else 2)
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


def test_all_parts_are_there_in_order_and_can_be_gone_to(
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
def test_on_a_phone_what_is_wide_scrolls_in_its_own_box(
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
def test_legends_and_labels_lie_beside_the_data_and_not_on_it(
    opened: Any, pages: dict[str, Path], size: str
) -> None:
    it = opened(pages["one"], size)
    over = it.page.evaluate(
        """[...document.querySelectorAll('.chart')].filter(e => {
            const legend = e.querySelector('.legend');
            const top = e.querySelector('.nsewdrag').getBoundingClientRect().top;
            return legend && legend.getBoundingClientRect().bottom > top + 1;
        }).map(e => e.id)"""
    )
    assert over == []


def test_runs_side_by_side_are_named(opened: Any, pages: dict[str, Path]) -> None:
    it = opened(pages["two"])
    heads = it.page.locator(".columns h3").all_text_contents()
    assert heads[:2] == ["first", "second"]
    assert all(head.startswith(("first", "second")) for head in heads)


@pytest.mark.parametrize("which", ["one", "two"])
def test_it_prints_black_on_white_within_the_sheet_whatever_the_scheme(
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
    assert it.wrong == []
