#!/usr/bin/env bash
# Everything that only a GPU can show, in one quarter of an hour: tests, steps, whole trainings.
#   bash benchmarks/on_a_gpu.sh DATA [OUT]
# DATA is a binarised folder of `ode-transformer prepare multi30k_en_de`, OUT a folder for logs and JSON (default: $OUT or gpu_results).
# --cpu in place of DATA rehearses the tests and the steps without a GPU. Each part has its own limit of time; none stops the next.
set -uo pipefail
case "${1:-}" in -h | --help | "") sed -n '2,5s/^# \?//p' "$0"; exit 0 ;; esac
data=$1 out=${2:-${OUT:-gpu_results}}
cd "$(dirname "$0")/.." || exit 1
mkdir -p "$out"
failed=0

part() { # NAME SECONDS COMMAND...
  local name=$1 seconds=$2
  shift 2
  timeout "$seconds" "$@" >"$out/$name.log" 2>&1
  local status=$?
  echo "$name: status $status after at most $seconds s; $out/$name.log"
  tail -n 12 "$out/$name.log"
  [ "$status" -eq 0 ] || failed=1
}

if [ "$data" = --cpu ]; then
  part tests 300 python -m pytest -q -n 0 tests/gpu
  PYTHONPATH=tests/helpers part steps 300 python -c '
import sys
from graph_stand_in import RECORDERS, RecomputingRecorder
RECORDERS["cpu"] = RecomputingRecorder
sys.path.insert(0, "benchmarks")
import speed
sys.exit(speed.main(sys.argv[1:]))' --what train --size tiny --sentences 4 --repetitions 2 --systems fairseq-6 euler-6 euler-6-recorded
  exit "$failed"
fi
systems=(fairseq-6 fairseq-12 fairseq-24 euler-6 euler-6-recorded rk2-6-recorded rk4-6-recorded)
step() { # NAME SECONDS SENTENCES SIZE
  part "$1" "$2" python benchmarks/speed.py --what train --device cuda --precision fp16 --repetitions 7 \
    --systems "${systems[@]}" --sentences "$3" --size "$4" --json "$out/$1.json"
}
part tests 120 python -m pytest -q -n 0 tests/gpu
step steps_4k 70 164 base
step steps_16k 70 655 base
step steps_512 50 20 base
step steps_big 50 164 big
part trainings_base 110 python benchmarks/train_speed.py "$data" --seconds 25 --systems fairseq-6 euler-6-recorded fairseq-12 rk2-6-recorded --json "$out/trainings_base.json"
part trainings_tiny 70 python benchmarks/train_speed.py "$data" --size tiny --seconds 30 --systems fairseq-12 rk2-6-recorded --json "$out/trainings_tiny.json"
exit "$failed"
