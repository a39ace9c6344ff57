"""Take the explorer's pictures in the docs anew; needs Chromium and its driver.

python -m benchmarks.pages.screenshots [RUN]        (default: mnist-small, the bundled network)
"""

import argparse
import io
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from PIL import Image
from tests.explorer.browser import PHONE, Page
from tests.explorer.serving import served, until

from benchmarks import records
from capspoe.run.bundled import BUNDLED, find_run

FIGURES = records.ROOT / "docs" / "figures"
Stroke = list[tuple[float, float]]  # points on the pad
SEVEN: Stroke = [(80, 60), (200, 60), (120, 240)]
TWO: Stroke = [(80, 90), (110, 55), (160, 45), (200, 75), (190, 125), (80, 240), (215, 240)]
SLIDERS = ((0, 1.0), (1, 0.8), (2, -1.2), (5, 0.5))


def zero() -> Stroke:
    points = []
    for step in range(21):
        angle = math.pi * step / 10
        points.append((140 + 70 * math.sin(angle), 140 - 95 * math.cos(angle)))
    return points


def save(page: Page, name: str) -> None:
    path = FIGURES / f"explorer-{name}.png"
    page.js("document.activeElement.blur(); scrollTo(0, 0)")
    shot = Image.open(io.BytesIO(page.driver.get_screenshot_as_png()))
    shot.convert("RGB").quantize(128).save(path, optimize=True)
    print(path)


def draw(page: Page, stroke: Stroke, pad: str) -> None:
    for start, end in pairwise(stroke):
        page.stroke(start, end, pad)


def show_two_digits(page: Page, address: str) -> None:
    page.look()
    page.open(f"{address}/")
    page.click("#got-it")
    page.click("#two-clear")
    draw(page, SEVEN, "two-pad")
    draw(page, zero(), "two-pad")
    page.until("document.getElementById('apart-by').value === '1'")


def show_sliders(page: Page) -> None:
    page.click("[data-view=play]")
    page.choose(5)
    for index, value in SLIDERS:
        before = page.pixels()
        page.slide(index, value)
        page.changed(before)


def show_recognition(page: Page) -> None:
    page.look(dark=True)
    page.click("[data-view=recognise]")
    draw(page, TWO, "pad")
    page.until("location.hash.includes('image=d')")


def show_phone(page: Page, address: str) -> None:
    page.look(PHONE)
    page.open(f"{address}/#view=play")
    until(lambda: page.all("#gallery b"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", default=Path(BUNDLED), help="of MNIST")
    options = parser.parse_args(arguments)
    with served(find_run(options.run)) as address:
        page = Page()
        try:
            show_two_digits(page, address)
            save(page, "two")
            show_sliders(page)
            save(page, "play")
            show_recognition(page)
            save(page, "recognise")
            show_phone(page, address)
            save(page, "phone")
        finally:
            page.driver.quit()


if __name__ == "__main__":
    main()
