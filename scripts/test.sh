#!/usr/bin/env bash
# Runs the tests, or only the fast ones. Exit status: pytest's.
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

ensure_tools
cd "$ROOT"

options=(--color=no)
[[ ! -t 1 ]] || options=(--color=yes)
if (($(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) > 1)); then # nproc would count threads, not cores
    # Two workers of one thread each: with more threads than cores PyTorch is slower, not faster.
    export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
    options+=(-n 2 --dist worksteal)
fi
! $fast_only || options+=(-m "not slow")

exec "$VENV/bin/python" -m pytest "${options[@]}" "$@"
