"""The web page: the same numbers in JavaScript as in PyTorch, and a page that works from the disk."""

import numpy as np
import pytest
import torch
from browser import CHROMIUM, DRIVER, PHONE, Page

from capspoe import CapsulePoE
from capspoe.config import Config
from capspoe.errors import InputError
from capspoe.export import web

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver")
UP = """
const { on, winner, z, r } = network.encode(Float32Array.from(arguments[0]));
return [on, winner, [...z], [...network.decode(winner, z, r)]];
"""


@pytest.fixture(scope="module")
def browser():
    page = Page()
    yield page
    page.driver.quit()


def show(browser, model, run, folder):
    """Open the page of a network, and round the network's own weights as the page does."""
    folder.mkdir(exist_ok=True)
    written = web.write(model, run, folder)
    assert [path.name for path in written] == ["index.html", "capsules.js", "weights.js"]
    browser.look()
    browser.driver.get("about:blank")
    browser.driver.get_log("browser")
    browser.driver.get(f"file://{folder}/index.html")
    with torch.no_grad():
        for tensor in web.tensors(model).values():
            if tensor.numel() >= web.EXACT and tensor.is_contiguous():
                tensor.copy_(tensor.half().float())
        model.top.w_JNMI.copy_(model.top.w_JNMI.half().float())
        model.top.a.copy_(model.top.a.half().float())
    assert [line for line in browser.driver.get_log("browser") if line["level"] == "SEVERE"] == []


def compare(browser, model, images):
    for x in model.tensor(images):
        with torch.no_grad():
            up = model.up(x[None], posterior="energy")
            back = model.down(up.state, up.c)[0]
        on, winner, z, decoded = browser.js(UP, x.flatten().tolist())
        np.testing.assert_allclose(on, up.on[0], atol=1e-3)
        assert winner == int(up.winner)
        np.testing.assert_allclose(z, up.z[0, winner], atol=1e-3 * max(1, float(up.z.abs().max())))
        np.testing.assert_allclose(decoded, back.flatten(), atol=1e-3)
        white = model.prior.to_white(torch.tensor([winner]), up.z[:, winner])[0]
        found = browser.js("return network.toWhite(arguments[0], arguments[1])", winner, up.z[0, winner].tolist())
        np.testing.assert_allclose(found, white, atol=1e-2)


def test_the_same_numbers_as_in_pytorch(browser, run, images, tmp_path):
    model = CapsulePoE.load(run)
    show(browser, model, run, tmp_path / "web")
    compare(browser, model, images[:4])
    pose = torch.linspace(-2, 2, model.top.upper[1])
    with torch.no_grad():
        z = model.prior.from_white(torch.tensor([2]), pose[None])
        image = model.decode_pose(torch.tensor([2]), z)
    decoded = browser.js("return [...decoded(2, arguments[0])]", pose.tolist())
    np.testing.assert_allclose(decoded, image.flatten(), atol=1e-3)


@pytest.mark.parametrize("changes", [{"neurons": "binary", "iterations": 1}, {"sharpness": 2.0, "iterations": 4}])
def test_other_settings_colours_and_shapes(browser, changes, tmp_path):
    """Not trained; the sides are odd, and not equal."""
    config = Config(data="nothing", channels=16, layers="5x6", prior_components=1, logit_scale=1.5, **changes)
    model = CapsulePoE.build(config, (21, 26, 3)).eval()
    with torch.no_grad():
        model.top.w_JNMI.mul_(3)
        model.top.a.normal_(generator=torch.Generator().manual_seed(0))
        model.top.mu.uniform_(generator=torch.Generator().manual_seed(1))
        model.top.d.normal_(generator=torch.Generator().manual_seed(2))
    show(browser, model, tmp_path, tmp_path / "web")
    compare(browser, model, np.random.default_rng(0).random((3, 21, 26, 3), np.float32))
    assert browser.all("#pad") == []  # there is nothing to draw on colour images


def test_pick_move_and_draw(browser, run, tmp_path):
    show(browser, CapsulePoE.load(run), run, tmp_path / "web")
    assert len(browser.all("#tiles button")) == 4
    before = browser.pixels("picture")
    browser.js("const s = document.querySelector('input'); s.value = 2; s.dispatchEvent(new Event('input'))")
    assert browser.pixels("picture") != before
    browser.click("#tiles button:nth-child(3)")
    assert browser.text("title").startswith("Mostly ")
    browser.stroke([60, 60], [150, 60])
    browser.stroke([150, 60], [90, 190])
    assert browser.js("return pose.some((v) => v !== 0)")
    assert browser.text("verdict").startswith(("Capsule ", "Unlike anything it was trained on"))
    browser.click("#clear")
    assert browser.text("verdict") == ""
    browser.look(PHONE)
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")


def test_a_network_that_the_page_cannot_show(tmp_path):
    model = CapsulePoE.build(Config(channels=8, layers="4x6", gate="none"), (28, 28, 1))
    with pytest.raises(InputError, match="one gated layer"):
        web.write(model, tmp_path, tmp_path)
