"""Capsules without PyTorch: train on digits, export the network, then generate and encode with onnxruntime alone.

Run: python examples/export_onnx.py [--quick]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import capspoe
from capspoe.export import export

QUICK = {"limit": 200, "channels": 8, "layers": "4x6", "epochs": 1, "autoencoder_epochs": 1, "min_steps": 30}

with tempfile.TemporaryDirectory() as name:
    run, folder = Path(name) / "run", Path(name) / "exported"
    model = capspoe.train("digits", run, quiet=True, **(QUICK if "--quick" in sys.argv else {}))
    for path in export(model, run, folder, ("hub", "onnx", "torch")):
        print(f"{path.name:20} {path.stat().st_size / 1e6:.2f} MB")
    loaded = capspoe.CapsulePoE.load(folder)  # reads config.json and model.safetensors
    assert (loaded.sample(4).images == model.sample(4).images).all()
    encoder, generator = (onnxruntime.InferenceSession(folder / f"{n}.onnx") for n in ("encoder", "generator"))

J, N = model.top.upper
capsule = np.arange(J)
white = np.random.default_rng(0).standard_normal((J, N), dtype=np.float32)
(images,) = generator.run(None, {"capsule": capsule, "white": white})
on, hidden = encoder.run(None, {"images": images})
found = (on.argmax(1) == capsule).mean()
print(f"generated {images.shape}; for {found:.0%} of them the encoder finds the capsule that generated them")
difference = np.abs(on - model.encode(images).on).max()
print(f"largest difference from PyTorch: {difference:.1e}")
