"""What a person chooses when a folder is sorted, and where it is said how far that is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Settings:
    """What a person may choose.

    groups      number of groups; None estimates it, or keeps the groups that are there
    features    "auto" looks at the images and chooses
    regroup     group everything again, even if there are groups
    """

    groups: int | None = None
    features: Literal["auto", "outlines", "photos"] = "auto"
    regroup: bool = False
    seed: int = 0


class Progress(Protocol):
    """Where to say what is going on."""

    def info(self, line: str) -> None: ...

    def plan(self, reading: int, grouping: int) -> None:
        """Say how many images will be read after the stage that begins now, and how many then grouped."""
        ...

    def images(self, title: str, total: int) -> Callable[[int], None]:
        """Begin a stage that reads images; call what is returned with the number of those that are done."""
        ...

    def steps(self, title: str, total: int) -> Callable[[int], None]:
        """Begin a stage of some steps, in which images are grouped; call what is returned after each."""
        ...
