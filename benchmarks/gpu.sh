#!/usr/bin/env bash
# Builds ggml-cuda for the GPU of this machine with clang-cuda and with nvcc, runs llama.cpp's own
# test-backend-ops and llama-bench on it, and prints a table and the rows that then belong into
# toolchain/data/gpu-validated.toml. It validates compilers, not a particular zip. With --cublas
# (a folder with libcublas.so.12 and libcublasLt.so.12) it also times matrix products of F32, F16
# and BF16 weights: the kernels of series own-blas against NVIDIA's library.
#
#   bash benchmarks/gpu.sh [--toolchains "clang-cuda nvcc"] [--model FILE.gguf] [--jobs N]
#                          [--device 0] [--python PYTHON] [--cublas FOLDER]
#   bash benchmarks/gpu.sh --dry-run [--gpu "NVIDIA H200,9.0,580.95"]   # shows, starts nothing
#
# Exit codes: 0 every toolchain passed; 1 a test failed, or a toolchain did not build; 2 the
# command line is wrong; 3 there is no NVIDIA GPU (or driver) here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

toolchains="clang-cuda nvcc"
model=""
jobs=""
device=0
python=${PYTHON:-python3}
cublas=""
dry=0
gpu=""

fail() { # code, what, what to do
  printf 'gpu.sh: %s\n  to do: %s\n' "$2" "$3" >&2
  exit "$1"
}

while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry=1; shift; continue ;;
    --help | -h) sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --toolchains | --model | --jobs | --device | --python | --gpu | --cublas)
      [ $# -ge 2 ] || fail 2 "$1 needs a value" "see --help" ;;
    *) fail 2 "unknown option $1" "see --help" ;;
  esac
  case $1 in
    --toolchains) toolchains=$2 ;;
    --model) model=$2 ;;
    --jobs) jobs=$2 ;;
    --device) device=$2 ;;
    --python) python=$2 ;;
    --gpu) gpu=$2 ;;
    --cublas) cublas=$2 ;;
  esac
  shift 2
done

for toolchain in $toolchains; do
  case $toolchain in
    clang-cuda | nvcc) ;;
    *) fail 2 "there is no CUDA toolchain $toolchain" "use clang-cuda, nvcc or both" ;;
  esac
done
[[ $device =~ ^[0-9]+$ ]] || fail 2 "--device takes a number, not $device" "e.g. --device 0"
[[ $jobs =~ ^([1-9][0-9]*)?$ ]] || fail 2 "--jobs takes a number from 1 on, not $jobs" "e.g. --jobs 8"
[ -z "$gpu" ] || [ "$dry" = 1 ] || fail 2 "--gpu only goes with --dry-run" "leave it out: the GPU is asked"
[ -z "$cublas" ] || [ -f "$cublas/libcublas.so.12" ] ||
  fail 2 "there is no libcublas.so.12 in $cublas" "name the folder that holds cuBLAS of CUDA 12"
[ -z "$model" ] || [ -f "$model" ] || fail 2 "there is no model $model" "check --model"

if [ -z "$gpu" ]; then
  command -v nvidia-smi >/dev/null ||
    fail 3 "no NVIDIA driver on this machine (there is no nvidia-smi)" "run it on a machine with an NVIDIA GPU"
  gpu=$(nvidia-smi --id="$device" --query-gpu=name,compute_cap,driver_version --format=csv,noheader 2>/dev/null) ||
    fail 3 "the NVIDIA driver knows no GPU $device" "look at what nvidia-smi says"
