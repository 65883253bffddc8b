"""The page of a sweep in a real browser: on a desktop and a phone, light and dark, offline."""

from pathlib import Path
from typing import Any

import pytest

from helpers.sweep_results import sweep_results

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_is_drawn_against_every_setting(
    browser: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    (tmp_path / "sweep.html").write_text(sweep_results().page(["8 variants × 20 seeds"]))
    context = browser.new_context(
        offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "sweep.html").as_uri())
    page.wait_for_function(
        "() => [...document.querySelectorAll('.chart')].every(e => e.querySelector('svg'))"
    )
    drawn = page.evaluate(
        """[...document.querySelectorAll('.chart')].map(e => ({
            bars: e.querySelectorAll('.errorbar').length,
            ticks: [...e.querySelectorAll('.xtick text')].map(t => t.textContent),
            width: e.querySelector('.main-svg').getBoundingClientRect().width}))"""
    )
    assert len(drawn) == 3
    assert all(chart["bars"] == 8 and chart["width"] > 200 for chart in drawn)
    assert all(chart["ticks"] == ["1", "2", "4", "8"] for chart in drawn)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    page.get_by_role("button", name="by assignor").first.click()
    shown = "[...document.querySelector('.chart').querySelectorAll('.xtick text')]"
    page.wait_for_function(f"() => {shown}.length === 2")
    ticks = page.evaluate(f"{shown}.map(t => t.textContent)")
    assert ticks == ["range", "<b>sticky</b>"]
    heat = "getComputedStyle(document.querySelector('.heat')).backgroundColor"
    assert page.evaluate(heat) != "rgba(0, 0, 0, 0)"
    assert errors == []
    context.close()
