"""What is done with a trained network: sample, complete, explain, score, traverse."""
