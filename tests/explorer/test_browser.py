"""The page in a real browser, used as a person would."""

import shutil
import time

import pytest
from browser import CHROMIUM, DRIVER, PHONE, Page
from PIL import Image, ImageDraw
from serving import N, served, until

from capspoe.run import checkpoint

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver (Debian: chromium, chromium-driver)"
)
MEAN = ["0.00"] * N
SLOWLY = """
const [quick, part] = [window.fetch, arguments[0]];
window.fetch = async (url, options) => {
  const answer = await quick(url, options);
  if (!String(url).includes(part)) return answer;
  await new Promise((done) => setTimeout(done, 600));
  window.late = (window.late ?? 0) + 1;
  return answer;
};
"""


@pytest.fixture(scope="module")
def browser():
    page = Page()
    yield page
    page.driver.quit()


@pytest.fixture
def page(browser, address):
    browser.look()
    browser.open(f"{address}/#view=play")
    yield browser
    assert browser.problems() == []


def recognised(page):
    page.until("!document.getElementById('hold').disabled")


def chosen(page):
    return page.find("#gallery [aria-pressed=true]").get_attribute("data-capsule")


def test_play(page):
    assert len(page.all("#gallery .tile")) == 4
    page.until("document.getElementById('status').textContent === 'trained'")
    assert len(page.all(".slider")) == N
    named = page.find("#gallery .tile[title*=', mostly ']")  # a small run may have capsules without test images
    named.click()
    label = named.get_attribute("title").split(", mostly ")[1].split(",")[0]
    assert (page.text("stage-title"), named.text) == (f"Mostly {label}", label)
    shift = page.driver.execute_async_script(
        "const done = arguments[0]; let sum = 0;"
        "new PerformanceObserver((l) => { for (const e of l.getEntries()) if (!e.hadRecentInput) sum += e.value; })"
        ".observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 200)"
    )
    assert shift < 0.1


def test_two_come_apart(page, address):
    page.open(f"{address}/")  # the first view, with an example
    page.until("document.getElementById('apart-by').value === '1'")
    assert page.text("two-title").startswith("One is ")
    apart = page.pixels("apart")
    page.js("const by = document.getElementById('apart-by'); by.value = 0; by.dispatchEvent(new Event('input'))")
    together = page.pixels("apart")
    assert together != apart
    page.drag("apart", (0.5, 0.5), (0.8, 0.6))
    assert page.pixels("apart") not in (together, apart)
    page.until("location.hash.includes('two=d')")
    link, owner = page.driver.current_url, page.pixels("owner")
    page.click("#two-clear")
    assert page.text("two-title") == "Waiting for two objects"
    page.stroke([60, 60], [190, 200], "two-pad")
    page.until("document.getElementById('apart-by').value === '1'")
    assert page.pixels("owner") != owner
    page.keys("z", control=True)
    assert page.text("two-title") == "Waiting for two objects"
    page.open(link)
    until(lambda: page.pixels("owner") == owner)


def test_two_stay_cleared(page):
    page.click("[data-view=two]")
    page.until("location.hash.includes('two=d')")
    page.until("document.getElementById('apart-by').value === '1'")
    blank = "return document.getElementById('two-pad').getContext('2d').getImageData(0, 0, 280, 280).data"
    blank = f"{blank}.every((value, k) => value === (k % 4 === 3 ? 255 : 0))"
    assert not page.js(blank)
    page.click("#two-clear")
    assert page.js(blank)
    for control in ("#again", "#apart-by"):
        assert not page.find(control).is_enabled()
    page.until("!location.hash.includes('two=')")
    page.click("[data-view=play]")
    page.click("[data-view=two]")
    time.sleep(0.5)
    assert page.js(blank)
    assert page.text("two-title") == "Waiting for two objects"
    assert "two=" not in page.driver.current_url
    page.keys("z", control=True)
    page.until("document.getElementById('apart-by').value === '1'")
    assert not page.js(blank)
    for control in ("#again", "#apart-by"):
        assert page.find(control).is_enabled()
    page.until("location.hash.includes('two=d')")


def test_without_its_images_two_samples_come_apart(browser, gated_run, tmp_path):
    shutil.copytree(gated_run, tmp_path / "run")
    run = checkpoint.open_run(gated_run)
    checkpoint.create(tmp_path / "run", run.config.replace(data=str(tmp_path / "gone.npz")), run.image)
    with served(tmp_path / "run") as address:
        browser.look()
        browser.open(f"{address}/#view=two")
        browser.until("document.getElementById('apart-by').value === '1'")
        assert browser.text("two-title").startswith("One is ")
        assert browser.text("example") == "Two samples"
        browser.click("[data-view=recognise]")
        browser.until("document.getElementById('picker').textContent.includes('gone.npz')")
        browser.driver.get("about:blank")


