"""The estimate of the time until everything is sorted."""

import pytest

from capspoe.commands.sort_progress import AFTER_READING, AFTER_READING_EACH, Estimate, TerminalProgress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_estimate_is_of_the_whole_command_from_the_first_image():
    """48 images are looked at, 1,000 read at the same .1 s each, and then grouped."""
    clock = Clock()
    estimate = Estimate(clock)
    grouping = AFTER_READING + 1000 * AFTER_READING_EACH
    estimate.plan(reading=1000, grouping=1000)
    estimate.begin(48)
    assert estimate.seconds() is None
    clock.now += 0.2
    estimate.read(2, 48)
    assert estimate.seconds() == pytest.approx(0.1 * (46 + 1000) + grouping)

    estimate.plan(reading=0, grouping=1000)
    estimate.begin(1000)
    assert estimate.seconds() == pytest.approx(0.1 * 1000 + grouping)  # as fast as before
    clock.now += 40
    estimate.read(200, 1000)
    assert estimate.seconds() == pytest.approx(0.2 * 800 + grouping)

    estimate.read(1000, 1000)
    estimate.begin(0)
    clock.now += 1
    assert estimate.seconds() == pytest.approx(grouping - 1)
    clock.now += 100
    assert estimate.seconds() == 0


def test_a_first_guess_grows_with_the_images_and_their_bytes():
    seconds = []
    for images, size in ((1000, 3 * 10**6), (1000, 3 * 10**9), (2000, 3 * 10**9)):
        estimate = Estimate(Clock())
        estimate.guess(images, size)
        seconds.append(estimate.seconds())
    small, large, more = seconds
    assert small < large < more < 2 * large
    estimate.plan(reading=1000, grouping=2000)
    estimate.begin(48)
    assert estimate.seconds() > large / 2  # still the guess
    estimate.read(48, 48)
    assert estimate.seconds() == pytest.approx(AFTER_READING + 2000 * AFTER_READING_EACH)  # measured: no time at all


def test_the_guess_is_the_first_line(tmp_path, capsys):
    for name in ("a.png", "b.jpg", "notes.txt"):
        (tmp_path / name).write_bytes(bytes(1000))
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    TerminalProgress().guess(tmp_path)
    assert capsys.readouterr().err.startswith("3 images: about ")


def test_words(capsys):
    progress = TerminalProgress(", then training")
    progress.estimate.grouping = 42.0
    assert progress.left() == "about 42 s left, then training"
    progress.estimate.grouping = 300.0
    assert progress.left() == "about 5 min left, then training"
    progress.steps("grouping", 4)
    assert capsys.readouterr().err == "grouping: about 5 min left, then training\n"
