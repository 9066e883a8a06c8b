#!/usr/bin/env bash
# All that only a CUDA machine can tell, in one go and in less than ten minutes: the tests marked `gpu`, then the
# comparison of original and optimised models at batch 1 and 32, with CUDA graphs off and on.
#
#   scripts/gpu_check.sh             on a machine with CUDA; exits 5 where CUDA cannot be used
#   scripts/gpu_check.sh --dry-run   the same steps on the CPU, with few samples: does the script itself work?
#
# Writes doctor.json, tests.xml, compare.json and grouped_mlp_64.onnx into $OUT (default: ./out).
# PYTHON names the interpreter (default: that of .venv if there is one, else `python`).
set -euo pipefail
cd "$(dirname "$0")/.."

dry=
case "${1-}" in
  "") ;;
  --dry-run) dry=1 ;;
  *) echo "usage: scripts/gpu_check.sh [--dry-run]" >&2; exit 2 ;;
esac

python=${PYTHON:-python}
if [ -z "${PYTHON-}" ] && [ -x .venv/bin/python ]; then python=.venv/bin/python; fi
out=${OUT:-out}
mkdir -p "$out"
rm -f "$out"/{doctor,compare}.json "$out"/tests.xml "$out"/grouped_mlp_64.onnx  # of an earlier run
export ORT_DISABLE_TELEMETRY=1

provider=(--provider cuda)
effort=(--cuda-graph --pairs 240 --budget 10 --time-limit 20)
# 3 and 6 minutes at most: whatever hangs, the whole ends within ten. What was compared by then is kept.
tests=(timeout 180)
races=(timeout 360)
if [ -n "$dry" ]; then
  provider=(--provider cpu)
  effort=(--choose model --pairs 10 --budget 0.2 --time-limit 1)
fi
if ! command -v timeout >/dev/null; then tests=() races=(); fi

echo "== doctor"
"$python" -m onnx_sched doctor --json >"$out/doctor.json" || true
if [ -z "$dry" ]; then
  "$python" -m onnx_sched doctor || true
  # Without CUDA every test below would be skipped, and a green end would say nothing.
  "$python" - <<'EOF'
import sys
from onnx_sched.errors import ProviderError
from onnx_sched.judge.provider import select_provider
try:
    select_provider("cuda")
except ProviderError as error:
    print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
    sys.exit(error.exit_code)
EOF
fi

failed=0
echo "== tests"
"${tests[@]}" "$python" -m pytest -m gpu tests/gpu -q -p no:cacheprovider --junitxml "$out/tests.xml" || failed=1

echo "== comparison"
"$python" - "$out/grouped_mlp_64.onnx" <<'EOF'
import sys
from pathlib import Path
from models.catalog import serialise
from models.mlp import grouped_mlp
Path(sys.argv[1]).write_bytes(serialise(grouped_mlp(width=64)))
EOF
"${races[@]}" "$python" -m scripts.compare_latency "${provider[@]}" --batch 1 32 "${effort[@]}" --json "$out/compare.json" \
  models/grouped_mlp.onnx "$out/grouped_mlp_64.onnx" models/headlocal_transformer.onnx models/mmoe.onnx \
  models/per_feature.onnx models/exported_transformer.onnx || failed=$?

echo "== $SECONDS s; wrote $(cd "$out" && echo *)"
exit "$failed"
