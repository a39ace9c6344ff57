"""A browser on the explorer's page, used as a person would."""

import json
import shutil
import tempfile

from tests.explorer.serving import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
LAPTOP, PHONE = (1280, 800), (390, 844)
STROKE = """
const [from, to, id] = arguments, pad = document.getElementById(id), box = pad.getBoundingClientRect();
pad.setPointerCapture = () => {};
const at = (kind, [x, y]) => pad.dispatchEvent(new PointerEvent(kind, {button: 0, pointerId: 1,
  clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true}));
at('pointerdown', from);
for (let k = 1; k <= 8; k++) at('pointermove', [0, 1].map((i) => from[i] + (to[i] - from[i]) * k / 8));
at('pointerup', to);
"""


class Page:
    """The browser, and what went wrong in it."""

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

    def look(self, size=LAPTOP, dark=False):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, address):
        """Load an address and wait until the sliders are there."""
        self.address = "/".join(address.split("/")[:3]) + "/"
        self.driver.get("about:blank")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(address)
        self.until("document.documentElement.dataset.ready === 'true'")
        self.settled()
        return self

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, condition):
        return until(lambda: self.js(f"return {condition}"))

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def text(self, identifier):
        return self.js("return document.getElementById(arguments[0]).textContent", identifier)

    def click(self, selector):
        self.js("arguments[0].scrollIntoView({block: 'center'})", self.find(selector))
        self.find(selector).click()

    def keys(self, *keys, control=False):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        chain = ActionChains(self.driver)
        if control:
            chain.key_down(Keys.CONTROL)
        chain.send_keys(*keys).key_up(Keys.CONTROL).perform()

    def pixels(self, canvas="picture"):
        return self.js("return document.getElementById(arguments[0]).toDataURL()", canvas)

    def changed(self, before, canvas="picture"):
        return until(lambda: self.pixels(canvas) != before)

    def settled(self):
        """The sliders are those of the chosen capsule."""
        self.until(
            "document.getElementById('sliders').dataset.capsule === "
            "document.querySelector('#gallery [aria-pressed=true]')?.dataset.capsule"
        )

    def choose(self, capsule):
        self.click(f"#gallery [data-capsule='{capsule}']")
        self.settled()

    def slide(self, index, value):
        """Drag a slider with the mouse."""
        from selenium.webdriver.common.action_chains import ActionChains

        film = self.all(".slider .film")[index]
        self.js("arguments[0].scrollIntoView({block: 'center'})", film)
        chain = ActionChains(self.driver).move_to_element(film).click_and_hold()
        chain.move_by_offset(round(film.rect["width"] / 2 * value / 3.5), 0).release().perform()

    def stroke(self, start, end, pad="pad"):
        self.js(STROKE, start, end, pad)

    def drag(self, canvas, start, end):
        """From one place of a canvas to another, as fractions of its sides."""
        size = self.js(
            "const b = document.getElementById(arguments[0]).getBoundingClientRect(); return [b.width, b.height]",
            canvas,
        )
        self.stroke(*([a * b for a, b in zip(size, at, strict=True)] for at in (start, end)), canvas)

    def values(self):
        return self.js("return [...document.querySelectorAll('.slider output')].map((o) => o.textContent)")

    def problems(self):
        """Errors on the console, and requests to anywhere else."""
        errors = [e["message"] for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return errors + [u for u in urls if not u.startswith((self.address, "data:", "blob:", "about:"))]
