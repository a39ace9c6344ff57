#!/bin/sh
# The same training by one process and by two: the weights agree.
#
#   sh examples/two_processes.sh [FOLDER] [OPTIONS of capspoe train]
set -eu
folder=${1:-runs/processes}
[ $# -eq 0 ] || shift
python=${PYTHON:-python3}
export OMP_NUM_THREADS=1 # the processes share the cores; without this each takes them all

"$python" -m capspoe train digits --out "$folder/one" --threads 1 "$@"
"$python" -m torch.distributed.run --standalone --nproc-per-node 2 \
  -m capspoe train digits --out "$folder/two" --threads 1 "$@"

"$python" - "$folder" <<'PYTHON'
import sys

import capspoe

one, two = (capspoe.CapsulePoE.load(f"{sys.argv[1]}/{name}").state_dict() for name in ("one", "two"))
difference = {name: float((one[name] - two[name]).abs().max() / one[name].abs().max().clamp_min(1e-3)) for name in one}
worst = max(difference, key=difference.get)
print(f"largest relative difference: {difference[worst]:.1e} in {worst}")
PYTHON
