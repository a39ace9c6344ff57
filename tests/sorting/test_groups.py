"""The parts of sorting, each against something that cannot be wrong."""

import numpy as np
import pytest
import torch

from capspoe.errors import InputError
from capspoe.sorting import features, grouping
from capspoe.sorting.duplicates import find_duplicates
from capspoe.sorting.edits import Edits, read_edits, write_edits
from capspoe.sorting.features import Projection, choose_kind
from capspoe.sorting.library import Library, Record, load_library
from capspoe.sorting.reading import Stamp, Unread
from capspoe.sorting.silhouette import silhouette
from capspoe.sorting.tree import build_tree, chain, image_order, ordered
from capspoe.training.spectral import cut, nearest_others


def blobs(rng, count=4, size=40):
    centres = rng.normal(0, 10, (count, 5))
    points = np.concatenate([centre + rng.normal(0, 1, (size, 5)) for centre in centres]).astype(np.float32)
    return points, np.repeat(np.arange(count), size)


def test_groups_are_the_blobs_and_strangers_are_improbable():
    rng = np.random.default_rng(0)
    points, truth = blobs(rng)
    points = np.hstack([points, np.zeros((len(points), 1), np.float32)])
    graph = grouping.neighbour_graph(points)
    group = grouping.group_nodes(points, graph, None, True, 0)[graph.node]
    assert len(np.unique(group)) == 4
    for number in range(4):
        assert len(np.unique(group[truth == number])) == 1
    usual = grouping.usual_distance(graph)[graph.node]
    ordinary = points[:5] + np.float32(0.01)
    stranger = np.full((1, 6), 100, np.float32)
    assigned = grouping.assign(np.concatenate([ordinary, stranger]), points, group, usual)
    assert (assigned.group[:5] == group[0]).all()
    assert (assigned.fit.probability[:5] > 0.7).all()
    assert assigned.fit.probability[5] < 0.01


def test_copies_share_a_node():
    rng = np.random.default_rng(0)
    points, _ = blobs(rng)
    graph = grouping.neighbour_graph(np.concatenate([points, points[:7]]))
    assert len(graph.rows) == len(points)
    assert graph.node[-7:].tolist() == graph.node[:7].tolist()


def test_weights_are_jaccard_indices():
    """Against Python's sets, in more than one piece."""
    rng = np.random.default_rng(0)
    points = torch.from_numpy(rng.normal(size=(300, 3)).astype(np.float32))
    near = nearest_others(points, 10)
    around = [{row, *others} for row, others in enumerate(near.tolist())]
    weights = grouping.shared_neighbours(near)
    for row, others in enumerate(near.tolist()):
        for place, other in enumerate(others):
            common = around[row] & around[other]
            assert weights[row, place] == pytest.approx(len(common) / len(around[row] | around[other]))


def test_weights_cut_a_bridge_between_blobs():
    """A chain of single images joins two blobs; its edges share few neighbours, so it is cut first."""
    near = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 4], [5, 6, 3], [4, 6, 7], [4, 5, 7], [4, 5, 6]])
    weights = grouping.shared_neighbours(near)
    assert weights[3, 2] == weights[4, 2] < weights[[0, 1, 2, 5, 6, 7]].min()
    group = cut(near, 2, 0, weights)
    assert len(set(group[:4])) == len(set(group[4:])) == 1
    assert group[0] != group[7]


def test_the_medoid_is_the_nearest_to_all():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 3)).astype(np.float32)
    far = np.linalg.norm(points[:, None] - points[None], axis=-1).mean(1)
    assert grouping.medoid(points) == far.argmin()


def test_a_silhouette_is_where_the_object_is():
    """On any plain background, whatever the colours of the object are; a faint pixel counts in part."""
    inside = np.zeros((28, 28), bool)
    inside[5:20, 8:22] = True
    images = np.empty((3, 28, 28, 3), np.uint8)
    for image, background in zip(images, ((255, 255, 255), (0, 0, 0), (200, 30, 90)), strict=True):
        image[:] = background
        image[inside] = 255 - np.array(background)
    assert (silhouette(images).reshape(3, 28, 28) == inside).all()
    images[0, 25, 25] = (255, 247, 255)
    assert silhouette(images)[0, 25 * 28 + 25] == 0.25


def test_boundaries_of_the_tree_disappear_in_the_order_of_merging():
    """Removing boundaries one by one gives the same clusters as cutting SciPy's tree."""
    from scipy.cluster.hierarchy import fcluster, linkage

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 3))
    order, heights = ordered(centres)
    merges = [boundary for _, boundary in sorted(heights)]
    for count in range(1, 13):
        removed = set(merges[: 12 - count])
        stretch = np.cumsum([0] + [boundary not in removed for boundary in range(11)])
        ours = np.empty(12, int)
        ours[order] = stretch
        theirs = fcluster(linkage(centres, "ward"), count, "maxclust")
        assert len({*zip(ours.tolist(), theirs.tolist(), strict=True)}) == count == len(set(ours.tolist()))


def test_leaves_lie_inside_groups():
    rng = np.random.default_rng(0)
    points, truth = blobs(rng)
    truth[3] = -1
    tree, leaf = build_tree(points, truth, 0)
    assert leaf[3] == -1
    assert (tree.group[leaf[truth >= 0]] == truth[truth >= 0]).all()
    assert sorted(tree.merges) == list(range(len(tree.group) - 1))
    order = image_order(points, leaf)
    assert sorted(order.tolist()) == list(range(len(points)))
    assert order[-1] == 3
    assert (np.diff(leaf[order][:-1]) >= 0).all()


