"""The page in a real browser, as a person uses it."""

import io
import time
from base64 import b64decode

import httpx2 as httpx
import pytest
from browser import CHROMIUM, DRIVER, PHONE, Page, draw
from PIL import Image, ImageDraw

from conftest import served, until

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver (Debian: chromium, chromium-driver)"
)


@pytest.fixture(scope="module")
def browser():
    page = Page()
    yield page
    page.driver.quit()


@pytest.fixture
def page(browser, address):
    browser.look()
    browser.open(f"{address}/").ready()
    yield browser
    assert browser.problems() == []


def test_it_opens_on_the_gallery(page):
    assert len(page.all("#gallery .tile")) == 4
    assert len(page.all("#sliders .slider")) == 6
    assert page.find("#status").text == "trained"
    assert page.find("#gallery .tile[aria-pressed=true]").get_attribute("data-capsule") == "0"
    effects = page.js(
        "return [...document.querySelectorAll('.effect')].map((e) => Number(e.style.getPropertyValue('--effect')))"
    )
    assert effects == sorted(effects, reverse=True)
    assert effects[0] == 1


def test_nothing_jumps_while_it_loads(page):
    shift = page.driver.execute_async_script(
        "const done = arguments[0]; let sum = 0;"
        "new PerformanceObserver((l) => { for (const e of l.getEntries()) if (!e.hadRecentInput) sum += e.value; })"
        ".observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 300)"
    )
    assert shift < 0.1


def test_choose_a_capsule_and_move_a_slider(page):
    other = next(j for j in (1, 2) if page.find("#stage-title").text != f"Capsule {j}")
    before = page.pixels()
    page.click(f"#gallery .tile[data-capsule='{other}']")
    page.changed(before)
    assert page.find("#stage-title").text == f"Capsule {other}"
    before = page.pixels()
    page.slide(0, 2.0)
    page.changed(before)
    assert abs(float(page.values()[0]) - 2.0) < 0.3


def test_randomise_lock_reset_and_undo(page):
    page.slide(1, 1.5)
    kept = page.values()[1]
    page.click(".slider:nth-child(2) .lock")
    page.click("#randomise")
    until(lambda: page.values()[0] != "0.00")
    drawn = page.values()
    assert drawn[1] == kept
    page.click("#reset")
    until(lambda: page.values() != drawn)
    assert [v for v in page.values() if v != "0.00"] == [kept]
    page.click("#undo")
    until(lambda: page.values() == drawn)
    page.click("#redo")
    until(lambda: page.values() != drawn)


def test_the_numbers_shown_are_those_of_the_chosen_capsule_at_once(page):
    page.slide(0, 2.0)
    page.js(SLOWLY.replace("recognise", "/api/capsules/"))
    page.click("#gallery .tile[data-capsule='3']")
    assert page.values() == ["0.00"] * 6
    page.settled()


def test_randomise_does_not_switch_on_what_was_left_meanwhile(page):
    page.js(SLOWLY.replace("recognise", "random"))
    page.click("#randomise")
    page.click("#gallery .tile[data-capsule='2']")
    time.sleep(1.2)
    page.settled()
    assert page.values() == ["0.00"] * 6
    assert page.js("return location.hash.match(/on=([^&]*)/)[1]").startswith("2:")


def test_draw_a_digit_and_hold_it(page):
    page.click("[data-view=recognise]")
    draw(page)
    page.until("document.querySelectorAll('#lights .winner').length === 1")
    page.until("!document.getElementById('hold').disabled")
    until(lambda: any(page.pixels("rebuilt")[0::4]))
    winner = page.find("#lights .winner").get_attribute("data-capsule")
    assert page.find("#verdict").text == f"Capsule {winner} switches on"
    page.until("document.querySelectorAll('#routing-steps button').length === 3")
    page.click("#hold")
    page.until("!document.querySelector('.view.play').hidden")
    until(lambda: any(v != "0.00" for v in page.values()))
    assert page.find("#stage-title").text == f"Capsule {winner}"


STROKE = """
const [from, to] = arguments, pad = document.getElementById('pad'), box = pad.getBoundingClientRect();
pad.setPointerCapture = () => {};
const at = (kind, [x, y]) => pad.dispatchEvent(new PointerEvent(kind, {button: 0, pointerId: 1,
  clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true}));
at('pointerdown', from);
for (let k = 1; k <= 8; k++) at('pointermove', [0, 1].map((i) => from[i] + (to[i] - from[i]) * k / 8));
at('pointerup', to);
"""
SLOWLY = """
const quick = window.fetch;
window.fetch = async (url, options) => {
  const answer = await quick(url, options);
  if (String(url).includes('recognise')) await new Promise((done) => setTimeout(done, 900));
  return answer;
};
"""


