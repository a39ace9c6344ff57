"""Take the explorer's pictures in the docs anew: python benchmarks/screenshots.py mnist-small (or an MNIST run)"""

import io
import math
import sys
from itertools import pairwise
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "explorer"))

from browser import PHONE, Page
from serving import served, until

from capspoe.run.bundled import find_run

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
SEVEN = [(80, 60), (200, 60), (120, 240)]
ZERO = [(140 + 70 * math.sin(math.pi * t / 10), 140 - 95 * math.cos(math.pi * t / 10)) for t in range(21)]
TWO = [(80, 90), (110, 55), (160, 45), (200, 75), (190, 125), (80, 240), (215, 240)]  # strokes on the pad


def save(page: Page, name: str) -> None:
    path = FIGURES / f"explorer-{name}.png"
    page.js("document.activeElement.blur(); scrollTo(0, 0)")
    shot = Image.open(io.BytesIO(page.driver.get_screenshot_as_png()))
    shot.convert("RGB").quantize(128).save(path, optimize=True)
    print(path)


def main(run: Path) -> None:
    with served(run) as address:
        page = Page()
        try:
            page.look()
            page.open(f"{address}/")
            page.click("#got-it")
            page.click("#two-clear")
            for start, end in pairwise(SEVEN + ZERO):
                if start != SEVEN[-1]:
                    page.stroke(start, end, "two-pad")
            page.until("document.getElementById('apart-by').value === '1'")
            save(page, "two")

            page.click("[data-view=play]")
            page.choose(5)
            for index, value in ((0, 1.0), (1, 0.8), (2, -1.2), (5, 0.5)):
                before = page.pixels()
                page.slide(index, value)
                page.changed(before)
            save(page, "play")

            page.look(dark=True)
            page.click("[data-view=recognise]")
            for start, end in pairwise(TWO):
                page.stroke(start, end)
            page.until("location.hash.includes('image=d')")
            save(page, "recognise")

            page.look(PHONE)
            page.open(f"{address}/#view=play")
            until(lambda: page.all("#gallery b"))
            save(page, "phone")
        finally:
            page.driver.quit()


if __name__ == "__main__":
    main(find_run(sys.argv[1]))