def test_two_dark_objects_are_laid_over_each_other_as_negatives(browser, dark_run):
    with served(dark_run) as address:
        browser.look()
        browser.open(f"{address}/")
        browser.until("document.getElementById('apart-by').value === '1'")
        pad = "document.getElementById('two-pad').getContext('2d').getImageData(0, 0, 280, 280).data"
        red = browser.js(f"return Array.from({pad}).filter((_, k) => k % 4 === 0)")
        assert red[0] == 0
        assert 0.05 < sum(value > 100 for value in red) / len(red) < 0.9
        browser.driver.get("about:blank")


def test_the_first_visit(page):
    page.js("localStorage.clear()")
    page.open(page.address)
    assert len(page.all("#welcome li")) == 3
    page.click("#got-it")
    assert not page.find("#welcome").is_displayed()
    page.open(page.address)
    assert not page.find("#welcome").is_displayed()
    page.click("#help")
    assert page.find("#welcome").is_displayed()
    page.click("#help")
    assert not page.find("#welcome").is_displayed()


IN_SIGHT = """
const box = document.getElementById(arguments[0]).getBoundingClientRect();
const [above, below] = [".top", ".tabs"].map((bar) => document.querySelector(bar).getBoundingClientRect());
return box.top >= above.bottom && box.bottom <= below.top;
"""


def test_help_comes_into_sight_on_a_phone_that_is_scrolled(page):
    page.look(PHONE)
    for _ in range(2):  # closed at first, then open but out of sight
        page.js("scrollTo(0, document.documentElement.scrollHeight)")
        assert not page.js(IN_SIGHT, "gallery")
        page.find("#help").click()
        assert page.js(IN_SIGHT, "welcome")
    page.find("#help").click()
    assert not page.find("#welcome").is_displayed()


def test_a_view_opens_at_its_top_and_back_returns_to_the_place_before(page):
    page.look(PHONE)
    page.js("scrollTo(0, 200)")
    page.find(".tabs [data-view=recognise]").click()
    page.until("!document.querySelector('.view.recognise').hidden")
    assert page.js("return scrollY") == 0
    page.driver.back()
    page.until("scrollY === 200")


def test_focused_sliders_are_not_under_the_bars_of_a_phone(page):
    from selenium.webdriver.common.keys import Keys

    page.look(PHONE)
    page.find("#save").click()
    covered = """
    const slider = document.activeElement.getBoundingClientRect();
    const [stage, tabs] = [".stage", ".tabs"].map((bar) => document.querySelector(bar).getBoundingClientRect());
    return slider.top < stage.bottom || slider.bottom > tabs.top;
    """
    for _ in range(N):
        page.keys(Keys.TAB)
        assert page.js("return document.activeElement.matches('.film input')")
        assert not page.js(covered)


def test_a_pose_stays_with_its_capsule(page):
    before = page.pixels()
    page.slide(0, 2.0)
    page.changed(before)
    moved = page.values()
    assert abs(float(moved[0]) - 2) < 0.3
    page.choose(2)
    assert page.values() == MEAN
    page.choose(0)
    assert page.values() == moved


def test_randomise_reset_and_undo(page):
    page.click("#randomise")
    until(lambda: page.values() != MEAN)
    drawn = page.values()
    page.click("#reset")
    assert page.values() == MEAN
    page.click("#undo")
    assert page.values() == drawn
    page.click("#redo")
    assert page.values() == MEAN


def test_keyboard_only(page):
    from selenium.webdriver.common.keys import Keys

    def tab_to(selector):
        for _ in range(30):
            page.keys(Keys.TAB)
            if page.js("return document.activeElement.matches(arguments[0])", selector):
                return
        raise AssertionError(selector)

    tab_to(".tile")
    page.keys(Keys.ARROW_RIGHT)
    assert chosen(page) == "1"
    assert page.js("return document.activeElement.dataset.capsule") == "1"
    page.settled()
    tab_to(".film input")
    page.keys(*[Keys.ARROW_RIGHT] * 20)
    assert page.values()[0] == "2.00"
    assert page.js("return document.activeElement.ariaValueText") == "2.00 standard deviations"
    page.keys("3")  # another view: its undo is not that of Play
    page.until("!document.querySelector('.view.recognise').hidden")
    page.keys("z", control=True)
    page.keys("2")
    assert page.values()[0] == "2.00"
    page.keys("z", control=True)  # twenty presses are one step
    assert page.values()[0] == "0.00"
    page.keys("]")
    assert chosen(page) == "2"
    page.keys("r")
    until(lambda: page.values() != MEAN)
    page.keys("0")
    assert page.values() == MEAN


