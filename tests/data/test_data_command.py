"""The command `capspoe data`."""

import json

import pytest
from toyset import FILES, WEB

from capspoe.commands.data import data
from capspoe.errors import DataError, InputError


def test_list_fetch_and_verify(toy, serve, capsys):
    folder = toy(serve(WEB))
    data(["list"])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "28x28 grey" in rows["toy"]
    assert " no " in rows["toy"]
    assert "ships with scikit-learn" in rows["digits"]
    with pytest.raises(DataError, match="toy: 2 files are missing or damaged; run `capspoe data fetch toy`"):
        data(["verify", "toy"])
    with pytest.raises(DataError, match="has not been downloaded"):
        data(["fetch", "toy", "--offline"])
    capsys.readouterr()
    data(["fetch", "toy"])
    assert capsys.readouterr().out == f"{folder}\n"
    data(["verify", "toy"])
    expected = [*(f"ok       {name}" for name in FILES), "toy: complete and verified"]
    assert capsys.readouterr().out.splitlines() == expected
    data(["list"])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert " yes " in rows["toy"]


def test_json(toy, serve, capsys):
    folder = toy(serve(WEB))

    def answer(*words):
        data([*words, "--json"])
        return json.loads(capsys.readouterr().out)

    listed = {row["name"]: row for row in answer("list")}
    assert (listed["toy"]["cached"], listed["toy"]["shape"]) == (False, [28, 28, 1])
    assert answer("fetch", "toy") == {"name": "toy", "folder": str(folder)}
    assert answer("verify", "toy") == {"name": "toy", "files": dict.fromkeys(FILES, "ok")}


@pytest.mark.parametrize("action", ["fetch", "verify"])
def test_a_name_is_required(action):
    with pytest.raises(InputError, match=f"which data set\\? capspoe data {action} NAME"):
        data([action])
