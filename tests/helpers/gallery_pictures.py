"""Writes the pictures of docs/gallery.md: parts of a report, as Chromium shows them.

python tests/helpers/gallery_pictures.py report.html docs/gallery
"""

import sys
from pathlib import Path

from browser import look, open_page
from PIL import Image

# Name: width of the window, colour scheme, first and last element
PICTURES = {
    "training": (1300, "light", "#systems", "#training"),
    "depth": (1300, "light", "#depth h3:nth-of-type(5)", "#depth .figures:nth-last-of-type(1)"),
    "attention": (1300, "dark", "#attention", "#surprisal article:nth-of-type(2)"),
    "outputs": (1300, "light", "#sentences", "#sentences article:nth-of-type(3)"),
    "telephone": (400, "dark", ".masthead", "#training .panel-1 figure:nth-of-type(2)"),
}
BOX = """(() => {
    const [first, last] = %r.map(name => document.querySelector(name).getBoundingClientRect());
    const y = first.top + scrollY - 12;
    return {x: 0, y: Math.max(0, y), width: innerWidth, height: last.bottom + scrollY - y + 12};
})()"""


def write_pictures(page_file: Path, folder: Path) -> None:
    """Write a PNG of 256 colours for each entry of ``PICTURES``."""
    folder.mkdir(exist_ok=True)
    with open_page() as page:
        for name, (width, scheme, first, last) in PICTURES.items():
            look(page, width, scheme)
            page.goto(page_file.resolve().as_uri())
            path = folder / f"{name}.png"
            page.screenshot(path=path, clip=page.evaluate(BOX % [first, last]), full_page=True)
            Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]), Path(sys.argv[2]))
