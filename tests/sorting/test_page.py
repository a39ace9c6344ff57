"""The page in a browser, opened from the disk: the slider, the viewer, the keyboard, and many images."""

import json
from pathlib import Path

import pytest
from tests.explorer.browser import CHROMIUM, DRIVER, LAPTOP, PHONE, Page

from capspoe.sorting.edits import Edits, read_edits
from capspoe.sorting.outputs import arrange
from capspoe.sorting.page import write_page
from capspoe.sorting.settings import Settings
from capspoe.sorting.sorter import sort_folder
from squares import write_squares

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver (Debian: chromium, chromium-driver)"
)


class Silent:
    def info(self, line):
        pass

    def plan(self, reading, grouping):
        pass

    def images(self, title, total):
        return lambda done: None

    steps = images


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Sixty squares of three sizes, the smallest in a folder; a copy of one, whose name tries to run a script."""
    folder = tmp_path_factory.mktemp("squares")
    write_squares(folder)
    hostile = "<img src=x onerror='document.title=1'>&amp;.png"
    (folder / hostile).write_bytes((folder / "square 0.png").read_bytes())
    (folder / "small ones").mkdir()
    for k in range(0, 60, 3):
        (folder / f"square {k}.png").rename(folder / "small ones" / f"square {k}.png")
    out = tmp_path_factory.mktemp("page")
    result = sort_folder(folder, out, Settings(groups=3), Silent())
    write_page(result, arrange(result, Edits()), Edits(), "1 cannot be read: <b>x</b>.png (broken)", out)
    return out


@pytest.fixture(scope="module")
def page(out):
    page = Page()
    page.driver.get((out / "index.html").as_uri())
    yield page
    page.driver.quit()


def test_the_page_is_what_it_says(page, out):
    assert page.js("return document.querySelectorAll('section').length") >= 3
    assert page.js("return document.querySelectorAll('.tile').length") == 61
    assert page.js("return document.getElementById('number').textContent") == "3 groups"
    assert page.js("return document.title").endswith(", sorted")  # no script of a file name ran
    assert page.js("return document.querySelectorAll('.tile i').length") >= 1
    for size in (LAPTOP, PHONE):
        page.look(size)
        assert page.js("return document.documentElement.scrollWidth <= window.innerWidth")
    page.look(LAPTOP)
    errors = [entry["message"] for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []


def test_captions_are_not_cut(page):
    """A name of almost thirty letters fits at both widths, although its words do not fill the lines."""
    script = "const s = document.querySelector('.tile span'); s.title = s.textContent; s.textContent = arguments[0]"
    page.js(script, "A in LiberationMono-Bold.png")
    for size in (LAPTOP, PHONE):
        page.look(size)
        assert page.js("const s = document.querySelector('.tile span'); return s.scrollHeight <= s.clientHeight")
    page.look(LAPTOP)
    page.js("const s = document.querySelector('.tile span'); s.textContent = s.title")


def test_groups_say_which_folder_they_come_from(page):
    files = page.js("return images.map((image) => image[FILE])")
    inside = [place for place, file in enumerate(files) if file.startswith("small ones/")]
    outside = [place for place, file in enumerate(files) if "/" not in file]
    for places, words in (
        (inside, "all from small ones"),
        ([*inside[:2], outside[0]], "2 from small ones"),
        ([inside[0], outside[0]], ""),  # not most of them
        (outside, ""),
    ):
        assert page.js("return originOf(arguments[0])", places) == words
    assert "from small ones" in page.text("groups")


def enter(page, field, value):
    script = (
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))"
    )
    page.js(script, field, value)


def test_the_slider_and_the_filters(page):
    def groups_at(value):
        enter(page, "level", value)
        return page.js("return [...document.querySelectorAll('section h2')].map((title) => title.textContent)")

    most = int(page.js("return document.getElementById('level').max"))
    odd = len(groups_at(3)) - 3
    for count in range(2, most + 1):
        assert len(groups_at(count)) == count + odd
        assert page.js("return visible.length") == 61
    assert any("part 2" in title for title in groups_at(most))
    assert any("and 1 more group" in title for title in groups_at(2))
    page.js("document.getElementById('usual').click()")
    assert page.js("return document.getElementById('level').value") == "3"
    enter(page, "search", "square 7.")
    assert page.js("return document.querySelectorAll('.tile').length") == 1
    # The bar counts the groups that are shown, and the cover is the image that was looked for.
    assert page.text("number") == "1 of 3 groups"
    thumbnail = "return document.querySelector(arguments[0] + ' img').getAttribute('src')"
    assert page.js(thumbnail, "#covers") == page.js(thumbnail, ".tile")
    enter(page, "search", "nothing like it")
    assert page.text("groups") == "No file name here contains “nothing like it”."
    enter(page, "search", "")
    assert page.text("number") == "3 groups"


def test_a_cover_leads_to_a_heading_that_is_in_sight(page):
    for size in (LAPTOP, PHONE):
        page.look(size)
        page.js("scrollTo(0, 0); document.querySelector('#covers a:nth-child(2)').click()")
        below = page.js(
            "const heading = document.querySelectorAll('section h2')[1].getBoundingClientRect().top;"
            "return heading - document.getElementById('tools').getBoundingClientRect().bottom"
        )
        assert 0 <= below < 60
    page.look(LAPTOP)


def test_the_keyboard_and_the_viewer(page):
    from selenium.webdriver.common.keys import Keys

    page.js("document.querySelector('.tile').focus()")
    focus = page.driver.switch_to.active_element
    focus.send_keys(Keys.ARROW_RIGHT)
    assert page.js("return [...document.querySelectorAll('.tile')].indexOf(document.activeElement)") == 1
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.js("return document.getElementById('viewer').open")
    first = page.js("return document.getElementById('file').textContent")
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert page.js("return document.getElementById('file').textContent") != first
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not page.js("return document.getElementById('viewer').open")
    # The tile of the image that was shown last gets the focus, a moment later.
    page.until("document.activeElement.title === document.getElementById('file').textContent")
    assert page.js("return document.activeElement.title") != first


def titles(page):
    return page.js("return [...document.querySelectorAll('section h2')].map((title) => title.textContent)")


def fill_in(page, number, word, value):
    """Press "rename" or "merge" of a group, and answer as a person with a keyboard."""
    from selenium.webdriver.common.keys import Keys

    script = (
        "document.querySelectorAll('section')[arguments[0]].querySelectorAll('header button')[arguments[1]].click()"
    )
    page.js(script, number, ("rename", "merge").index(word))
    field = page.driver.switch_to.active_element
    if word == "merge":
        field.send_keys(value)
        page.js("document.activeElement.form.requestSubmit()")
    else:
        field.send_keys(value, Keys.ENTER)


def test_names_given_on_the_page_are_what_a_run_reads(page, out, tmp_path):
    page.js("localStorage.clear()")
    page.driver.refresh()
    first, second, third, *_ = titles(page)
    fill_in(page, 0, "rename", "a/b")  # no folder can have this name
    page.js("document.querySelector('.asking [type=button]').click()")
    assert titles(page)[0] == first
    fill_in(page, 0, "rename", 'small, "ones"')
    assert titles(page)[0] == 'small, "ones"'
    assert page.js("return document.activeElement.ariaLabel") == 'rename small, "ones"'
    page.js("document.querySelectorAll('.tile')[5].click()")
    file = page.js("return document.getElementById('file').textContent")
    script = "const m = document.getElementById('move'); m.value = arguments[0]; m.dispatchEvent(new Event('change'))"
    page.js(script, third)
    page.js("document.getElementById('close').click()")
    page.until("document.activeElement.matches('.tile')")  # it takes the focus, a moment later
    assert file in page.js(
        "return [...document.querySelectorAll('section')[2].querySelectorAll('.tile')].map((tile) => tile.title)"
    )
    fill_in(page, 1, "merge", third)
    assert titles(page)[:2] == ['small, "ones"', third]
    assert page.text("number") == "2 groups"
    page.js("document.getElementById('undo').click()")
    assert titles(page)[:3] == ['small, "ones"', second, third]
    page.js("URL.createObjectURL = (file) => { window.saved = file; return '#'; }; save(); return 0")
    text = page.driver.execute_async_script("window.saved.text().then(arguments[0])")
    (tmp_path / "edits.csv").write_text(text, newline="")
    edits = read_edits(tmp_path / "edits.csv", {"group-00", "group-01", "group-02"}, {file})
    assert list(edits.names.values()) == ['small, "ones"']
    assert edits.moved == {file: third}


def test_twenty_thousand_images_do_not_freeze_the_page(page, out, tmp_path):
    """The data of the page, 330 times over: it is ready at once, with few elements."""
    text = (out / "index.html").read_text()
    start = text.index('id="data">') + len('id="data">')
    end = text.index("</script>", start)
    data = json.loads(text[start:end])
    times = 330
    data["images"] = [image for image in data["images"] for _ in range(times)]
    data["leaves"] = [[a * times, b * times, group, cover * times] for a, b, group, cover in data["leaves"]]
    data["odd"] = [data["odd"][0] * times, data["odd"][1] * times, data["odd"][2]]
    data["groups"] = [[name, cover * times, ids] for name, cover, ids in data["groups"]]
    large = Path(tmp_path / "index.html")
    large.write_text(text[:start] + json.dumps(data).replace("<", "\\u003c") + text[end:])
    page.driver.get(large.as_uri())
    assert page.js("return document.querySelectorAll('.tile').length") < 200
    script = "const t = performance.now(); render(); document.body.offsetHeight; return performance.now() - t"
    assert page.js(script) < 2000
    before = page.js("return document.querySelectorAll('.tile').length")
    page.js("document.querySelector('.more').click()")
    assert page.js("return document.querySelectorAll('.tile').length") == before + 400