def test_back_returns_to_the_view_before_and_keeps_the_pose(page):
    page.click("[data-view=training]")
    page.click("[data-view=play]")
    page.slide(0, 2.0)
    moved = page.values()
    for view in ("training", "play"):
        page.driver.back()
        page.until(f"!document.querySelector('.view.{view}').hidden")
    assert page.values() == moved
    page.until("location.hash.includes('on=0:')")
    link = page.js("return location.hash")
    page.js("document.getElementById('skip').click()")
    assert page.js("return [location.hash, document.activeElement.id]") == [link, "main"]


def test_draw_undo_and_hold(page):
    page.click("[data-view=recognise]")
    page.stroke([60, 60], [190, 60])
    recognised(page)
    page.until("location.hash.includes('image=d')")
    one, drawing = page.pixels("seen"), page.pixels("pad")
    page.stroke([190, 60], [120, 220])
    page.changed(one, "seen")
    page.keys("z", control=True)
    until(lambda: page.pixels("seen") == one)
    assert page.pixels("pad") == drawing
    page.keys("y", control=True)
    page.changed(one, "seen")
    winner = page.find("#lights [aria-pressed=true]").get_attribute("data-capsule")
    unlike = page.text("verdict") == "Unlike anything it was trained on"
    assert unlike or page.text("verdict").startswith(("Mostly ", f"Capsule {winner}"))
    assert page.text("verdict-note").startswith(f"{'nearest: ' * unlike}capsule {winner} ")
    page.click("#hold")
    until(lambda: page.values() != MEAN)
    assert chosen(page) == winner
    page.click("[data-view=recognise]")
    other = page.find("#lights [aria-pressed=false]").get_attribute("data-capsule")
    page.click("#lights [aria-pressed=false]")  # what another capsule would make of it
    page.settled()
    assert chosen(page) == other


def test_a_late_answer_does_not_undo_clear(page):
    page.click("[data-view=recognise]")
    page.js(SLOWLY, "recognise")
    page.stroke([60, 60], [190, 60])
    page.click("#clear")
    page.until("window.late > 0")
    time.sleep(0.3)
    assert page.text("verdict") == "Waiting for an image"
    assert page.js("return document.getElementById('seen').width") == 0


def test_erase_a_part_and_see_endings(page):
    page.click("[data-view=recognise]")
    page.click("#picker button")
    recognised(page)
    whole = page.pixels("seen")
    page.stroke([20, 20], [20, 150], "seen")
    page.until("!document.getElementById('endings').hidden")
    assert len(page.all("#ends canvas")) == 4
    erased = page.pixels("seen")
    assert erased != whole
    page.stroke([120, 20], [120, 150], "seen")
    page.changed(erased, "seen")
    page.click("#restore")
    assert page.pixels("seen") == whole
    assert page.js("return document.getElementById('endings').hidden")


def test_a_blank_image_is_not_recognised(page, tmp_path):
    page.click("[data-view=recognise]")
    page.stroke([60, 60], [190, 60])
    recognised(page)
    Image.new("L", (50, 50), 130).save(tmp_path / "blank.png")
    page.find("#file").send_keys(str(tmp_path / "blank.png"))
    page.until("document.getElementById('verdict').textContent === 'Not recognised'")
    assert "blank" in page.text("verdict-note")
    assert len(page.all("#lights [aria-pressed=true]")) == 0
    page.until("!location.hash.includes('image=')")
    page.problems()  # the browser reports the refused request
    page.open(page.driver.current_url)
    assert page.text("verdict") == "Waiting for an image"


def test_open_a_file(page, tmp_path):
    picture = Image.new("L", (120, 160), 255)
    ImageDraw.Draw(picture).line((30, 20, 90, 60, 40, 140), fill=0, width=14)
    picture.save(tmp_path / "seven.png")
    page.find("#file").send_keys(str(tmp_path / "seven.png"))
    recognised(page)
    (tmp_path / "text.png").write_text("not an image")
    page.find("#file").send_keys(str(tmp_path / "text.png"))
    page.until("document.getElementById('toasts').textContent.includes('not an image')")


def test_a_link_restores_everything(page):
    page.choose(3)
    page.slide(0, -1.5)
    page.click("[data-view=recognise]")
    page.stroke([60, 60], [190, 200])
    page.until("location.hash.includes('image=d')")
    link, values, picture, seen = page.driver.current_url, page.values(), page.pixels(), page.pixels("seen")
    page.open(link)
    until(lambda: page.pixels("seen") == seen)
    page.click("[data-view=play]")
    assert page.values() == values
    until(lambda: page.pixels() == picture)


def test_a_link_that_does_not_fit_starts_afresh(page, address):
    page.open(f"{address}/#view=nothing&on=77:1,1,1,1,1,1&capsule=-3&image=q")
    assert page.values() == MEAN
    assert "does not fit" in page.text("toasts")
    page.open(f"{address}/#view=play&run=another")
    assert "another run" in page.text("toasts")


