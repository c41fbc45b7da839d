#!/usr/bin/env bash
# Everything that only a GPU can show, in half an hour: tests, steps and search, whole trainings, Table 5, a recipe.
#   bash benchmarks/on_a_gpu.sh RAW [OUT]         RAW has the folders multi30k and ptb, OUT gets logs and JSON (default: $OUT or gpu_results)
#   ONLY='tests search' bash benchmarks/on_a_gpu.sh RAW      these parts alone
#   bash benchmarks/on_a_gpu.sh --cpu RAW [OUT]   rehearse every part without a GPU, for seconds each
# The data are prepared in `experiments` first; do that before the GPU's time begins. Each part has its own limit; none stops the next.
set -uo pipefail
gpu=1
case "${1:-}" in
  -h | --help | "") sed -n '2,6s/^# \?//p' "$0"; exit 0 ;;
  --cpu) gpu='' && shift ;;
esac
raw=$(realpath "$1") out=$(realpath -m "${2:-${OUT:-gpu_results}}")
cd "$(dirname "$0")/.." || exit 1
mkdir -p "$out"
failed=0

part() { # NAME SECONDS COMMAND...
  local name=$1 seconds=$2
  shift 2
  case " ${ONLY:-$name} " in *" $name "*) ;; *) return ;; esac
  timeout "$seconds" "$@" >"$out/$name.log" 2>&1
  local status=$?
  echo "$name: status $status after at most $seconds s; $out/$name.log"
  tail -n 12 "$out/$name.log"
  [ "$status" -eq 0 ] || failed=1
}
speed() { # NAME SECONDS FLAGS...
  local name=$1 seconds=$2
  shift 2
  part "$name" "$seconds" python benchmarks/speed.py --device cuda --precision fp16 --repetitions 7 --json "$out/$name.json" "$@"
}
trainings() { # NAME SECONDS FLAGS...
  local name=$1 seconds=$2
  shift 2
  part "$name" "$seconds" python benchmarks/train_speed.py experiments/multi30k_en_de/data-bin --json "$out/$name.json" "$@"
}
# shellcheck disable=SC2329  # called by part
study() { # FLAGS...: in parallel, by MPS where it is installed
  local setting systems
  for setting in increment_no_norm layer_output_no_norm increment layer_output; do
    for systems in Residual,RK4 RK2 'RK2, coefficients 1' 'RK2, gate*'; do
      ode-transformer study table5_function --setting "$setting" --systems "$systems" --seeds 1 --values 1 --raw "$raw" "$@" \
        >"$out/table5-$setting-$systems.log" 2>&1 &
    done
  done
  wait
  ode-transformer study table5_function --setting layer_output_no_norm --seeds 1 --table "$@"
}
export -f study
export raw out

for recipe in multi30k_en_de ptb; do
  part "prepare_$recipe" 300 ode-transformer prepare "$recipe" --raw "$raw"
done
part tests 120 python -m pytest -q -n 4 tests/gpu
if [ -n "$gpu" ]; then
  steps=(fairseq-6 fairseq-12 fairseq-24 euler-6 euler-6-recorded rk2-6-recorded rk4-6-recorded marian-6)
  speed steps_4k 50 --what train --systems "${steps[@]}" --sentences 163
  speed steps_16k 50 --what train --systems "${steps[@]}" --sentences 665
  speed steps_512 35 --what train --systems "${steps[@]}" --sentences 20
  speed steps_big 50 --what train --systems "${steps[@]}" --sentences 163 --size big
  speed steps_tiny 25 --what train --systems "${steps[@]}" --sentences 163 --size tiny
  speed search 30 --what decode --systems fairseq-6 euler-6 euler-6-graphs rk2-6-graphs marian-6 --sentences 163
  trainings trainings_base 200 --seconds 95 --systems fairseq-12 rk2-6-recorded
  trainings trainings_tiny 160 --size tiny --seconds 75 --systems fairseq-12 rk2-6-recorded
  nvidia-cuda-mps-control -d 2>/dev/null
  part table5 600 bash -c study
  echo quit | nvidia-cuda-mps-control 2>/dev/null
  part reproduce 120 ode-transformer reproduce multi30k_en_de --raw "$raw" --minutes 1
else
  # shellcheck disable=SC2016  # Python's
  PYTHONPATH=tests/helpers part steps 120 python -c '
import sys
from graph_stand_in import RecomputingRecorder, recording
recording.build_recorder = lambda _: RecomputingRecorder()
sys.path.insert(0, "benchmarks")
import speed
sys.exit(speed.main(sys.argv[1:]))' --what train decode --size tiny --sentences 2 --target-length 6 --repetitions 1 --json "$out/steps.json" \
    --systems fairseq-6 euler-6 euler-6-recorded euler-6-graphs marian-6
  trainings trainings_tiny 120 --size tiny --cpu --user-dir tests/helpers/graph_stand_in --max-tokens 256 --updates 45 --systems fairseq-6 euler-6-recorded
  part table5 200 bash -c 'study --gpus 0 --dry-run'
  part reproduce 120 ode-transformer reproduce multi30k_en_de --raw "$raw" --gpus 0 --arch ode_transformer_euler_tiny --minutes 0.1
fi
exit "$failed"
