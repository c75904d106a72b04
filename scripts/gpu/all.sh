#!/usr/bin/env bash
# Every figure of docs/tuning.md, in steps of under ten minutes each.
#   scripts/gpu/all.sh STEP FOLDER OUT [OPTION..]    FOLDER: where unpack.sh unpacked; OUT: rows (*.jsonl), logs.tgz; OPTIONs go to run.py
# STEP: smoke       whether replies are forced, by which of vLLM's model runners; a minute; the steps below follow what it finds
#       72b-bf16 or 72b-fp8, -tp4 behind it for another number of GPUs (72b-fp8-tp4); 32b-fp8 on one
#       7b          on GPU 0 the base figures and strangers, on GPU 1 (where there is one) the variants, side by side
#       load        the gateway alone, scripted engines, up to 1,000 talkers; needs no GPU
# PLAN=1 in the environment prints the commands, what memory they need, and runs nothing.
set -uo pipefail
step=$1 folder=$2 out=$3; shift 3; more=("$@")
cd "$(dirname "$0")/../.."
export PYTHONPATH=$folder/site PYTHONUNBUFFERED=1
logs=$folder/logs
runner=$(cat "$folder/runner" 2>/dev/null || true)

# measure NAME SECONDS OPTION..: one engine's rows; its log's end where it fails
measure() {
  local name=$1 limit=$2; shift 2
  if [ -n "${PLAN:-}" ]; then echo "timeout $limit python3 -m scripts.gpu.run --tokenizer $folder/tok $runner $* ${more[*]}"; return; fi
  mkdir -p "$logs"
  # shellcheck disable=SC2086  # $runner is an option and its value, or nothing
  timeout -k 10 "$limit" python3 -m scripts.gpu.run --tokenizer "$folder/tok" $runner --out "$out/$name.jsonl" "$@" "${more[@]}" \
    2> "$logs/$name.log" || { echo "# $name ended with $?; its log ends:"; tail -c 1500 "$logs/$name.log"; return 1; }
  grep '^# ' "$logs/$name.log" | sed "s/^# /# $name /" || true
}

# lane GPU FIRST_CORE LAST_CORE: what follows in this subshell keeps to one GPU and its own cores, where the machine can
lane() {
  export CUDA_VISIBLE_DEVICES=$1 VLLM_CACHE_ROOT=/tmp/stretto-gpu-cache-$1
  if command -v taskset >/dev/null; then taskset -cp "$2-$3" "$BASHPID" >/dev/null; fi
}

smoke() {  # runner V2 on two GPUs, V1 with speculation on one, side by side in a part of the memory
  local small=(--size tiny --rows raw,gateway --levels 4 --seconds 3 --set gpu_memory_utilization=0.3)
  runner="" measure smoke-v2 150 "${small[@]}" --runner v2 --tp "$(($(nvidia-smi -L | wc -l) > 1 ? 2 : 1))" & local v2=$!
  runner="" measure smoke-v1 150 "${small[@]}" --runner v1 --ngram 4 & local v1=$!
  wait "$v1"; wait "$v2" || { runner="--runner v1"; echo "$runner" > "$folder/runner"; }
}

seven() {
  local last=$(($(nproc) - 1)); local half=$(((last + 1) / 2))
  (lane 0 0 $((half - 1))
   measure 7b 470 --size 7b --levels 1,32,64 --seconds 12 --rows prefill,history,raw,gateway,priority,crowd
   measure 7b-no-async 130 --size 7b --no-async --levels 32 --seconds 12 --rows raw,gateway) &
  [ "$(nvidia-smi -L | wc -l)" -gt 1 ] || wait
  (lane "$(($(nvidia-smi -L | wc -l) > 1 ? 1 : 0))" "$half" "$last"
   runner=""
   measure 7b-v1 240 --size 7b --runner v1 --levels 1,32 --seconds 12 --rows raw,quote
   measure 7b-ngram 200 --size 7b --runner v1 --ngram 4 --levels 1,32 --seconds 12 --rows raw,quote
   measure 7b-v1-no-async 130 --size 7b --runner v1 --no-async --levels 32 --seconds 12 --rows raw
   measure 7b-eager 100 --size 7b --eager --levels 32 --seconds 12 --rows raw,gateway) &
  wait
}

# whole SIZE bf16|fp8 GPUS: what the table of a large model shows
whole() {
  local size=$1 type=$2 tp=$3 quantization=()
  [ "$type" = fp8 ] && quantization=(--quantization fp8)
  if [ -n "${PLAN:-}" ]; then
    echo "# $((${size%b} * ($([ "$type" = fp8 ] && echo 1 || echo 2)) / tp)) GB of weights on each of $tp GPUs; start 3 to 4 minutes, rows 3 minutes"
  fi
  measure "$size-$type-tp$tp" 590 --size "$size" --tp "$tp" "${quantization[@]}" --levels 1,16,64,128 --seconds 13 \
    --rows raw,gateway,uncached,prefill
}

load() {
  ulimit -n 65536 2>/dev/null || true
  for n in 50 200 500 1000; do
    python3 -m gateway bench --engines fake -n "$n" --seconds 15 --ramp 5 --json "$out/load-$n.json" > "$logs/load-$n.log" 2>&1 || tail -c 500 "$logs/load-$n.log"
    sed -n '/^milliseconds/,$p' "$logs/load-$n.log"
  done
}

case $step in
  smoke) smoke ;;
  7b) seven ;;
  load) mkdir -p "$logs"; load ;;
  72b-bf16|72b-fp8|32b-fp8|72b-bf16-tp[1-8]|72b-fp8-tp[1-8])
    IFS=- read -r size type tp <<< "$step"
    tp=${tp#tp}; whole "$size" "$type" "${tp:-$([ "$size" = 72b ] && echo 2 || echo 1)}" ;;
  *) echo "got $step, expected smoke, 7b, load, 32b-fp8, 72b-bf16 or 72b-fp8, with -tp4 or the like behind the last two" >&2; exit 2 ;;
esac
[ -n "${PLAN:-}" ] || tar -C "$folder" -czf "$out/logs.tgz" logs
