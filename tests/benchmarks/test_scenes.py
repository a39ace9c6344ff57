"""Scenes keep their truth, and the searches that are compared are those of users but for one change."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.pages.scenes import GOALS, TABLES, page
from benchmarks.quality.scenes.capsules import by_changed_search
from benchmarks.quality.scenes.data import Answer, Scenes, make_scenes, score
from benchmarks.quality.scenes.rows import ROWS
from benchmarks.quality.scenes.search import SoftMaximum, explain_by, fit_poses

from benchmarks import records
from capspoe.data import Images
from capspoe.errors import InputError
from capspoe.infer.explain import best_draws, decoders_of

rng = np.random.default_rng(0)
IMAGES = Images(rng.integers(1, 256, (60, 9, 9, 1), np.uint8), np.arange(60) % 5)


@pytest.mark.parametrize("kind", ["superposed", "shifted", "side by side", "three"])
def test_the_scene_is_the_maximum_of_its_objects(kind):
    scenes = make_scenes(IMAGES, kind, 20, seed=3)
    assert (scenes.images == scenes.objects.max(1)).all()
    assert all(len(set(row)) == len(row) for row in scenes.labels.tolist())
    again = make_scenes(IMAGES, kind, 20, seed=3)
    assert all((a == b).all() for a, b in zip(scenes, again, strict=True))
    assert (make_scenes(IMAGES, kind, 20, seed=4).images != scenes.images).any()


def test_shifts_move_every_pixel_alike():
    scenes = make_scenes(IMAGES, "shifted", 30, seed=1)
    for shifted, label in zip(scenes.objects.reshape(-1, 9, 9, 1), scenes.labels.ravel(), strict=True):
        inner = shifted[2:-2, 2:-2]
        sources = IMAGES.pixels[IMAGES.labels == label]
        offsets = [(y, x) for y in range(5) for x in range(5)]
        assert any((source[y : y + 5, x : x + 5] == inner).all() for source in sources for y, x in offsets)


def test_the_front_object_hides_the_one_behind():
    scenes = make_scenes(IMAGES, "occluded", 20)
    front, back = scenes.objects[:, 0], scenes.objects[:, 1]
    assert (scenes.images == np.where(front >= 26, front, back)).all()


def test_damage_touches_only_its_place():
    hole = make_scenes(IMAGES, "hole", 20)
    assert ((hole.images == 0).sum((1, 2, 3)) == 9).all()
    side = make_scenes(IMAGES, "missing side", 20)
    assert ((side.images == 0).sum((1, 2, 3)) == 27).all()
    fragments = make_scenes(IMAGES, "fragments", 20)
    assert ((fragments.images != fragments.objects[:, 0]).sum((1, 2, 3)) <= 18).all()
    assert (fragments.images >= fragments.objects[:, 0]).all()


def test_wrong_requests():
    with pytest.raises(InputError, match="no kind of scene"):
        make_scenes(IMAGES, "upside down", 1)
    with pytest.raises(InputError, match="different labels"):
        make_scenes(Images(IMAGES.pixels, np.zeros(60, int)), "superposed", 1)


def test_scores_of_the_truth_in_any_order_and_of_a_wrong_answer():
    pixels = np.zeros((10, 8, 8, 1), np.uint8)
    for k in range(10):
        pixels[k, k % 8, :5] = pixels[k, 2:6, k % 5] = 255
    scenes = make_scenes(Images(pixels, np.arange(10)), "superposed", 12)
    truth = scenes.objects[:, ::-1] / 255
    perfect = score(scenes, Answer(scenes.labels[:, ::-1], truth, truth[..., 0]))
    assert perfect == {"right": 1, "error": 0, "error cut out": 0, "iou": 1, "ari": 1}
    blank = score(scenes, Answer(scenes.labels * 0 - 1, truth * 0, truth[..., 0] * 0))
    assert blank["right"] == blank["iou"] == 0
    assert blank["error"] == pytest.approx(np.square(truth).mean())
    assert isinstance(scenes, Scenes)


def test_the_page_is_made_of_the_records():
    assert (records.ROOT / "docs" / "scenes.md").read_text() == page()


def test_the_page_shows_what_is_measured():
    measured = {(row.data, row.name) for row in ROWS}
    shown = {(table.data, name) for table in TABLES.values() for name in table.rows}
    assert measured == shown
    assert len(ROWS) == len(measured)
    for goal in GOALS:
        assert ("mnist", goal.row) in measured


def test_the_search_in_chunks_is_that_of_users(model, images):
    x = model.tensor(images)
    explanation = explain_by(decoders_of(model), x, 2, model.recognition(x))
    for ours, theirs in zip(explanation, model.explain(images, 2), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_search_starts_from_other_poses(model, images):
    decoders = decoders_of(model)
    bench = SimpleNamespace(model=model, tensor=model.tensor, names=np.arange(4), recognise=lambda x: None)
    scenes = Scenes(images[:3], images[:3, None].repeat(2, 1), None)
    batches = []

    def usual_start(bench, x):
        batches.append(len(x))
        return best_draws(decoders.linear, decoders.shape, x)

    usual = by_changed_search(bench, scenes)
    started = by_changed_search(bench, scenes, start=usual_start)
    assert batches == [3]
    assert (started.labels == usual.labels).all()
    np.testing.assert_allclose(started.objects, usual.objects, atol=1e-6)
    elsewhere = by_changed_search(bench, scenes, start=lambda bench, x: usual_start(bench, x) + 1)
    assert np.abs(elsewhere.objects - usual.objects).max() > 1e-4


def test_told_the_capsules_the_search_finds_their_poses(model):
    capsule = torch.tensor([[0, 2], [3, 1]])
    decoders = decoders_of(model)
    alone = decoders.exact(capsule.flatten(), torch.zeros(4, 6)).unflatten(0, (2, 2)).detach()
    explanation = fit_poses(decoders, alone.amax(1), capsule)
    assert (np.sort(explanation.capsule) == np.sort(capsule.numpy())).all()
    # The truth is the start, and the cost of the poses is 0 there.
    assert np.abs(explanation.image - alone.amax(1).permute(0, 2, 3, 1).numpy()).max() < 0.1


def test_the_soft_maximum_shares_pixels_between_objects():
    objects = torch.rand(2, 3, 1, 5, 5)
    composed = SoftMaximum().compose(objects)
    assert (composed <= objects.amax(1)).all()
    assert (composed >= objects.amin(1)).all()
    same = objects[:, :1].expand(-1, 3, -1, -1, -1)
    torch.testing.assert_close(SoftMaximum().compose(same), objects[:, 0])
