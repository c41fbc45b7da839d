#!/usr/bin/env bash
# Averages the checkpoints of a training, decodes the test sets and scores them. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate.sh RECIPE [--arch NAME] [--variant NAME] [--seed S] [--average N] [--gpus N] [--precision fp32|fp16|bf16]
                                [--output DIR] [--dry-run] [-- FLAGS OF fairseq-train]

  RECIPE          a data set of configs/
  --arch, --variant, --seed    of the training, and what followed -- there: together they name its folder
  --average N     so many of the last checkpoints instead of those of the recipe
  --gpus, --precision    to decode on (default: all GPUs, in fp16 where they have cores for it)
  --output DIR    folder for everything (default: experiments)
  --dry-run       print the commands, and run nothing

HELP
    environment_help
}

run_module recipes.runner evaluate "$@"
