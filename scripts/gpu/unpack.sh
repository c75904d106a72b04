#!/usr/bin/env bash
# On the GPU host: join the parts in FOLDER, unpack them there, and compile to bytecode (else every process pays 20 s).
#   scripts/gpu/unpack.sh FOLDER     afterwards: export PYTHONPATH=FOLDER/site, and --tokenizer FOLDER/tok
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$1"
cat part.0 part.1 part.2 | xz -dc -T0 | tar -xf -
rm -f part.?
env -u PYTHONDONTWRITEBYTECODE python3 -m compileall -q -j "$(nproc)" site >/dev/null 2>&1 || true  # files for other Pythons do not compile
PYTHONPATH="$PWD/site:$root" python3 -c 'import gateway.server, httpx, soxr, torch, vllm; print("vLLM", vllm.__version__, "torch", torch.__version__, torch.cuda.device_count(), "GPUs")'
echo "unpacked in $SECONDS s: $(du -sh site | cut -f1)"
