"""Figures of rows of images: traversals, reconstructions, the gallery, and how they are drawn."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from PIL import Image
from scipy.stats import spearmanr

from capspoe.evaluate.measures import MEASURES
from capspoe.figures import gallery, reconstruction, sheet, traversal
from capspoe.figures.explanation import draw_explanation
from capspoe.infer.explain import Explanation

# Drawing


def test_a_sheet_keeps_pixels_exact(tmp_path):
    image = np.random.default_rng(0).random((5, 7, 3))
    drawing = sheet.Sheet(60, 40)
    drawing.text(2, 6, "words", 8)
    drawing.image(11, 13, image, 21)
    sheet.write(drawing.figure, tmp_path / "new" / "x.png")
    picture = np.asarray(Image.open(tmp_path / "new" / "x.png"))
    assert picture.shape == (40, 60, 3)
    wanted = np.full((40, 60, 3), 255)
    wanted[13:28, 11:32] = (image * 255 + 0.5).astype(np.uint8).repeat(3, 0).repeat(3, 1)
    assert np.array_equal(picture[11:], wanted[11:])
    assert (picture[:11, :30] < 100).any()  # the words


def test_an_svg_keeps_its_text(tmp_path):
    drawing = sheet.Sheet(60, 40)
    drawing.text(2, 4, "$x_1$ <b>")  # a class may have any name
    sheet.write(drawing.figure, tmp_path / "x.svg")
    assert "$x_1$ &lt;b&gt;" in (tmp_path / "x.svg").read_text()


def test_rows_stand_where_their_images_are(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        sheet.Row(f"row {r}", [rng.random((1, 28, 28, 1)), rng.random((n, 28, 28, 1))]) for r, n in ((0, 3), (1, 2))
    ]
    sheet.write(sheet.draw_rows("title", "words", rows, 56), tmp_path / "rows.png")
    picture = np.asarray(Image.open(tmp_path / "rows.png"))
    for r, group, k in ((0, 0, 0), (1, 0, 0), (0, 1, 2), (1, 1, 1)):
        x, y = 128 + group * (60 + 14) + k * 60, 70 + r * 60
        found = picture[y : y + 56 : 2, x : x + 56 : 2, 0] / 255
        assert found == pytest.approx(rows[r].groups[group][k, ..., 0], abs=0.003)
    x = 128 + 74 + 2 * 60  # where the shorter row has no image
    assert (picture[70 + 60 : 70 + 116, x : x + 56] == 255).all()


# Traversals


def decoded(model, capsule, z):
    with torch.no_grad():
        return model.array(model.decode_pose(torch.tensor([capsule]), z[None]))[0]


@pytest.mark.parametrize("basis", ["neurons", "principal"])
def test_a_traversal_moves_one_dimension(model, basis):
    found = traversal.traversal(model, 2, basis)
    assert found.images.shape == (6, 11, 28, 28, 1)
    centre, axes = model.prior.centre[2], model.prior.axes[2]
    steps = axes.T if basis == "principal" else torch.diag((axes @ axes.T).diagonal().sqrt())
    mean = decoded(model, 2, centre)
    for k in range(6):
        assert found.images[k, 5] == pytest.approx(mean, abs=1e-5)
        assert found.images[k, 10] == pytest.approx(decoded(model, 2, centre + 2.5 * steps[k]), abs=1e-4)
        assert found.images[k, 0] == pytest.approx(decoded(model, 2, centre - 2.5 * steps[k]), abs=1e-4)
    change = np.sqrt(np.square(found.images - mean).mean((1, 2, 3, 4)))
    assert found.change == pytest.approx(change, rel=1e-4)
    names = [f"{'axis' if basis == 'principal' else 'dimension'} {k}" for k in np.argsort(-change)]
    assert [row.name for row in found.rows] == names
    for row, k in zip(found.rows, np.argsort(-change), strict=True):
        assert np.array_equal(row.groups[0], found.images[k])
        assert row.remark == (found.label[k] or "")


def strokes(wide, lean):
    y, x = np.mgrid[0:28, 0:28] - 13.5
    stroke = np.clip(wide / 2 + 0.5 - np.abs(x + y * np.tan(np.radians(lean))), 0, 1)
    return (stroke * (np.abs(y) < 10))[..., None]


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=11), rng.integers(0, 4, 11).astype(float), np.exp(traversal.AT)):
        expected = spearmanr(values, traversal.AT).statistic
        assert traversal.rank_correlation(values) == pytest.approx(expected)


def test_labels_name_what_was_measured():
    deviation = {"thickness": 0.5, "slant": 4.0, "width": 1.0, "height": 1.0}
    leaning = np.stack([strokes(3, a) for a in np.linspace(20, -20, 11)])
    assert traversal.label_for(leaning, deviation) == "leans right ↔ leans left"
    assert traversal.label_for(leaning[::-1], deviation) == "leans left ↔ leans right"
    assert traversal.label_for(leaning, {}) is None  # nothing can be measured
    growing = np.stack([strokes(w, 0) for w in np.linspace(2, 6, 11)])
    assert traversal.label_for(growing, {"thickness": 0.5, "slant": 4.0}) == "thinner ↔ thicker"
    assert traversal.label_for(np.stack([strokes(w, 0) for w in np.linspace(3, 3.2, 11)]), deviation) is None
    back_and_forth = np.stack([strokes(3, 20 * np.sin(a)) for a in np.linspace(0, 9, 11)])
    assert traversal.label_for(back_and_forth, deviation) is None


def test_labels_belong_to_their_dimensions(model, monkeypatch):
    deviation = dict.fromkeys(MEASURES, 1e-3)  # so small that every change is large
    monkeypatch.setattr(traversal, "deviations", lambda *_: deviation)
    found = traversal.traversal(model, 0)
    assert any(found.label)
    assert found.label == [traversal.label_for(images, deviation) for images in found.images]


def test_images_on_a_bright_ground_have_no_labels(model, monkeypatch):
    images = np.stack([strokes(w, 3 * w) for w in range(2, 6)])
    monkeypatch.setattr(traversal, "sample", lambda *_, **__: SimpleNamespace(images=images))
    wanted = {name: pytest.approx(measure(images).std()) for name, measure in MEASURES.items()}
    assert traversal.deviations(model, 1) == wanted
    images = 1 - images
    assert traversal.deviations(model, 1) == {}


# Reconstructions


@torch.no_grad()
def test_reconstructions(model, dataset):
    images = dataset.batch(np.arange(5))
    found = reconstruction.reconstructions(model, images)
    up = model.up(model.tensor(images))
    assert found.images[0] == pytest.approx(images / 255, abs=1e-6)
    assert found.images[1] == pytest.approx(model.reconstruct(images, through="autoencoder"), abs=1e-5)
    assert found.images[2] == pytest.approx(model.reconstruct(images), abs=1e-5)
    assert found.images[3] == pytest.approx(model.array(model.down(up.hidden, up.c)), abs=1e-5)
    assert found.error == pytest.approx(np.square(found.images - images / 255).mean((2, 3, 4)), abs=1e-6)
    assert found.on.tolist() == up.winner.tolist()
    rows = found.rows(3)
    assert [row.name for row in rows] == ["image", "autoencoder", "its capsule", "all capsules"]
    assert rows[0].captions == [f"capsule {j}" for j in found.on[:3]]
    assert rows[2].note == f"error {found.error[2].mean():.4f}"  # over all 5
    assert rows[2].captions == [f"{e:.4f}" for e in found.error[2, :3]]
    assert np.array_equal(rows[3].groups[0], found.images[3, :3])


# Gallery


def test_the_gallery_counts_images_and_labels(model, dataset):
    encoded = model.encode(dataset.images().pixels)
    found = gallery.gallery(model, dataset, encoded, count=3)
    on = encoded.on.argmax(-1)
    assert found.share == pytest.approx(np.bincount(on, minlength=4) / len(dataset))
    correct = 0
    for j in range(4):
        rows = np.flatnonzero(on == j)
        counts = np.bincount(dataset.labels[rows], minlength=10)
        correct += counts.max()
        assert found.images[j] == pytest.approx(dataset.batch(rows[:3]) / 255)
        assert found.mean[j] == pytest.approx(decoded(model, j, model.prior.centre[j]), abs=1e-5)
        assert found.label_share[j] == pytest.approx(counts / len(rows))
        name, share = gallery.most_common(found, j)[0]
        assert (name, share) == (dataset.classes[counts.argmax()], pytest.approx(counts.max() / len(rows)))
        row = gallery.gallery_rows(found)[j]
        assert f"{name}: {100 * share:.0f}%" in row.remark
        assert row.detail == f"{100 * found.share[j]:.1f}% of images"
    assert found.purity == pytest.approx(correct / len(dataset))


def test_a_capsule_may_have_no_images_and_labels_may_be_far_apart(model, dataset):
    far = SimpleNamespace(batch=dataset.batch, labels=np.array([7, 2**31 - 1, 7]), classes=None)
    encoded = model.encode(dataset.batch([0, 1, 2]))
    encoded.on[:] = np.eye(4)[2]
    found = gallery.gallery(model, far, encoded)
    assert gallery.most_common(found, 2) == [("7", pytest.approx(2 / 3)), ("2147483647", pytest.approx(1 / 3))]
    assert found.share.tolist() == [0, 0, 1, 0]
    assert gallery.most_common(found, 0) == []
    assert [len(group) for group in gallery.gallery_rows(found)[0].groups] == [1, 0]
    gallery.draw_gallery(found)
    unlabelled = SimpleNamespace(batch=dataset.batch, labels=None, classes=None)
    assert gallery.gallery(model, unlabelled, encoded).purity is None
    assert gallery.label_of(unlabelled, 0) is None
    assert gallery.label_of(far, 1) == "2147483647"


def test_an_explanation_has_a_row_for_each_object_that_was_found():
    capsule = np.array([[3, 1, -1], [2, -1, -1]])
    objects, owner = np.zeros((2, 3, 8, 8, 1)), np.full((2, 3, 8, 8), 1 / 3)
    found = Explanation(capsule, np.ones((2, 3)), np.zeros((2, 3, 4)), objects, owner, objects[:, 0], np.zeros(2))
    texts = [text.get_text() for text in draw_explanation(np.zeros((2, 8, 8, 1)), found).findobj(Text)]
    assert "object 2" in texts
    assert "object 3" not in texts
