"""`capspoe traverse`."""

from dataclasses import dataclass
from typing import Literal

from capspoe.commands.arguments import RunFolder, parse


@dataclass(frozen=True)
class Traverse:
    """Draw what each dimension of a capsule's pose changes, over 2.5 standard deviations to either side.

    Writes RUN/figures/traverse-J.png.
    """

    run: RunFolder
    capsule: int | None = None
    """Only this capsule."""
    basis: Literal["neurons", "principal"] = "neurons"
    """Move single neurons, or the principal axes of the capsule's prior."""


def traverse(argv: list[str]) -> None:
    a = parse(Traverse, "traverse", argv)
    from capspoe.core.checks import check_capsule
    from capspoe.figures.sheet import write
    from capspoe.figures.traversal import draw_traversal, traversal
    from capspoe.run.bundled import output_folder
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(a.run)
    J = model.top.upper[0]
    if a.capsule is not None:
        check_capsule("capsule", a.capsule, J)
    suffix = "" if a.basis == "neurons" else "-principal"
    for j in range(J) if a.capsule is None else [a.capsule]:
        path = output_folder(a.run) / "figures" / f"traverse-{j}{suffix}.png"
        write(draw_traversal(traversal(model, j, a.basis)), path)
        print(path)
