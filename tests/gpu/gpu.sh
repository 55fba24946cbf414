#!/bin/sh
# What kvplan does in a GPU's memory, in some minutes and without a network: writes gpu.json and gpu.md beside this file.
# It takes a python3 with torch and numpy (PYTHON=... names another one).
cd "$(dirname "$0")" || exit 1
python=${PYTHON:-python3}
"$python" -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target site wheels/*.whl || exit 1
PYTHONPATH="$PWD/kvplan/src:$PWD/kvplan:$PWD/site${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m tests.gpu.run "$PWD" "$@"
