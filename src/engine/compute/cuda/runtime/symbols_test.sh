#!/bin/sh
# What our objects take from CUDA, NVML and NCCL is what symbols.txt lists: nothing managed, and nothing that maps host memory
# for kernels. cudaMallocHost is there for copies only (Staging in driver.h); the way to its device address is not.
# Usage: symbols_test.sh LIBRARY... ; runs beside symbols.txt.
set -eu
here=$(dirname "$0")
used=$(nm -u "$@" | sed -n 's/^ *U \(\(cuda\|nccl\|nvml\|cu[A-Z]\)[A-Za-z0-9_]*\)$/\1/p' | sort -u)
# What is opened at run time stands as text in our objects.
opened=$(strings -a "$@" | grep -xE '(nccl|nvml)[A-Z][A-Za-z0-9_]*' | sort -u || true)
used=$(printf '%s\n%s\n' "$used" "$opened" | sort -u)
unknown=$(printf '%s\n' "$used" | grep -vxF -f "$here/symbols.txt" | grep . || true)
if [ -n "$unknown" ]; then
  echo "not in symbols.txt:"
  echo "$unknown"
  exit 1
fi
echo "$(printf '%s' "$used" | grep -c . || true) symbols, all listed"