def test_all_strokes_of_a_drawing_count(page, address):
    """However slowly the server answers: the last answer is for the whole drawing, with its routing."""
    page.click("[data-view=recognise]")
    page.js(STROKE, [60, 60], [190, 60])
    page.until("document.querySelectorAll('#routing-steps button').length === 3")
    page.js(SLOWLY)
    page.js("document.getElementById('routing-steps').replaceChildren()")
    page.js(STROKE, [190, 60], [120, 220])
    page.until("document.querySelectorAll('#routing-steps button').length === 3")
    image = {"data": page.js("return document.getElementById('pad').toDataURL()")}
    expected = httpx.post(f"{address}/api/recognise", json={"image": image}).json()["input"]
    seen = Image.open(io.BytesIO(b64decode(expected.split(",")[1])))
    assert page.pixels("seen")[0::4] == list(seen.tobytes())


def test_a_drawing_on_a_picked_image_is_not_wiped_by_a_late_answer(page):
    page.click("[data-view=recognise]")
    page.until("document.querySelectorAll('#picker button').length > 5")
    page.js(SLOWLY)
    page.click("#picker button:nth-child(3)")
    page.js(STROKE, [20, 20], [20, 220])
    assert page.js("return document.querySelectorAll('#picker [aria-pressed=true]').length") == 0
    page.until("document.querySelectorAll('#routing-steps button').length === 3")
    pad = page.js("return document.getElementById('pad').getBoundingClientRect().width")
    middle = [round(side * 280 / pad) for side in (20, 120)]
    ink = "return document.getElementById('pad').getContext('2d').getImageData(...arguments, 1, 1).data[0]"
    assert page.js(ink, *middle) == 255


def test_the_routing_moves_from_iteration_to_iteration(page):
    page.click("[data-view=recognise]")
    page.until("document.querySelectorAll('#picker button').length > 5")
    page.click("#picker button:nth-child(3)")
    page.until("document.querySelectorAll('#routing-steps button').length === 3")
    page.until("document.querySelector('#routing-steps button:nth-child(3)').ariaPressed === 'true'")
    last = page.js("return document.getElementById('routing').toDataURL()")
    page.click("#routing-steps button:nth-child(1)")
    page.until("document.getElementById('routing-text').textContent.includes('alike')")
    assert page.js("return document.getElementById('routing').toDataURL()") != last


def test_open_a_file_and_drop_one(page, tmp_path):
    picture = Image.new("L", (120, 160), 255)
    ImageDraw.Draw(picture).line((30, 20, 90, 60, 40, 140), fill=0, width=14)
    picture.save(tmp_path / "seven.png")
    page.find("#file").send_keys(str(tmp_path / "seven.png"))
    page.until("document.querySelectorAll('#lights .winner').length === 1")
    seen = page.pixels("seen")
    assert max(seen[0::4]) > 200  # dark on light was turned round
    assert seen[0] == 0
    page.click("#clear")
    page.until("document.querySelectorAll('#lights .winner').length === 0")
    page.driver.execute_async_script(
        "const done = arguments[0]; const c = document.createElement('canvas'); c.width = c.height = 90;"
        "const g = c.getContext('2d'); g.fillStyle = '#fff'; g.fillRect(40, 10, 9, 70);"
        "c.toBlob((b) => { const t = new DataTransfer(); t.items.add(new File([b], 'one.png', {type: 'image/png'}));"
        "document.body.dispatchEvent(new DragEvent('dragenter', {dataTransfer: t, bubbles: true}));"
        "document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: t, bubbles: true, cancelable: true}));"
        "done(); })"
    )
    page.until("document.querySelectorAll('#lights .winner').length === 1")


def test_a_file_that_is_no_image_gets_a_message(page, tmp_path):
    (tmp_path / "text.png").write_text("not an image")
    page.find("#file").send_keys(str(tmp_path / "text.png"))
    page.until("document.getElementById('toasts').textContent.includes('not an image')")


