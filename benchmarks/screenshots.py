"""The explorer's pictures in the docs, taken anew from an MNIST run: python benchmarks/screenshots.py RUN"""

import io
import sys
import time
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "explorer"))

from browser import PHONE, Page
from selenium.webdriver.common.action_chains import ActionChains

from conftest import served, until

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
TWO = (
    (-62, -70),
    (-20, -112),
    (34, -112),
    (62, -70),
    (30, -10),
    (-62, 95),
    (70, 95),
)  # from the pad's middle


def save(page: Page, name: str) -> None:
    path = FIGURES / f"explorer-{name}.png"
    shot = Image.open(io.BytesIO(page.driver.get_screenshot_as_png()))
    shot.convert("RGB").quantize(128).save(path, optimize=True)
    print(path)


def draw(page: Page) -> None:
    pad = page.find("#pad")
    chain = ActionChains(page.driver).move_to_element_with_offset(pad, *TWO[0]).click_and_hold()
    for (x, y), (from_x, from_y) in zip(TWO[1:], TWO, strict=False):
        chain.move_by_offset(x - from_x, y - from_y)
    chain.release().perform()


def main(run: Path) -> None:
    with served(run) as address:
        page = Page()
        try:
            page.look()
            page.open(address).ready()
            page.click("#gallery .tile[data-capsule='5']")
            for index, value in ((0, 1.0), (1, 0.8), (2, -1.2), (5, 0.5)):
                page.slide(index, value)
            page.js("document.activeElement.blur(); scrollTo(0, 0)")
            until(lambda: any(page.pixels()[0::4]))
            save(page, "play")

            page.look(dark=True)
            page.click("[data-view=recognise]")
            draw(page)
            page.until("document.querySelectorAll('#lights .winner').length === 1")
            page.until("document.querySelectorAll('#routing-steps button').length === 3")
            until(lambda: any(page.pixels("rebuilt")[0::4]))
            page.click("#routing-steps button:last-child")
            time.sleep(2)  # the threads move to where they stand at the end
            page.js("document.activeElement.blur(); scrollTo(0, 0)")
            save(page, "recognise")

            page.look(PHONE)
            page.open(address).ready()
            save(page, "phone")
        finally:
            page.driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
