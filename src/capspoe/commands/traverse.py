"""`capspoe traverse`."""

from typing import Literal

from capspoe.commands.arguments import RunFolder, command, figure_path


@command
def traverse(run: RunFolder, capsule: int | None = None, basis: Literal["neurons", "principal"] = "neurons") -> None:
    """Draw what each dimension of a capsule's pose changes, over 2.5 standard deviations to either side.

    Writes RUN/figures/traverse-J.png.

    Args:
        capsule: Only this capsule.
        basis: Move single neurons, or the principal axes of the capsule's prior.
    """
    from capspoe.figures.sheet import write
    from capspoe.figures.traversal import draw_traversal, traversal
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run)
    suffix = "" if basis == "neurons" else "-principal"
    capsules = range(model.top.upper[0])
    if capsule is not None:
        capsules = range(capsule, capsule + 1)
    for j in capsules:
        path = figure_path(run, f"traverse-{j}{suffix}.png")
        write(draw_traversal(traversal(model, j, basis)), path)
        print(path)
