"""Several objects at once, and damage. `python -m benchmarks.quality.scenes --help` says how to measure them.

data.py         scenes made of single objects, and the scores of an answer
bench.py        a run, its data, and what its parts say about a scene
search.py       the search of `capspoe.infer.explain` with other compositions, and for given capsules
capsules.py     answers of the capsules; code_space.py those that stay in the codes
baselines.py    answers of models without labels; supervised.py of networks that were trained with labels
rows.py         every row of the tables in docs/scenes.md: a kind of scene, and who explains it
"""
