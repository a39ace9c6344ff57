"""A browser on the explorer's page, as a person uses it."""

import json
import shutil
import tempfile

from conftest import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    "--disable-dev-shm-usage",
)
LAPTOP, PHONE = (1280, 800), (390, 844)
PICTURE = (
    "return Array.from(document.getElementById(arguments[0]).getContext('2d').getImageData(0,0,28,28).data)"
)


class Page:
    """A browser that notes what went wrong."""

    def __init__(self):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        for flag in (*FLAGS, f"--user-data-dir={self.profile.name}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_script_timeout(30)

    def look(self, size=LAPTOP, dark=False, calm=False):
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
        ]
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, address):
        self.address = "/".join(address.split("/")[:3]) + "/"
        self.driver.get("about:blank")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(address)
        self.until("document.documentElement.dataset.ready === 'true'")
        return self

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, condition):
        return until(lambda: self.js(f"return {condition}"), 60)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def click(self, selector):
        self.js("arguments[0].scrollIntoView({block: 'center'})", self.find(selector))
        self.find(selector).click()

    def keys(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        chain = ActionChains(self.driver)
        for key in keys:
            if isinstance(key, tuple):
                for held in key[:-1]:
                    chain.key_down(held)
                chain.send_keys(key[-1])
                for held in key[:-1]:
                    chain.key_up(held)
            else:
                chain.send_keys(key)
        chain.perform()

    def pixels(self, canvas="picture"):
        return self.js(PICTURE, canvas)

    def changed(self, before, canvas="picture"):
        return until(lambda: self.pixels(canvas) != before)

    def ready(self):
        self.until("document.querySelectorAll('#gallery .tile').length > 0")
        self.settled()
        until(lambda: any(self.pixels()[0::4]))
        return self

    def settled(self):
        """The films are those of the capsule that is chosen."""
        self.until(
            "document.getElementById('sliders').dataset.capsule === "
            "document.querySelector('#gallery .tile[aria-pressed=true]').dataset.capsule"
        )

    def slide(self, index, value):
        """Moves a film with the mouse."""
        from selenium.webdriver.common.action_chains import ActionChains

        self.settled()
        film = self.all(".slider .film")[index]
        self.js("arguments[0].scrollIntoView({block: 'center'})", film)
        half = film.rect["width"] / 2
        chain = ActionChains(self.driver).move_to_element(film).click_and_hold()
        chain.move_by_offset(round(half * value / 3.5), 0).release().perform()

    def values(self):
        return self.js("return [...document.querySelectorAll('.slider output')].map((o) => o.textContent)")

    def problems(self):
        """Errors on the console, and requests to anywhere else."""
        errors = [e["message"] for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
        errors = [
            e for e in errors if "willReadFrequently" not in e
        ]  # these tests read the canvases, the page does not
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return errors + [u for u in urls if not u.startswith((self.address, "data:", "blob:", "about:"))]


def draw(page):
    from selenium.webdriver.common.action_chains import ActionChains

    pad = page.find("#pad")
    page.js("arguments[0].scrollIntoView({block: 'center'})", pad)
    chain = ActionChains(page.driver).move_to_element_with_offset(pad, -40, -90).click_and_hold()
    for x, y in ((80, 0), (-60, 80), (40, 40), (-70, 60)):
        chain.move_by_offset(x, y)
    chain.release().perform()
