"""Training: the loops, what they optimise, and a run from images to a trained network."""
