"""Takes the documentation's pictures of the playground from a running server.

python scripts/playground_pictures.py http://localhost:8000/ docs/pictures
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.support.browser import CHROMIUM, OPTIONS

_SIZES = {360: 740, 768: 1024, 1440: 1000}
_COLOURS = 256
_MOST_MS = 120_000
_DRAWN_MS = 300


def main(url: str, folder: Path) -> None:
    """Race once at each width in each theme, and write what the page shows then."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        for theme in ("light", "dark"):
            for width, height in _SIZES.items():
                page = browser.new_page(
                    viewport={"width": width, "height": height}, color_scheme=theme
                )
                page.goto(url)
                _race(page)
                picture = Image.open(BytesIO(page.screenshot(full_page=True)))
                small = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=_COLOURS)
                small.save(folder / f"playground-{width}-{theme}.png", optimize=True)
                page.close()
        browser.close()


def _race(page: Page) -> None:
    # The first text is decoded while prices are still unknown.
    for number, button in enumerate(("#run", "#race"), 1):
        page.click(button)
        page.wait_for_selector(f"#output[data-ended='{number}']", timeout=_MOST_MS)
    page.locator("#fast .token.correction").first.click()
    page.wait_for_timeout(_DRAWN_MS)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