def test_a_chain_goes_from_neighbour_to_neighbour():
    line = np.random.default_rng(0).permutation(20).astype(np.float32)[:, None]
    assert line[chain(line, np.array([-1.0]))].ravel().tolist() == list(range(20))


def test_duplicates_exact_and_near():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (5, 28, 28, 3)).astype(np.uint8)
    small[1] = small[0]
    small[3] = np.clip(small[2].astype(int) + rng.integers(-4, 5, small[2].shape), 0, 255)
    small[4] = small[2]
    sizes = np.array([[10, 10], [10, 10], [10, 10], [20, 20], [10, 20]])
    pairs = np.array([[a, b] for a in range(5) for b in range(5)])
    modified = np.array([2, 1, 0, 0, 0])
    found = find_duplicates([b"a", b"a", b"b", b"c", b"d"], small, sizes, modified, pairs)
    # The larger or else the older image is the original, and images of other proportions are others.
    assert found.first.tolist() == [1, 1, 3, 3, 4]
    assert found.exact.tolist() == [True, False, False, False, False]


def test_a_library_is_what_was_saved(tmp_path):
    library = Library("/images", 2, "photos")
    record = Record("a\udcff.png", Stamp(3, 4), "00ff", 5, 6, "")
    small = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    library.add([record], small, np.ones((1, 4), np.float16))
    library.add([record], small + 1, np.zeros((1, 4), np.float16))
    library.unread.append(Unread("b.png", Stamp(1, 2), "broken"))
    library.save(tmp_path)
    loaded = load_library(tmp_path)
    assert loaded.records == library.records
    assert loaded.unread == library.unread
    assert (loaded.small == library.small).all()
    assert (loaded.photos == library.photos).all()
    loaded.keep(np.array([1]))
    assert (loaded.small == small + 1).all()
    # Without features of the new images, those of the old ones are of no use.
    loaded.add([record], small, None)
    assert loaded.photos is None
    assert len(loaded.small) == 2
    # A damaged file is like none.
    content = (tmp_path / "images.npz").read_bytes()
    for damaged in (content[: len(content) // 2], b"", content.replace(b"version", b"verzion")):
        (tmp_path / "images.npz").write_bytes(damaged)
        assert load_library(tmp_path) is None


def test_edits_are_read_and_kept(tmp_path):
    path = tmp_path / "edits.csv"
    write_edits(path, Edits(), ["group-00", "group-01", "odd"])
    assert path.read_text().splitlines() == ["group_or_file,name", "group-00,", "group-01,", "odd,"]
    path.write_text('group_or_file,name\ngroup-01,"a, b"\n\nsub/x.png,cats\nlost.png,cats\n')
    edits = read_edits(path, {"group-00", "group-01"}, {"sub/x.png"})
    assert edits.names == {"group-01": "a, b"}
    assert edits.moved == {"sub/x.png": "cats"}
    assert edits.unknown == ["lost.png"]
    write_edits(path, edits, ["group-00", "group-01", "odd"])
    assert 'group-01,"a, b"' in path.read_text()
    assert "lost.png,cats" in path.read_text()
    for name in ("a/b", "..", "cache", "x\\y", ".hidden"):
        path.write_text(f"group_or_file,name\ngroup-00,{name}\n")
        with pytest.raises(InputError, match="line 2"):
            read_edits(path, {"group-00"}, set())
    path.write_text("group_or_file,name\nonly one\n")
    with pytest.raises(InputError, match="two fields"):
        read_edits(path, set(), set())


def test_the_kind_of_features_follows_the_images():
    rng = np.random.default_rng(0)
    drawings = np.full((20, 28, 28, 3), 255, np.uint8)
    drawings[:, 10:18, 10:18] = rng.integers(0, 100, (20, 1, 1, 1))
    assert choose_kind(drawings).kind == "outlines"
    y, x = torch.meshgrid(torch.linspace(0, 1, 28), torch.linspace(0, 1, 28), indexing="ij")
    photo = torch.stack([x, y, 1 - x], -1).mul(255).byte().numpy()
    choice = choose_kind(np.stack([photo] * 20))
    assert choice.kind == "photos"
    assert "ImageNet" in choice.why
    assert "--features outlines" in choice.why


def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(features, "photos_installed", lambda: False)
    colourful = np.zeros((20, 28, 28, 3), np.uint8)
    colourful[..., 0] = 200
    choice = choose_kind(colourful)
    assert choice.kind == "outlines"
    assert "pip install 'capspoe[photos]'" in choice.why
    with pytest.raises(InputError, match="pip install"):
        features.check_kind("photos")


def test_points_of_new_images_are_those_they_would_have_had():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (40, 28, 28, 3)).astype(np.uint8)
    projection = Projection.fit("outlines", small, None, 10, 0)
    points = projection.points(small, None)
    assert np.allclose(projection.points(small[5:7], None), points[5:7], atol=1e-5)
    # Distances are those of the features: what is outside of the components is in the last coordinate.
    assert points.shape[1] == len(projection.components) + 1
