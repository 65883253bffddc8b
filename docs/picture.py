"""Takes the picture of the demonstration's report: `make demo && make picture`."""

from pathlib import Path
from shutil import which

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
DRAWN = "() => [...document.querySelectorAll('.chart')].every(e => e.querySelector('svg'))"

with sync_playwright() as started:
    found = which("chromium") or which("chromium-browser") or which("google-chrome")
    browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1200, "height": 1165}, color_scheme="light")
    page.goto((ROOT / "runs" / "demo" / "report.html").as_uri())
    page.wait_for_function(DRAWN)
    page.screenshot(path=ROOT / "docs" / "images" / "report.png", animations="disabled")
