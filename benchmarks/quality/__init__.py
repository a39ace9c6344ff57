"""How good the models are: each script trains or loads a model, scores it and writes a record."""
