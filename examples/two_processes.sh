#!/bin/sh
# Train and encode with one process and with two, and compare the weights and the capsules.
#
#   sh examples/two_processes.sh [FOLDER] [OPTIONS of capspoe train]
set -eu
folder=${1:-runs/processes}
[ $# -eq 0 ] || shift
python=${PYTHON:-python3}
export OMP_NUM_THREADS=1 # otherwise each process uses all cores

with_two() { "$python" -m torch.distributed.run --standalone --nproc-per-node 2 -m capspoe "$@"; } # torchrun

"$python" -m capspoe train digits --out "$folder/one" --threads 1 "$@"
with_two train digits --out "$folder/two" --threads 1 "$@"
with_two encode "$folder/two" --out "$folder/two.npz"

"$python" - "$folder" <<'PYTHON'
import sys

import numpy as np

import capspoe
import capspoe.data

folder = sys.argv[1]
models = [capspoe.CapsulePoE.load(f"{folder}/{name}") for name in ("one", "two")]
one, two = (model.state_dict() for model in models)
difference = {name: float((one[name] - two[name]).abs().max() / one[name].abs().max().clamp_min(1e-3)) for name in one}
worst = max(difference, key=difference.get)
print(f"largest relative difference: {difference[worst]:.1e} in {worst}")
alone = models[0].encode(capspoe.data.load("digits", "test").pixels).on.argmax(1)
same = (np.load(f"{folder}/two.npz")["on"].argmax(1) == alone).mean()
print(f"the same capsule is on for {same:.1%} of the test images")
PYTHON
