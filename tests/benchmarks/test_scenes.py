"""Scenes keep their truth."""

import numpy as np
import pytest
import torch
from benchmarks.pages.scenes import GOALS, TABLES, page
from benchmarks.quality.scenes import search
from benchmarks.quality.scenes.data import Answer, Scenes, make_scenes, score
from benchmarks.quality.scenes.rows import ROWS

from benchmarks import records
from capspoe.data import Images
from capspoe.errors import InputError
from capspoe.infer import explain

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


def test_the_search_starts_from_other_poses_only_inside_the_block():
    usual = explain.starts
    poses = torch.zeros(1)
    with search.starting_from(poses):
        assert explain.starts() is poses
    assert explain.starts is usual
