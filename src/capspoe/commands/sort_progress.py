"""How far `capspoe sort` is, and an estimate of the time until its page is there."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich import progress
from rich.console import Console
from rich.text import Text

PLAIN_SECONDS = 5  # between lines of progress when stderr is not a terminal
# Seconds from the last image that is read to the page, on one core of 2.5 GHz: 2.8 for 1,000 images, 22 for 10,000.
AFTER_READING = 1.0
AFTER_READING_EACH = 0.0022
# Before anything is read: seconds to load the libraries, for each image, and for each of its bytes.
LOADING = 3.0
GUESSED_EACH = 0.008
GUESSED_BYTE = 1e-8


class Estimate:
    """The seconds that are left of the whole command, from what is planned and what is done.

    Parameters
    ----------
    clock : the time in seconds; a test has its own
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.began = clock()  # of the present stage
        self.left_of_stage = 0  # images
        self.later = 0  # images that will be read in the next stage
        self.grouping = 0.0  # seconds that grouping will take
        self.per_image: float | None = None  # seconds

    def guess(self, images: int, size: int) -> None:
        """Guess from the number of images and their bytes, until some of them are read."""
        self.plan(images, images)
        self.per_image = GUESSED_EACH + GUESSED_BYTE * size / max(images, 1)
        self.grouping += LOADING

    def plan(self, reading: int, grouping: int) -> None:
        self.later = reading
        self.grouping = AFTER_READING + AFTER_READING_EACH * grouping if grouping else 0.0

    def begin(self, images: int) -> None:
        """A stage begins that reads this many images; 0 if it groups them."""
        self.began = self.clock()
        self.left_of_stage = images

    def read(self, done: int, total: int) -> None:
        """This many images of the stage are read."""
        self.per_image = (self.clock() - self.began) / max(done, 1)
        self.left_of_stage = total - done

    def seconds(self) -> float | None:
        """None if nothing is known yet."""
        if not self.left_of_stage and not self.later:
            return max(0.0, self.grouping - (self.clock() - self.began))
        if self.per_image is None:
            return None
        return self.per_image * (self.left_of_stage + self.later) + self.grouping


class Left(progress.ProgressColumn):
    """The time that is left, which also passes between two steps of a stage."""

    def __init__(self, words: Callable[[], str]) -> None:
        super().__init__()
        self.words = words

    def render(self, task: progress.Task) -> Text:
        return Text("" if task.finished else self.words())


class TerminalProgress:
    """Progress bars with an estimate of the time that is left; lines where there is no terminal.

    Parameters
    ----------
    then : what follows the words "about 20 s left", such as ", then training"
    """

    def __init__(self, then: str = " in all") -> None:
        self.then = then
        self.estimate = Estimate()
        self.console = Console(stderr=True, highlight=False)
        self.bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            Left(self.left),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self.loading: progress.TaskID | None = None

    def __enter__(self) -> "TerminalProgress":
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def guess(self, folder: Path) -> None:
        """Count the images of a folder, and guess how long they will take."""
        from capspoe.data.folders import list_images

        size = 0
        names = list_images(folder)
        for name in names:
            with suppress(OSError):
                size += (folder / name).stat().st_size
        if names:
            self.estimate.guess(len(names), size)
            self.loading = self.bars.add_task("loading", total=len(names))
            if not self.console.is_terminal:
                self.info(f"{len(names):,} images: {self.left()}, by a first guess")

    def info(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def left(self) -> str:
        """The time that is left in words."""
        seconds = self.estimate.seconds()
        if seconds is None:
            return ""
        if seconds < 90:
            return f"about {seconds:.0f} s left{self.then}"
        return f"about {seconds / 60:.0f} min left{self.then}"

    def plan(self, reading: int, grouping: int) -> None:
        self.estimate.plan(reading, grouping)

    def images(self, title: str, total: int) -> Callable[[int], None]:
        self.estimate.begin(total)
        if self.loading is not None:
            self.bars.update(self.loading, visible=False)
        task = self.bars.add_task(title, total=total)
        said_at = time.monotonic() - PLAIN_SECONDS + 1  # the first line after a second

        def advance(done: int) -> None:
            nonlocal said_at
            self.estimate.read(done, total)
            self.bars.update(task, completed=done)
            now = time.monotonic()
            if not self.console.is_terminal and done < total and now - said_at >= PLAIN_SECONDS:
                self.info(f"{title}: {done:,} of {total:,} images, {self.left()}")
                said_at = now

        return advance

    def steps(self, title: str, total: int) -> Callable[[int], None]:
        self.estimate.begin(0)
        task = self.bars.add_task(title, total=total)
        if not self.console.is_terminal and self.estimate.grouping >= PLAIN_SECONDS:
            self.info(f"{title}: {self.left()}")
        return lambda done: self.bars.update(task, completed=done)
