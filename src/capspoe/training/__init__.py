"""Training, without files: one update, the stages, and `fit`, which runs them."""
