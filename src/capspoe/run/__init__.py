"""The run folder: atomic files, checkpoints, the log, several processes, and the model that is loaded from it."""
