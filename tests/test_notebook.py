"""The tutorial notebook runs from top to bottom, in its short form."""

import ast
import contextlib
import json
from pathlib import Path

import numpy as np
from PIL import Image

from capspoe import kernels
from runs import QUICK

NOTEBOOK = json.loads((Path(__file__).parent.parent / "examples" / "tutorial.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
SETTINGS = "settings = {}"


def shown(cell: str, names: dict) -> object:
    """Run a cell as a notebook does: what its last line gives is shown."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "tutorial.ipynb", "exec"), names)
    return eval(compile(ast.Expression(last.value), "tutorial.ipynb", "eval"), names) if last else None


def test_the_tutorial_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert CODE[0].count(SETTINGS) == 1
    short = QUICK | {"limit": 96, "autoencoder_epochs": 2, "epochs": 2}
    cells = [CODE[0].replace(SETTINGS, f"settings = {short}"), *CODE[1:]]
    names: dict = {}
    with kernels.use("reference"), contextlib.chdir(tmp_path):
        results = [shown(cell, names) for cell in cells]
    pictures = [r for r in results if isinstance(r, Image.Image)]
    assert [p.size for p in pictures] == [(118, 118), (1074, 174), (536, 236), (354, 534)]
    assert all(np.unique(np.asarray(p)).size > 20 for p in pictures)
    said = capsys.readouterr().out
    assert "labelled" in said
    assert float(said.split("test accuracy")[1]) > 0.5
    assert (tmp_path / "runs" / "tutorial-own" / "samples.png").exists()


def test_the_notebook_is_small_and_without_output():
    for cell in NOTEBOOK["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    assert NOTEBOOK["nbformat"] == 4
