"""Every figure of the paper, and the ones it should have had.

Each file holds one figure: a function that computes what it shows, as arrays, and one that draws it.

    grid            Figure 3 of the paper: what each capsule generates
    routing         Figure 1: how one image is routed; `diagram` draws it
    architecture    Figure 2: the network, from its settings
    traversal       what each of a capsule's numbers changes
    reconstruction  an image, and what comes back through the network
    interpolation   from one image to another through their capsule
    gallery         what each capsule paints, and the images it claims
    heat            where the routing of an image looks
    curves          the course of training
"""

from capspoe.figures.grid import grid, write_grid

__all__ = ["grid", "write_grid"]
