#!/usr/bin/env bash
# Try versions of onnx and onnxruntime in virtual environments of their own: install, run the main job, run
# the tests that touch both.  The lowest versions are the lower bounds of pyproject.toml.
#
#     scripts/compat.sh                       lowest and highest
#     scripts/compat.sh --all                 every pair of the table
#     scripts/compat.sh 1.18.0 1.21.1 ...     pairs of onnx and onnxruntime
#
# Rules with empty batches are left out: onnxruntime up to 1.22 dies of a TopK over nothing.
# PYTHON names the interpreter (3.11 to 3.13), TESTS the tests.  Exits 1 if any pair fails.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
tests=${TESTS:-"tests/test_files.py tests/test_api.py tests/test_lossless.py tests/test_models.py tests/test_named_models.py"}
lowest="1.17.0 1.20.0"
table="$lowest 1.18.0 1.21.1 1.19.1 1.22.0 1.20.1 1.23.2 1.21.0 1.24.4 1.22.0 1.26.0"
case "${1:-}" in
  "") set -- $lowest latest latest ;;
  --all) set -- $table latest latest ;;
esac
package=onnxruntime
[ "$(uname -sm)" = "Linux x86_64" ] && package=onnxruntime-gpu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
while [ $# -ge 2 ]; do
  pins=("onnx==$1" "$package==$2")
  [ "$1" = latest ] && pins=(onnx "$package")
  rm -rf "$work/venv" && "$python" -m venv "$work/venv" && pip="$work/venv/bin/python -m pip -q --disable-pip-version-check"
  said=fails
  if ! $pip install "${pins[@]}" -e '.[dev]' > "$work/log" 2>&1; then
    said="cannot be installed"
  elif ! "$work/venv/bin/onnx-sched" optimize models/mmoe.onnx -o "$work/out.onnx" -q > "$work/log" 2>&1; then
    said="does not run"
  elif "$work/venv/bin/python" -m pytest -q -p no:cacheprovider $tests > "$work/log" 2>&1; then
    said=passes
  fi
  found=$("$work/venv/bin/python" -m pip list 2> /dev/null | awk '/^(onnx|onnxruntime|onnxruntime-gpu|numpy|protobuf) /{printf "%s %s  ", $1, $2}')
  echo "$("$python" -V): onnx $1, $package $2 ($found): $said"
  if [ "$said" != passes ]; then failed=1; tail -n "${LINES_SHOWN:-15}" "$work/log"; fi
  shift 2
done
exit $failed
