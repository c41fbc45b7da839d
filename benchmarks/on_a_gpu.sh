#!/usr/bin/env bash
# Everything that only a GPU can show, in half an hour: kernels, tests, steps and search before and after, whole trainings, Table 5.
#   bash benchmarks/on_a_gpu.sh RAW [OUT]         RAW has the folder ptb and multi30k, OUT gets logs and JSON (default: $OUT or gpu_results)
#   ONLY='tests search' bash benchmarks/on_a_gpu.sh RAW      these parts alone
#   bash benchmarks/on_a_gpu.sh --cpu RAW [OUT]   rehearse every part without a GPU, for seconds each
# First, where git and time are: BEFORE (default: before) gets the files of an earlier commit, and `experiments` the prepared data.
# Each part has its own limit; none stops the next. Times before and after are those of one machine.
set -uo pipefail
gpu=1
case "${1:-}" in
  -h | --help | "") sed -n '2,7s/^# \?//p' "$0"; exit 0 ;;
  --cpu) gpu='' && shift ;;
esac
raw=$(realpath "$1") out=$(realpath -m "${2:-${OUT:-gpu_results}}")
cd "$(dirname "$0")/.." || exit 1
now=$PWD before=$(realpath -m "${BEFORE:-before}")
mkdir -p "$out"
failed=0

part() { # NAME SECONDS COMMAND...
  local name=$1 seconds=$2
  shift 2
  case " ${ONLY:-${name%%-*}} " in *" ${name%%-*} "*) ;; *) return ;; esac
  local status taken TIMEFORMAT='%0R s, %0U s of CPU'
  taken=$({ time timeout "$seconds" "$@" >"$out/$name.log" 2>&1; } 2>&1)
  status=$?
  echo "$name: status $status after $taken, of at most $seconds s; $out/$name.log"
  tail -n 12 "$out/$name.log"
  [ "$status" -eq 0 ] || failed=1
}
speed() { # NAME SECONDS TREE TRIED FLAGS...: the tree's own benchmark, with kernels that no GPU has run yet
  local name=$1 seconds=$2 tree=$3 tried=$4
  shift 4
  part "$name" "$seconds" env -C "$tree" PYTHONPATH="$tree" ODE_TRANSFORMER_TRY="$tried" \
    python benchmarks/speed.py --device cuda --precision fp16 --repetitions 7 --json "$out/$name.json" "$@"
}
trainings() { # NAME SECONDS FLAGS...
  local name=$1 seconds=$2
  shift 2
  part "$name" "$seconds" python benchmarks/train_speed.py experiments/multi30k_en_de/data-bin --json "$out/$name.json" "$@"
}
# shellcheck disable=SC2329  # called by part
study() { # FLAGS...: in parallel, by MPS where it is installed
  local systems
  for systems in Residual RK2 'RK2, coefficients 1' RK4 'RK2, gate*'; do # the gate has two starts
    ode-transformer study table5_function --setting increment_no_norm --systems "$systems" --seeds 1 --values 1 --raw "$raw" "$@" \
      >"$out/table5-$systems.log" 2>&1 &
  done
  wait
  ode-transformer study table5_function --setting increment_no_norm --seeds 1 --table "$@"
}
export -f study
export raw out

if [ ! -d "$before" ]; then
  mkdir -p "$before" && git archive 07eb8193 | tar -x -C "$before"
fi
for recipe in multi30k_en_de ptb; do
  part "prepare-$recipe" 300 ode-transformer prepare "$recipe" --raw "$raw"
