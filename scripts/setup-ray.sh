#!/usr/bin/env bash
# Build .venv-ray (Ray Serve, about 600 MB) for tests/ray. Safe to run again: what is there is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-ray
wanted=$(sha256sum requirements/ray.txt | cut -d' ' -f1)
[ "$(cat "$venv/.stretto-stamp" 2>/dev/null || true)" != "$wanted" ] || { echo "$venv is up to date"; exit 0; }
[ -x "$venv/bin/python" ] || "${STRETTO_PYTHON:-python3.11}" -m venv "$venv"
"$venv/bin/pip" install --disable-pip-version-check -q --progress-bar off -r requirements/ray.txt 2> >(grep -v 'is ignored: it is neither a file nor a directory' >&2)
echo "$wanted" > "$venv/.stretto-stamp"
