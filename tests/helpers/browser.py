"""Pages as a person meets them: Debian's Chromium, which Playwright drives."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect, sync_playwright

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
MISSING = "no Chromium on this machine: apt-get install chromium"
TIMEOUT = 60_000  # milliseconds for what is expected of a page
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"  # pixels to scroll aside


@contextmanager
def open_page() -> Iterator[Page]:
    """Open an empty page that may use the clipboard; after the block, its console must have no errors or warnings."""
    complaints: list[str] = []
    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(permissions=["clipboard-read", "clipboard-write"])
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning", "assert") else None)
        yield page
        browser.close()
    assert not complaints, complaints


def look(page: Page, width: int, scheme: str = "light") -> None:
    """Set the width of the window in pixels, and the colour scheme."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