done
if [ -n "$gpu" ]; then
  # Does fairseq wait for its host at 16,384 tokens, where its step takes as long as at 4,096?
  part profile 60 python benchmarks/kernel_times.py passes fairseq-6 --sentences 163 665
  # Are kernels right, and fast?
  part tests 90 python -m pytest -q -n 4 tests/gpu
  part tests-kernels 90 env ODE_TRANSFORMER_TRY='loss sublayers attention adam' python -m pytest -q -n 4 tests/gpu
  part kernels 30 python benchmarks/kernel_times.py kernels
  steps=(fairseq-6 fairseq-12 euler-6-recorded rk2-6-recorded)
  for size in '512 --sentences 20' '4k --sentences 163' '16k --sentences 665' '4k_big --sentences 163 --size big'; do
    read -ra flags <<<"${size#* }"
    speed "steps-before-${size%% *}" 30 "$before" '' --what train --systems "${steps[@]}" "${flags[@]}"
    speed "steps-after-${size%% *}" 30 "$now" '' --what train --systems "${steps[@]}" "${flags[@]}"
    speed "steps-loss-${size%% *}" 30 "$now" loss --what train --systems "${steps[@]}" "${flags[@]}"
  done
  # Compiled layers or kernels by hand: ms, seconds of compiling, and whether two trainings have equal bits.
  speed sublayers-4k 40 "$now" 'loss sublayers' --what train --systems "${steps[@]:2}" --sentences 163
  speed attention-4k 40 "$now" 'loss sublayers attention' --what train --systems "${steps[@]:2}" --sentences 163
  speed attention-16k 40 "$now" 'loss sublayers attention' --what train --systems "${steps[@]:2}" --sentences 665
  speed sublayers-16k 40 "$now" 'loss sublayers' --what train --systems "${steps[@]:2}" --sentences 665
  speed compile-4k 60 "$now" 'loss compile' --what train --systems "${steps[@]:2}" --sentences 163
  speed compile-16k 40 "$now" 'loss compile' --what train --systems "${steps[@]:2}" --sentences 665
  part compile-bits 60 env ODE_TRANSFORMER_TRY='loss compile' python -m pytest -q -n 0 tests/gpu -k equal_bits
  searches=(fairseq-6 euler-6-graphs rk2-6-graphs)
  speed search-before 40 "$before" '' --what decode --systems "${searches[@]}" --sentences 163
  speed search-after 40 "$now" '' --what decode --systems "${searches[@]}" --sentences 163
  speed search-table 40 "$now" search --what decode --systems "${searches[@]}" --sentences 163
  trainings trainings-base 130 --seconds 60 --updates 600 --systems fairseq-12 rk2-6-recorded
  trainings trainings-tiny 110 --size tiny --seconds 50 --updates 600 --systems fairseq-12 rk2-6-recorded
  nvidia-cuda-mps-control -d 2>/dev/null
  part table5 720 bash -c study
  echo quit | nvidia-cuda-mps-control 2>/dev/null
else
  part profile 120 python benchmarks/kernel_times.py passes fairseq-6 --sentences 2 --size tiny --device cpu --repetitions 1
  part tests 120 python -m pytest -q -n 0 tests/gpu
  part kernels 200 env TRITON_INTERPRET=1 python benchmarks/kernel_times.py kernels --device cpu --repetitions 1
  small=(--size tiny --sentences 2 --target-length 6 --repetitions 1)
  part steps-before 120 env -C "$before" PYTHONPATH="$before" python benchmarks/speed.py --what train decode "${small[@]}" \
    --json "$out/steps-before.json" --systems fairseq-6 euler-6
  # shellcheck disable=SC2016  # Python's
  PYTHONPATH=tests/helpers part steps-after 120 python -c '
import sys
from graph_stand_in import RecomputingRecorder, recording
recording.build_recorder = lambda _: RecomputingRecorder()
sys.path.insert(0, "benchmarks")
import speed
sys.exit(speed.main(sys.argv[1:]))' --what train decode "${small[@]}" --json "$out/steps-after.json" \
    --systems fairseq-6 euler-6 euler-6-recorded euler-6-graphs marian-6
  part compile-bits 200 python -m pytest -q -n 0 tests/speed/test_compiled_layers.py -m slow
  trainings trainings-tiny 120 --size tiny --cpu --user-dir tests/helpers/graph_stand_in --max-tokens 256 --updates 45 --systems fairseq-6 euler-6-recorded
  part table5 400 bash -c 'study --gpus 0 --dry-run'
fi
exit "$failed"
