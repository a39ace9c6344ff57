"""What a trained network is used for: sample, complete, explain, score, traverse."""
