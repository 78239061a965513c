#!/usr/bin/env bash
# Builds, tests and measures on a CUDA machine, without network or build isolation. Installs the
# package in place into $PYTHON (python3), which must have jax with CUDA, nanobind, scikit-build-core,
# cmake, ninja, pytest, rich, matplotlib and the package's own dependencies; with warp-lang and cupy the
# benchmarks measure them too.
#
#   tools/gpu.sh            everything
#   OUT=folder tools/gpu.sh also leaves the log and results.json there
#   SOAK_SECONDS=600 tools/gpu.sh soaks for ten minutes instead of one
#   ONLY='build|cpp' tools/gpu.sh takes the steps whose names match
#
# Each step runs even if one before it failed; the exit status is 1 if any did.
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${OUT:-$work}
mkdir -p "$out"
exec > >(tee "$out/gpu.log") 2>&1
export PYTHONUNBUFFERED=1 CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"

failed=()
step() { # step NAME COMMAND...: runs it, with its output also in $work/NAME.txt
  local name=$1 start=$SECONDS
  shift
  [[ $name =~ ${ONLY:-.} ]] || return 0
  echo "=== $name: $*"
  if "$@" 2>&1 | tee "$work/$name.txt"; then
    echo "=== $name passed in $((SECONDS - start)) s"
    echo pass > "$work/$name.status"
  else
    echo "=== $name FAILED after $((SECONDS - start)) s"
    echo fail > "$work/$name.status"
    failed+=("$name")
  fi
}

build_package() {
  "$PYTHON" -m pip install --quiet --no-build-isolation --no-deps --no-index --editable .
}
build_tests() {
  cmake -S . -B build/gpu -G Ninja -DJGE_BUILD_TESTS=ON -DJGE_BUILD_BENCHMARKS=ON -DJGE_BUILD_PYTHON=OFF \
    -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$(command -v "$PYTHON")" --log-level=WARNING &&
    cmake --build build/gpu -- --quiet
}
pytest() { # pytest FILE...: a process per file, several at a time; the longest should come first
  local log="$work/pytest.log"
  printf '%s\0' "$@" | XLA_PYTHON_CLIENT_PREALLOCATE=false xargs -0 -P "${JOBS:-6}" -n 1 \
    timeout 300 "$PYTHON" -m pytest -q -p no:cacheprovider 2>&1 | tee "$log"
  local status=${PIPESTATUS[1]}
  grep -oE '[0-9]+ passed' "$log" | awk '{ sum += $1 } END { print sum " passed" }'
  return "$status"
}

pytest_on_cpu() { JAX_PLATFORMS=cpu pytest $(ls -S tests/python/test_*.py); }

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
step build build_package
step build-cpp build_tests
step cpp build/gpu/tests/cpp/jge_tests
step python-gpu pytest tests/python/test_{transformations,gallery,applications,batching,dtypes,region,graph,lifetimes,kernel}.py \
  tests/gpu/*.py tests/python/test_{traced_values,testing,errors,definitions,process,program,demo,batched_grid}.py \
  tests/python/test_{memory,launches,images,checkpoint,mutable_arrays,debugging,old_programs}.py \
  tests/python/test_{docs,statistics,explain,cli}.py
step python-cpu pytest_on_cpu
step demo "$PYTHON" examples/perona_malik.py --out "$out/demo.png"
for application in lattice_boltzmann conjugate_gradient train_network; do
  step "$application" "$PYTHON" "examples/$application.py" --out "$out/$application.png"
done
step gallery "$PYTHON" examples/gallery
if command -v compute-sanitizer > /dev/null; then
  step memcheck compute-sanitizer --error-exitcode 1 --report-api-errors no build/gpu/tests/cpp/jge_tests --driver cuda encoder
fi
step soak "$PYTHON" tests/soak "${SOAK_SECONDS:-60}"
replay() {
  build/gpu/benchmarks/core/jge_bench_replay build/gpu/tests/cpp/kernels.fatbin > "$work/replay.json" &&
    cat "$work/replay.json"
}
step replay replay
step start-up "$PYTHON" benchmarks/start_up.py --out "$work/start-up.json"
step benchmarks "$PYTHON" benchmarks/run.py --out "$work/benchmarks.json"
if [ "$(nvidia-smi --list-gpus | wc -l)" -ge 2 ]; then
  step two-gpus-tests pytest tests/gpu/test_two_gpus.py
  step two-gpus "$PYTHON" benchmarks/run.py two_devices --out "$work/two-gpus.json"
fi

"$PYTHON" tools/collect_results.py "$work" "$out/results.json"
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "all steps passed"
