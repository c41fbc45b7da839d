#!/usr/bin/env bash
# Runs the tests: the fast ones, then those marked slow. Exit status: pytest's.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/test.sh [--fast] [-- PYTEST ARGUMENTS]

  --fast   leave out the tests marked slow
  --       what follows goes to pytest, e.g.  bash scripts/test.sh -- tests/numerics -k order -n 0

HELP
    environment_help
}

fast_only=false
while (($#)); do
    case $1 in
        -h | --help)
            usage
            exit 0
            ;;
        --fast) fast_only=true ;;
        --)
            shift
            break
            ;;
        *) die "unknown argument $1 (--help shows what there is; arguments for pytest come after --)" ;;
    esac
    shift
done

ensure_environment
cd "$ROOT"
closing=$(mktemp -d)
trap 'rm -rf "$closing"' EXIT

options=(--color=no)
[[ ! -t 1 ]] || options=(--color=yes)
if (($(nproc) > 1)); then
    # Two workers of one thread each: with more threads than cores PyTorch is slower, not faster.
    export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
    options+=(-n 2)
fi

# run_tests NAME MARK-EXPRESSION PYTEST-ARGUMENTS…: keeps pytest's closing line in $closing/NAME
run_tests() {
    local name=$1 mark=$2 status=0
    shift 2
    say "== $name tests =="
    "$VENV/bin/python" -m pytest "${options[@]}" -m "$mark" "$@" | tee "$closing/$name.txt" || status=${PIPESTATUS[0]}
    say "$name: $(tail -n 1 "$closing/$name.txt" | tr -d =)" >>"$closing/summary"
    return "$status"
}

# pytest's 5 means that nothing was selected: no failure as long as the other half has tests.
fast=0 slow=0
run_tests fast "not slow" "$@" || fast=$?
if $fast_only; then
    slow=5
else
    run_tests slow "slow" "$@" || slow=$?
fi

say "== closing lines =="
cat "$closing/summary"
if ((fast != 0 && fast != 5)); then
    exit "$fast"
elif ((slow != 0 && slow != 5)); then
    exit "$slow"
fi
((fast == 0 || slow == 0)) || exit 5
