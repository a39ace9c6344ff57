"""CapsulePoE: saved, loaded, and refused when its weights do not fit."""

import numpy as np
import pytest
import torch

from capspoe.config import preset
from capspoe.data.given import FROM_PYTHON
from capspoe.errors import DamageWarning, InputError, RunError
from capspoe.run import checkpoint
from capspoe.run.model import CapsulePoE, find_device
from capspoe.training.fit import fit

BIAS = "layers.0.b"


def test_save_and_load(model, images, tmp_path):
    assert model.stage == "done"
    assert not model.training
    model.save(tmp_path / "copy")
    copy = CapsulePoE.load(tmp_path / "copy")
    assert (copy.config, copy.image, copy.stage) == (model.config, model.image, "done")
    assert np.array_equal(copy.reconstruct(images), model.reconstruct(images))
    assert np.array_equal(copy.sample(4).images, model.sample(4).images)


def test_save_does_not_overwrite_a_run(model, tmp_path):
    model.save(tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="holds a run already"):
        model.save(tmp_path / "run")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_network_that_no_run_trained_does_not_claim_a_data_set(images, tmp_path):
    quick = {"channels": 8, "layers": "3x4", "min_steps": 5, "epochs": 1, "recognition_steps": 5}
    config = preset("small", "mnist").replace(**quick)
    network = CapsulePoE.build(config, images.shape[1:])
    fit(network, images)
    network.save(tmp_path / "mine")
    assert CapsulePoE.load(tmp_path / "mine").config == config.replace(data=FROM_PYTHON)


def test_a_state_dict_brings_its_recognition_network(model, images):
    fresh = CapsulePoE.build(model.config, model.image).eval()
    assert fresh.recognition is None
    fresh.load_state_dict(model.state_dict())
    assert np.array_equal(fresh.encode(images).on, model.encode(images).on)
    damaged = {**model.state_dict(), "recognition.one more": torch.zeros(3)}
    with pytest.raises(RuntimeError, match=r"recognition\.one more"):
        CapsulePoE.build(model.config, model.image).load_state_dict(damaged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: {**w, "one more": w[BIAS].clone()}, "do not fit"),
        (lambda w: {k: v for k, v in w.items() if k != BIAS}, "do not fit"),
        (lambda w: {**w, BIAS: w[BIAS][:-1]}, "do not fit"),
        (lambda w: {**w, BIAS: w[BIAS].double()}, "do not fit"),
        (lambda w: {**w, BIAS: w[BIAS] * torch.nan}, "NaN or infinite"),
        (lambda w: {**w, BIAS: w[BIAS] + torch.inf}, "NaN or infinite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(model, tmp_path, change, message):
    """Their checksum is right: whoever writes a run writes that too."""
    checkpoint.create(tmp_path, model.config, model.image)
    checkpoint.save(tmp_path, checkpoint.State(checkpoint.DONE), change(model.state_dict()), {})
    with pytest.raises(RunError, match=message):
        CapsulePoE.load(tmp_path)


def test_a_damaged_checkpoint_is_a_warning(run_copy, model, images):
    (checkpoint.numbered(run_copy)[-1] / "state.json").unlink()
    (run_copy / "config.json").write_text("{")
    with pytest.warns(DamageWarning) as warned:
        before = CapsulePoE.load(run_copy)
    *damage, unfinished = [str(w.message) for w in warned]
    assert [text.split(";")[1] for text in damage] == [" using the newest intact checkpoint"] * 2
    assert "is not finished (stage recognition)" in unfinished
    assert before.stage == "recognition"
    assert before.recognition is None
    energy = model.encode(images, posterior="energy").on
    assert np.array_equal(before.encode(images).on, energy)


def test_devices(run, model):
    assert find_device("cpu") == CapsulePoE.load(run, "cpu").device == model.device == torch.device("cpu")
    gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    assert (find_device("auto").type == "cpu") != gpu
    with pytest.raises(InputError, match="device must be one of 'auto', 'cpu', 'cuda', 'mps'"):
        find_device("tpu")
    for name, there in (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())):
        if not there:
            with pytest.raises(InputError, match=f"there is no {name} device here; choose cpu"):
                find_device(name)