TRAINING = """
const quick = window.fetch;
window.fetch = async (url, options) => {
  const answer = await quick(url, options);
  if (!String(url).includes('/api/training')) return answer;
  const curves = {step: [1, 2, 3], loss: [2, 1, 0.5], confidence: [0.9912, 0.9938, 0.9925], temperature: [1, 1, 1]};
  const stages = [{stage: 'autoencoder', step: 3, planned: 4, curves}];
  return new Response(JSON.stringify({...await answer.json(), stages}));
};
"""


def test_training(page, address):
    page.click("[data-view=training]")
    page.until("document.getElementById('samples').naturalWidth > 0")
    assert page.text("training-title") == "Training is finished"
    assert page.text("training-empty") == "The training was too short for curves."
    script = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": TRAINING})
    page.open(f"{address}/#view=training")
    page.until("document.querySelectorAll('#charts .chart').length === 2")  # not the constant one
    page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    assert page.text("training-empty") == ""
    assert page.text("progress") == "Autoencoder3 of 4 steps"
    charts = page.all("#charts .chart")
    loss, confidence = (
        [label.text for label in chart.find_elements("css selector", ".grid + text")] for chart in charts
    )
    assert loss == ["0.50", "1.25", "2.00"]
    assert confidence == ["0.950", "0.975", "1.000"]  # the range of the values alone would be noise


def test_percentages(page):
    script = "const [values, done] = arguments; import('/lib.js').then(({ percent }) => done(values.map(percent)))"
    values = [0, 0.0004, 0.0006, 0.5, 0.9994, 0.9995, 0.9996, 1]
    texts = ["0%", "0%", "0.1%", "50.0%", "99.9%", "100%", "100%", "100%"]
    assert page.driver.execute_async_script(script, values) == texts


def test_a_share_says_of_how_many_images(page):
    page.find("#gallery .tile[title*=', mostly ']").click()
    page.settled()
    page.until("document.getElementById('stage-note').textContent.includes('% of its images among 297 test images')")


def test_a_phone_and_dark_mode(page, address):
    background = "return getComputedStyle(document.documentElement).backgroundColor"
    assert page.js(background) == "rgb(245, 244, 240)"
    page.look(PHONE, dark=True)
    page.open(f"{address}/#image=i3")
    assert page.js(background) == "rgb(15, 17, 21)"
    for view in ("two", "play", "recognise", "training"):
        page.find(f".tabs [data-view={view}]").click()
        page.until(f"!document.querySelector('.view.{view}').hidden")
        assert page.js("return document.documentElement.scrollWidth <= innerWidth"), view
        assert page.js(
            "return [...document.querySelectorAll('.view:not([hidden]) button, .tabs button')]"
            ".filter((b) => b.offsetParent && b.getBoundingClientRect().height < 26).map((b) => b.outerHTML)"
        ) == []  # fmt: skip


def test_without_the_server_it_says_so_and_carries_on(page):
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **network})
    page.click("#gallery [data-capsule='1']")
    page.until("!document.getElementById('banner').hidden")
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, **network})
    page.until("document.getElementById('banner').hidden")
    page.settled()  # on the capsule that was chosen meanwhile
    assert page.problems()  # the browser reports the failed requests


def test_several_capsules_without_the_gate(browser, ungated_run):
    with served(ungated_run) as address:
        browser.look()
        browser.open(f"{address}/#view=play")
        before = browser.pixels()
        browser.choose(2)
        browser.changed(before)
        assert len(browser.all("#gallery .tile.on")) == 2
        browser.click("#gallery [data-capsule='2']")
        assert len(browser.all("#gallery .tile.on")) == 1
        browser.keys("z", control=True)
        assert len(browser.all("#gallery .tile.on")) == 2
        browser.open(f"{address}/#view=recognise&image=i1")
        browser.until("!document.getElementById('hold').disabled")
        browser.click("#hold")
        until(lambda: len(browser.all("#gallery .tile.on")) == 4)
        assert browser.problems() == []
        browser.driver.get("about:blank")


BESIDE_COLOURS = """
const [done, sheet] = [arguments[0], document.createElement("canvas")];
const paint = sheet.getContext("2d");
Object.assign(sheet, { width: 30, height: 20 });
paint.fillStyle = "#f60";
paint.fillRect(0, 0, 30, 20);
paint.clearRect(10, 0, 10, 10);
import("/lib.js").then(async ({ drawCell, picture }) => {
  const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
  Object.assign(canvas, { width: 20, height: 20 });
  drawCell(context, await picture(sheet.toDataURL()), [10, 10], 0, 1, 3.3, 2.4);
  done(context.getImageData(0, 0, 20, 20).data.reduce((sum, value) => sum + value));
});
"""


def test_an_object_between_pixels_has_no_colours_of_the_frames_beside_it(page):
    assert page.driver.execute_async_script(BESIDE_COLOURS) == 0