def test_a_link_restores_everything(page, address):
    page.click("#gallery .tile[data-capsule='3']")
    page.slide(0, -1.5)
    page.click(".slider:nth-child(4) .lock")
    page.until("location.hash.includes('lock=')")
    time.sleep(0.5)
    link, values, picture = page.driver.current_url, page.values(), page.pixels()
    page.open(link).ready()
    until(lambda: page.values() == values)
    until(lambda: page.pixels() == picture)
    assert page.find("#gallery .tile[aria-pressed=true]").get_attribute("data-capsule") == "3"
    assert page.find(".slider:nth-child(4) .lock").get_attribute("aria-pressed") == "true"


def test_a_link_restores_a_drawing(page):
    page.click("[data-view=recognise]")
    draw(page)
    page.until("location.hash.includes('image=d')")
    page.until("document.querySelectorAll('#lights .winner').length === 1")
    link, seen = page.driver.current_url, page.pixels("seen")
    page.open(link)
    until(lambda: page.pixels("seen") == seen)


@pytest.mark.parametrize("words", ["on=77:1,1,1,1,1,1", "view=nothing&on=0:a,b&capsule=-3&image=q&t=9"])
def test_a_link_that_makes_no_sense_starts_afresh(page, address, words):
    page.open(f"{address}/#{words}").ready()
    assert page.values() == ["0.00"] * 6


def test_keyboard_only(page):
    from selenium.webdriver.common.keys import Keys

    def focus():
        return page.js(
            "const e = document.activeElement; return e.dataset.capsule ?? e.dataset.number ?? e.id"
        )

    page.js("document.activeElement.blur()")
    for _ in range(14):
        page.keys(Keys.TAB)
        if page.js("return document.activeElement.matches('.tile')"):
            break
    page.keys(Keys.ARROW_RIGHT)
    until(lambda: page.find("#stage-title").text == "Capsule 1")
    assert focus() == "1"
    page.settled()
    for _ in range(30):
        page.keys(Keys.TAB)
        if page.js("return document.activeElement.matches('.film input')"):
            break
    before = page.pixels()
    page.keys(*[Keys.ARROW_RIGHT] * 12)
    assert page.values()[0] == "1.20"
    page.changed(before)
    spoken = "return document.activeElement.getAttribute('aria-valuetext')"
    assert page.js(spoken) == "1.20 standard deviations"
    page.keys("l")
    assert page.find(".slider .lock").get_attribute("aria-pressed") == "true"
    page.keys("0", Keys.ARROW_RIGHT, Keys.HOME)
    assert page.values()[0] == "1.20"
    page.keys("l", Keys.ARROW_RIGHT)
    assert page.values()[0] == "1.30"
    page.keys("l")
    page.js("document.activeElement.blur()")
    page.keys("r")
    until(lambda: page.values()[1] != "0.00")
    page.keys((Keys.CONTROL, "z"))
    until(lambda: page.values()[1] == "0.00")
    page.keys("]")
    until(lambda: page.find("#stage-title").text == "Capsule 2")
    page.keys("2")
    page.until("!document.querySelector('.view.recognise').hidden")
    page.keys("?")
    page.until("document.getElementById('help').open")


def test_a_phone(page, address):
    page.look(PHONE)
    page.open(f"{address}/#view=play&image=i3").ready()
    for view in ("play", "recognise", "blend", "training"):
        page.find(f".tabs [data-view={view}]").click()
        page.until(f"!document.querySelector('.view.{view}').hidden")
        assert page.js("return document.documentElement.scrollWidth <= innerWidth"), view
        tabs = page.find(".tabs").rect
        assert tabs["y"] + tabs["height"] >= page.js("return scrollY + innerHeight") - 1
        small = page.js(
            "return [...document.querySelectorAll('main .view:not([hidden]) button, .tabs button')]"
            ".filter((b) => b.offsetParent && b.getBoundingClientRect().height < 26).map((b) => b.outerHTML)"
        )
        assert small == []


def test_dark_and_light(page, address):
    ground = "return getComputedStyle(document.body).backgroundColor"
    assert page.js(ground) == "rgb(245, 244, 240)"
    page.look(dark=True)
    page.until("getComputedStyle(document.body).backgroundColor === 'rgb(15, 17, 21)'")
    page.click("#theme")
    page.until("getComputedStyle(document.body).backgroundColor === 'rgb(245, 244, 240)'")
    page.open(f"{address}/api")
    assert page.js(ground) == "rgb(245, 244, 240)"
    page.js("localStorage.removeItem('theme')")


