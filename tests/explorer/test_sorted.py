"""A sorted folder in the explorer: its page, and edits that `capspoe sort` reads back."""

import json
import shutil

import pytest
from browser import CHROMIUM, DRIVER, LAPTOP, PHONE, Page
from serving import ADDRESS, served_by, until
from starlette.testclient import TestClient

from capspoe.cli import main
from capspoe.explorer.server import application
from capspoe.explorer.sorted_folder import find_sorted
from squares import write_squares

in_a_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty squares of three sizes."""
    folder = tmp_path_factory.mktemp("squares")
    write_squares(folder)
    return folder


@pytest.fixture(scope="module")
def sorted_once(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("once") / "sorted"
    main(["sort", str(folder), "--out", str(out), "--groups", "3"])
    return out


@pytest.fixture
def out(sorted_once, tmp_path):
    return shutil.copytree(sorted_once, tmp_path / "sorted")


@pytest.fixture
def client(out):
    with TestClient(application(out), base_url=ADDRESS) as client:
        yield client


def groups_of(out):
    return {group["name"]: group["images"] for group in json.loads((out / "groups.json").read_text())["groups"]}


def test_the_page_is_served_with_its_images_and_nothing_else(client, out):
    answer = client.get("/")
    assert answer.url.path == "/sorted/"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "<script>" not in answer.text
    assert client.get("/sorted/page.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/sorted/page.css").headers["content-type"].startswith("text/css")
    image = client.get("/sorted/original/0")
    assert (image.status_code, image.headers["content-type"]) == (200, "image/png")
    assert client.get("/sorted/original/60").status_code == 404
    assert client.get("/sorted/thumbnails/..%2fedits.csv").status_code == 404
    assert client.get("/sorted/edits.csv").status_code == 404


def test_a_page_cannot_name_files_that_are_no_images(client, out):
    text = (out / "index.html").read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    address = data["images"][0][1]
    (out / "index.html").write_text(text.replace(f'"{address}"', '"edits.csv"', 1))
    assert client.get("/sorted/original/0").status_code == 404


def test_edits_are_written_and_the_next_run_follows_them(client, folder, out):
    names = list(groups_of(out))
    changes = [[names[0], "tiny"], [names[1], "tiny"], ["square 2.png", "mine"]]
    answer = client.post("/api/edits", json={"edits": changes})
    assert answer.status_code == 200
    assert dict(answer.json()["edits"])["square 2.png"] == "mine"
    assert "tiny" in client.get("/sorted/").text  # a page that is opened later knows it
    main(["sort", str(folder), "--out", str(out)])
    assert set(groups_of(out)) == {"tiny", "mine", names[2]}
    assert groups_of(out)["mine"] == 1
    client.post("/api/edits", json={"edits": [["square 2.png", ""], [names[1], "large"]]})
    main(["sort", str(folder), "--out", str(out)])
    assert set(groups_of(out)) == {"tiny", "large", names[2]}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"edits": [["group-77", "x"]]}, "there is no group or image 'group-77' here"),
        ({"edits": [["group-00", "../x"]]}, "cannot be the name of a group's folder"),
        ({"edits": [["group-00"]]}, "each is [group or file, name]"),
        ({"edits": []}, "the body must be"),
        ([], "the body must be"),
    ],
)
def test_wrong_edits_are_refused_and_nothing_is_written(client, out, body, problem):
    before = (out / "edits.csv").read_bytes()
    answer = client.post("/api/edits", json=body)
    assert answer.status_code == 400
    assert problem in answer.json()["error"]
    assert (out / "edits.csv").read_bytes() == before


def test_other_sites_cannot_edit(client):
    answer = client.post("/api/edits", json={"edits": [["odd", "x"]]}, headers={"origin": "http://elsewhere.example"})
    assert answer.status_code == 403


def test_a_run_beside_the_groups_leads_to_them(out, gated_run, tmp_path):
    assert find_sorted(gated_run) is None
    shutil.copytree(gated_run, out / "run")
    assert find_sorted(out / "run") == out.absolute()
    for opened in (out, out / "run"):
        with TestClient(application(opened), base_url=ADDRESS) as client:
            assert client.get("/api/run").json()["groups"]
            assert 'id="groups"' in client.get("/").text
            assert "the capsules of these groups" in client.get("/sorted/").text


@in_a_browser
def test_rename_merge_and_undo_in_a_browser(out):
    from selenium.webdriver.common.keys import Keys

    def written():
        return dict(line.split(",") for line in (out / "edits.csv").read_text().splitlines())

    names = list(groups_of(out))
    page = Page()
    try:
        with served_by(application(out)) as address:
            page.look(PHONE)
            page.driver.get(f"{address}/")
            page.until("document.querySelectorAll('section').length >= 3")
            page.click("#g0 header button")
            page.keys("squares", Keys.ENTER)
            until(lambda: written()[names[0]] == "squares")
            until(lambda: page.text("saved") == "saved")

            page.look(LAPTOP)
            page.click("#g1 header button:last-of-type")
            page.keys("squares", Keys.TAB, Keys.ENTER)
            until(lambda: written()[names[1]] == "squares")
            assert page.text("number") == "2 groups"
            page.click("#undo")
            until(lambda: written()[names[1]] == "")
            assert page.text("number") == "3 groups"
            assert page.js("return document.documentElement.scrollWidth <= window.innerWidth")
    finally:
        page.driver.quit()
