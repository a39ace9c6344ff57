"""How fast and how large: times and memory of kernels, training and explorer."""
