#!/usr/bin/env bash
# Where a gateway's CPU goes under load: py-spy samples it for 20 s while N talkers talk (scripted engines), then tells the functions.
#   scripts/profile.sh [N]      default 200. Needs the right to read another process (root, or ptrace)
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-200} python=.venv/bin/python spy=.venv-profile/bin/py-spy
[ -x $spy ] || { $python -m venv .venv-profile && .venv-profile/bin/pip install -q --disable-pip-version-check -r requirements/profile.txt; }
mkdir -p artifacts
export STRETTO_SESSION__MAX_SESSIONS=$((n + 20)) STRETTO_FAKE__TTS_RTF=0.3 STRETTO_LOG__LEVEL=warning STRETTO_SHEDDING__LAG_MS=0
$python -m gateway serve --engines fake --port 0 2> artifacts/profile.log & gateway=$!
trap 'kill $gateway 2>/dev/null; wait $gateway 2>/dev/null || true' EXIT
for _ in $(seq 120); do grep -q ^ready: artifacts/profile.log && break; sleep 0.5; done
port=$(sed -n 's|^ready: .*:\([0-9]*\)/$|\1|p' artifacts/profile.log)
$python -m gateway load -n "$n" --step 45 --settle 15 --url "ws://127.0.0.1:$port/v1/voice" > artifacts/profile.load & load=$!
sleep 21
$spy record -p $gateway -d 20 -r 400 --gil -f raw -o artifacts/profile.raw > /dev/null
wait $load || true
cat artifacts/profile.load
$python - artifacts/profile.raw <<'PY'
import collections, re, sys
own, whole, total = collections.Counter(), collections.Counter(), 0
for line in open(sys.argv[1]):
    stack, _, n = line.rstrip().rpartition(" ")
    frames = [re.sub(r":\d+\)", ")", frame) for frame in stack.split(";")]
    own[frames[-1]] += int(n); total += int(n)
    whole.update({frame: int(n) for frame in set(frames)})
for title, counted in (("itself", own), ("with what it calls", whole)):
    print(f"\nshare of {total} samples, {title}:")
    for frame, n in counted.most_common(30):
        print(f"{n / total:6.1%}  {frame}")
PY
