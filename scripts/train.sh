#!/usr/bin/env bash
# Trains an architecture as a recipe says. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train.sh RECIPE [--arch NAME] [--variant NAME] [--seed S] [--minutes M] [--gpus N] [--precision fp32|fp16|bf16]
                             [--max-tokens N] [--nodes N --node-rank R --master HOST:PORT] [--output DIR] [--dry-run]
                             [-- FLAGS OF fairseq-train]

  RECIPE          a data set of configs/, prepared by scripts/prepare.sh
  --arch NAME     registered architecture (default: the one of the recipe)
  --variant NAME  of the recipe, where a paper and its code differ
  --seed S        of the training
  --minutes M     stop after these; more of them go on from there
  --gpus N        of this machine (default: all; 0: the processor). Tokens of an update stay those of the recipe
  --precision     default: fp16 where the GPU has cores for it
  --max-tokens N  that one GPU takes at a time, if the number in the recipe does not fit
  --nodes N       machines that train together, each started by hand with its --node-rank, and one --output that all
                  of them see; under srun, one task on each, the machines are those of Slurm
  --output DIR    folder for everything (default: experiments)
  --dry-run       print the command, and run nothing
  --              what follows goes to fairseq-train and overrides the recipe

Stopped at any point, the same command goes on from the last checkpoint.

HELP
    environment_help
}

run_module recipes.runner train "$@"
