"""The tutorial notebook runs from top to bottom, with small settings."""

import ast
import json
from pathlib import Path

import numpy as np
from PIL import Image

from capspoe import kernels

NOTEBOOK = json.loads((Path(__file__).parents[2] / "examples" / "tutorial.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
SETTINGS = {"limit": 96, "channels": 8, "layers": "4x6", "autoencoder_epochs": 20, "epochs": 2, "min_steps": 0}
SETTINGS |= {"batch_size": 32, "threads": 1}


def run_cell(cell: str, names: dict) -> object:
    """Run a cell as a notebook does, and return the value of its last line."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "tutorial.ipynb", "exec"), names)
    return eval(compile(ast.Expression(last.value), "tutorial.ipynb", "eval"), names) if last else None


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "pip" in CODE[0]  # installs capspoe where it is missing
    assert CODE[1].count("settings = {}") == 1
    names: dict = {}
    with kernels.use("reference"):  # nothing to compile
        cells = [CODE[0], CODE[1].replace("settings = {}", f"settings = {SETTINGS}"), *CODE[2:]]
        results = [run_cell(cell, names) for cell in cells]
    pictures = [r for r in results if isinstance(r, Image.Image)]
    assert [p.size for p in pictures] == [(118, 118), (1074, 174), (536, 236), (354, 534)]
    assert all(np.unique(np.asarray(p)).size > 20 for p in pictures)
    printed = capsys.readouterr().out
    assert "labelled" in printed
    assert float(printed.split("test accuracy")[1]) > 0.5


def test_the_notebook_has_no_output():
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in NOTEBOOK["cells"])