fi
IFS=, read -r name capability driver <<<"$gpu"
capability=${capability//[[:space:]]/}
driver=${driver//[[:space:]]/}
arch=${capability//./}
[[ $capability =~ ^[0-9]+\.[0-9]$ ]] ||
  fail 3 "the driver does not say the compute capability of $name (it says: $gpu)" "install a newer driver"
echo "GPU $device: $name, compute capability $capability, driver $driver"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table="| compiler | test-backend-ops | prompt tokens/s | generation tokens/s |
| --- | --- | --- | --- |"
rows=""
products=""
failed=0

if [ -z "$model" ]; then
  model=$work/random.gguf
  make_model=("$python" -c "import pathlib, sys; sys.path.insert(0, '$here'); import random_model; random_model.write_model(pathlib.Path('$model'))")
  if [ "$dry" = 1 ]; then
    echo "would write a random model of 120 million parameters (benchmarks/random_model.py)"
  elif ! "${make_model[@]}"; then
    fail 1 "the random model cannot be written" "install gguf and numpy, or give --model"
  fi
fi

for toolchain in $toolchains; do
  build=("$python" "$here/gpu_build.py" --toolchain "$toolchain" --arch "$arch")
  [ -z "$jobs" ] || build+=(--jobs "$jobs")
  if [ "$dry" = 1 ]; then
    printf 'would run: '; printf '%q ' "${build[@]}"; echo
    echo "would run: test-backend-ops test -b CUDA$device"
    echo "would run: llama-bench -m $model -ngl 99 -p 512 -n 128 -r 3 -o json"
    [ -z "$cublas" ] || echo "would run: gpu_products.py PROGRAMS --cublas $cublas"
    continue
  fi
  if ! "${build[@]}" >"$work/$toolchain"; then
    echo "$toolchain did not build" >&2
    table+=$'\n'"| $toolchain | not built | | |"
    failed=1
    continue
  fi
  { read -r programs; read -r libraries; IFS=$'\t' read -r compiler commit; } <"$work/$toolchain"
  export LD_LIBRARY_PATH="$libraries"
  export CUDA_VISIBLE_DEVICES="$device"
  if "$programs/test-backend-ops" test -b CUDA0 >"$work/$toolchain.tests" 2>&1; then
    verdict=$(grep -Eo '[0-9]+/[0-9]+ tests passed' "$work/$toolchain.tests" | tail -n 1) || verdict=""
    # 0 of 0 is what it says when the backend was not loaded
    [[ $verdict =~ ^([1-9][0-9]*)/([0-9]+)\  && ${BASH_REMATCH[1]} = "${BASH_REMATCH[2]}" ]] || verdict=""
  else
    verdict=""
  fi
  if [ -z "$verdict" ]; then
    tail -n 40 "$work/$toolchain.tests" >&2
    verdict="FAILED"
    failed=1
  else
    rows+="
[[run]]
compiler = \"$compiler\"
arch = \"$arch\"
commit = \"$commit\"
gpu = \"$name\"
date = \"$(date -u +%F)\"
"
  fi
  speeds=$("$programs/llama-bench" -m "$model" -ngl 99 -p 512 -n 128 -r 3 -o json 2>"$work/$toolchain.bench" |
    "$python" -c 'import json, sys
rows = json.load(sys.stdin)
found = {"prompt" if row["n_prompt"] else "generation": row["avg_ts"] for row in rows}
print("{:.0f} | {:.0f}".format(found["prompt"], found["generation"]))') || speeds="failed | failed"
  [ "$speeds" != "failed | failed" ] || { tail -n 20 "$work/$toolchain.bench" >&2; failed=1; }
  table+=$'\n'"| $compiler | $verdict | $speeds |"
  if [ -n "$cublas" ]; then
    if ours=$("$python" "$here/gpu_products.py" "$programs" --cublas "$cublas"); then
      products+=$'\n\n'"Matrix products, $compiler. $ours"
    else
      failed=1
    fi
  fi
done

[ "$dry" = 0 ] || { echo "dry run: nothing was built, nothing ran on a GPU"; exit 0; }
printf '\n%s on driver %s\n\n%s%s\n' "$name" "$driver" "$table" "$products"
if [ -n "$rows" ]; then
  printf '\nFor toolchain/data/gpu-validated.toml:\n%s' "$rows"
fi
exit "$failed"
