#!/usr/bin/env bash
# Every figure of the README's GPU table, in three steps of under ten minutes each, on a host with two GPUs.
#   scripts/gpu/all.sh 7b|72b-fp8|72b-bf16 FOLDER OUT     FOLDER: where unpack.sh unpacked; OUT: rows (*.jsonl), logs.tgz
# 7b uses one GPU for the base figures and, where there is a second one, that for the variants, at the same time.
set -uo pipefail
step=$1 folder=$2 out=$3
cd "$(dirname "$0")/../.."
export PYTHONPATH=$folder/site PYTHONUNBUFFERED=1
logs=$folder/logs; mkdir -p "$logs"
runner=$(cat "$folder/runner" 2>/dev/null || true)

# measure NAME SECONDS OPTION..: one engine's rows; its log's end where it fails
measure() {
  local name=$1 limit=$2; shift 2
  # shellcheck disable=SC2086  # $runner is an option and its value, or nothing
  timeout -k 10 "$limit" python3 -m scripts.gpu.run --tokenizer "$folder/tok" $runner --out "$out/$name.jsonl" "$@" 2> "$logs/$name.log" \
    || { echo "# $name ended with $?; its log ends:"; tail -c 1500 "$logs/$name.log"; return 1; }
  grep '^# ' "$logs/$name.log" | sed "s/^# /# $name /" || true
}

# smoke: whether replies are forced, in vLLM's default model runner, else in the older one; a minute
smoke() {
  measure smoke 150 --size tiny --eager --rows barge --barge-ins 50 && return
  runner="--runner v1"; echo "$runner" > "$folder/runner"
  measure smoke-v1 150 --size tiny --eager --rows barge --barge-ins 50
}

# pin CORES COMMAND..: two engines side by side keep to their own cores, where the machine can
pin() { local cores=$1; shift; if command -v taskset >/dev/null; then taskset -c "$cores" "$@"; else "$@"; fi; }

case $step in
  7b)
    export CUDA_VISIBLE_DEVICES=0
    smoke || exit 1
    half=$(($(nproc) / 2))
    (pin 0-$((half - 1)) bash -c "$(declare -f measure); folder=$folder logs=$logs out=$out runner='$runner';
      measure 7b 450 --size 7b --levels 1,32,64 --seconds 15 --rows prefill,raw,gateway,priority,barge") &
    if [ "$(nvidia-smi -L | wc -l)" -gt 1 ]; then
      (export CUDA_VISIBLE_DEVICES=1 VLLM_CACHE_ROOT=/tmp/stretto-gpu-cache-1
       pin "$half-$(($(nproc) - 1))" bash -c "$(declare -f measure); folder=$folder logs=$logs out=$out runner='$runner';
         measure 7b-serve 280 --size 7b --serve --levels 1,32,64 --seconds 15 --rows gateway;
         measure 7b-eager 170 --size 7b --eager --levels 1,32 --seconds 15 --rows raw,gateway;
         measure 7b-no-async 150 --size 7b --no-async --levels 1,32 --seconds 15 --rows raw") &
    fi
    wait ;;
  72b-fp8) measure 72b-fp8 585 --size 72b --tp 2 --quantization fp8 --levels 1,16,64,128 --seconds 15 --rows raw,gateway,prefill,barge ;;
  72b-bf16) measure 72b-bf16 560 --size 72b --tp 2 --levels 1,16,64 --seconds 15 --rows raw,gateway,prefill ;;
  *) echo "got $step, expected 7b, 72b-fp8 or 72b-bf16" >&2; exit 2 ;;
esac
tar -C "$folder" -czf "$out/logs.tgz" logs
