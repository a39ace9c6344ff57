"""The figures of the paper, and those that its text describes.

Each file is one figure: a function that computes arrays, and a `draw_...` that gives a matplotlib
Figure of them. `sheet.write` stores a figure as .png or .svg. Figure 3 of the paper, the samples,
is in `capspoe.run.pictures`.

    routing         Figure 1: how one image is routed
    audit           routing beside uniform, shuffled, random and negated weights
    architecture    Figure 2: the network, with its sizes
    gallery         each capsule: its mean decoded, and the images for which it is on
    traversal       what each dimension of a capsule's pose changes
    reconstruction  images through the network and back
    curves          the metrics of training
"""
