"""ONNX and torch.export programs compute what the network computes."""

import sys

import numpy as np
import onnxruntime
import pytest
import torch

from capspoe import CapsulePoE
from capspoe.config import Config
from capspoe.errors import CapspoeError, InputError
from capspoe.export import export, programs


def load_onnx(path):
    session = onnxruntime.InferenceSession(path)
    names = [given.name for given in session.get_inputs()]
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def load_torch(path):
    module = torch.export.load(path).module()

    def run(*arrays):
        found = module(*map(torch.from_numpy, arrays))
        return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]

    return run


@pytest.mark.parametrize(
    ("format", "suffix", "load", "options"),
    [
        ("onnx", "onnx", load_onnx, {"layers": "4x6"}),
        (
            "torch",
            "pt2",
            load_torch,
            {"layers": "5x4,4x6", "neurons": "binary", "gate": "none", "agreement": "dot"},
        ),
    ],
)
def test_programs_compute_what_the_network_computes(format, suffix, load, options, tmp_path):
    model = CapsulePoE.build(Config(channels=8, **options), (9, 12, 3)).eval()
    with torch.no_grad():
        model.top.w_JNMI.mul_(20)
        model.prior.centre.normal_()
        model.prior.axes.normal_()
        model.logit_scale.fill_(2)
    written = export(model, tmp_path, tmp_path, (format,))
    assert [path.name for path in written] == [f"encoder.{suffix}", f"generator.{suffix}"]
    encoder, generator = map(load, written)
    rng = np.random.default_rng(0)
    for count in (1, 6):
        images = rng.random((count, *model.image), dtype=np.float32)
        on, hidden = encoder(images)
        np.testing.assert_allclose(on, model.encode(images).on, atol=1e-4)
        np.testing.assert_allclose(hidden, model.encode(images).hidden, atol=1e-3)
        capsule, white = rng.integers(0, 4, count), rng.standard_normal((count, 6), dtype=np.float32)
        z = model.prior.from_white(torch.from_numpy(capsule), torch.from_numpy(white))
        h = np.zeros((count, 4, 6), np.float32)
        h[range(count), capsule] = model.top.hidden_mean(z)
        np.testing.assert_allclose(generator(capsule, white)[0], model.decode(h), atol=1e-4)


def test_a_program_that_differs_is_refused(model):
    part = programs.Generator(model)
    programs.compare(part, part, "same.onnx")
    with pytest.raises(CapspoeError, match=r"x\.onnx would differ from the network by .* in 'images'"):
        programs.compare(part, lambda *inputs: part(*inputs) + 0.01, "x.onnx")


def test_a_missing_package_is_named_before_anything_is_written(run, model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"ONNX needs the package onnxscript: pip install 'capspoe\[export\]'"):
        export(model, run, tmp_path / "out", ("hub", "onnx"))
    assert not (tmp_path / "out").exists()
