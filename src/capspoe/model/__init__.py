"""The paper in plain PyTorch: no files, no plotting, no data, no command line.

Read in this order: routing, layer (with neurons and gates), routed, codec, autoencoder, network.
"""
