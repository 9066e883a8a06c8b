#!/usr/bin/env bash
# The one gate: format, lint, types, import contracts, tests.  Run from anywhere; uses the tools on PATH,
# or those of .venv if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -x .venv/bin/python ]; then PATH="$PWD/.venv/bin:$PATH"; fi
echo "== ruff format"; ruff format --check .
echo "== ruff"; ruff check .
echo "== mypy"; mypy
echo "== import contracts"; lint-imports
echo "== pytest"; pytest -n auto "$@"
