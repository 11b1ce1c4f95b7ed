#!/bin/sh
# What our objects take from CUDA, NVML and NCCL is what symbols.txt lists: nothing managed, and nothing that maps host memory
# for kernels. cudaMallocHost is there for copies only (Staging in driver.h); the way to its device address is not.
# Usage: symbols_test.sh LIBRARY... ; runs beside symbols.txt.
set -eu
export LC_ALL=C
here=$(dirname "$0")
ours='(cuda|nccl|nvml|cu)[A-Z][A-Za-z0-9_]{3,}'
used=$(nm -u "$@" | sed -nE "s/^ *[Uw] ($ours)\$/\\1/p")
# What is opened at run time stands as text in our objects.
opened=$(strings -a "$@" | grep -xE "$ours" || true)
used=$(printf '%s\n%s\n' "$used" "$opened" | grep . | sort -u)
unknown=$(printf '%s\n' "$used" | grep -vxF -f "$here/symbols.txt" | grep . || true)
if [ -n "$unknown" ]; then
  echo "not in symbols.txt:"
  echo "$unknown"
  exit 1
fi
echo "$# libraries, $(printf '%s\n' "$used" | grep -c . || true) symbols, all listed"
