#!/usr/bin/env bash
# A short load with fake engines, in half a minute: guests who type, speak, listen, read slowly, interrupt and lose their line, then
# a full house and a drain. Its limits are counts alone (configs/load). For figures: docs/operations.md, "Load".
set -euo pipefail
cd "$(dirname "$0")/.."
export STRETTO_FAKE__REPLY="One moment, please. Here it is, and that is all that I can say."
.venv/bin/python -m gateway load -n 12 --turns 3 --step 60 --settle 1 --think 0.3 --spoken 0.3 --slow 0.2 --slow-seconds 1 \
  --barge-in 0.3 --drop 0.35 --limits configs/load/short.toml
.venv/bin/python -m gateway load -n 8 --step 8 --settle 1 --think 0.2 --listeners 0.2 --knocks 20 --drain --limits configs/load/drain.toml