def test_reduced_motion(page, address):
    page.look(calm=True)
    page.open(f"{address}/#view=recognise&image=i3")
    page.until("document.querySelectorAll('#routing-steps button').length === 3")
    assert page.find("#routing-steps button:nth-child(3)").get_attribute("aria-pressed") == "true"


def test_blend(page):
    page.click("[data-view=blend]")
    until(lambda: any(page.pixels("blended")[0::4]))
    before = page.pixels("blended")
    page.js(
        "const t = document.getElementById('blend-t'); t.value = 0; t.dispatchEvent(new Event('input'));"
        "t.dispatchEvent(new Event('change'))"
    )
    page.changed(before, "blended")
    page.until("document.querySelectorAll('#blend-picker button').length > 3")
    before = page.pixels("blended")
    page.click("#blend-picker button:nth-child(4)")
    page.changed(before, "blended")
    page.until("location.hash.includes('from=i3')")


def test_training_page_and_api_page(page, address):
    page.click("[data-view=training]")
    page.until("document.getElementById('samples').naturalWidth > 0")
    assert page.find("#training-title").text == "Training is finished"
    page.open(f"{address}/api")
    assert len(page.all("#endpoints .panel")) == 13


def test_without_the_server_it_says_so_and_carries_on(page):
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **network})
    page.click("#gallery .tile[data-capsule='1']")
    page.until("!document.getElementById('banner').hidden")
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, **network})
    page.until("document.getElementById('banner').hidden")
    page.settled()  # the capsule that was chosen meanwhile
    assert page.problems()  # the failed requests, which the browser itself reports


def test_a_server_that_is_only_suspended(page):
    page.js(
        "const patient = AbortSignal.timeout; AbortSignal.timeout = () => patient.call(AbortSignal, 50);"
        "const quick = window.fetch; window.fetch = (url, options) => new Promise((_, fail) =>"
        "options.signal?.addEventListener('abort', () => { window.fetch = quick; fail(options.signal.reason); }));"
    )
    page.click("[data-view=training]")
    page.until("!document.getElementById('banner').hidden")
    page.until("document.getElementById('banner').hidden")


def test_what_fails_while_the_page_loads_is_asked_again(page, address):
    late = (
        "const quick = window.fetch; let failures = 2;"
        "window.fetch = (url, options) => String(url).includes('gallery') && failures-- > 0"
        ' ? Promise.resolve(new Response(\'{"error": "busy"}\', {status: 503})) : quick(url, options);'
    )
    script = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": late})
    try:
        page.open(f"{address}/").ready()
        page.until("document.querySelectorAll('#picker button').length > 1")
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_curves_with_gaps(page):
    page.js(
        "const quick = window.fetch; window.fetch = async (url, options) => {"
        "const answer = await quick(url, options); if (!String(url).includes('/api/training')) return answer;"
        "const stage = {stage: 'autoencoder', step: 2, of: 2, steps: [1, 2], curves: {loss: [null, 0.5]}, use: null};"
        "return new Response(JSON.stringify({...await answer.json(), stages: [stage]})); };"
    )
    page.click("[data-view=training]")
    page.until("document.querySelectorAll('#charts .chart').length === 1")


def test_several_capsules_without_the_gate(browser, literal_run):
    from selenium.webdriver.common.keys import Keys

    with served(literal_run) as address:
        browser.look()
        browser.open(f"{address}/").ready()
        before = browser.pixels()
        browser.click("#gallery .tile[data-capsule='2']")
        browser.changed(before)
        assert len(browser.all("#gallery .tile.on")) == 2
        browser.click("#gallery .tile[data-capsule='2']")
        until(lambda: len(browser.all("#gallery .tile.on")) == 1)
        browser.keys(Keys.ARROW_RIGHT)
        until(lambda: len(browser.all("#gallery .tile.on")) == 2)
        browser.settled()
        browser.keys((Keys.CONTROL, "z"))
        until(lambda: len(browser.all("#gallery .tile.on")) == 1)
        assert browser.find("#gallery .tile.on").get_attribute("aria-pressed") == "true"
        browser.click("[data-view=recognise]")
        browser.until("document.querySelectorAll('#picker button').length > 1")
        browser.click("#picker button")
        browser.until("!document.getElementById('hold').disabled")
        browser.click("#hold")
        until(lambda: len(browser.all("#gallery .tile.on")) == 4)
        assert browser.problems() == []
        browser.driver.get("about:blank")
