#!/bin/sh
# Puts the pinned OpenAI clients into .venv-clients and tests/protocol/conformance/node/node_modules. Needs Python 3.11+ and Node 20+.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-clients/bin/python ] || "${PYTHON:-python3}" -m venv .venv-clients
.venv-clients/bin/python -m pip install --quiet --requirement requirements/clients.txt
npm ci --prefix tests/protocol/conformance/node --no-audit --no-fund --loglevel error
