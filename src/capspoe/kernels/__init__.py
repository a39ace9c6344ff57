"""The sums of routing and contrastive divergence, fused for the CPU."""
