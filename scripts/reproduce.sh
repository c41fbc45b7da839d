#!/usr/bin/env bash
# Prepares, trains and evaluates, and sets the scores beside the published ones. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/reproduce.sh RECIPE [--arch NAME] [--variant NAME] [--seeds S,S,...] [--minutes M] [--raw DIR] [--workers N]
                                 [--average N] [--gpus N] [--precision fp32|fp16|bf16] [--max-tokens N] [--output DIR]
                                 [--dry-run] [-- FLAGS OF fairseq-train]

  RECIPE          a data set of configs/, such as multi30k_en_de
  --arch NAME     registered architecture (default: the one of the recipe)
  --variant NAME  of the recipe, where a paper and its code differ
  --seeds S,...   a training for each; mean and standard deviation of their scores are printed
  --              what follows goes to fairseq-train and overrides the recipe

The other options are those of scripts/prepare.sh, scripts/train.sh and scripts/evaluate.sh, which this runs in turn.
Stopped at any point, the same command goes on from there.

HELP
    environment_help
}

run_module recipes.runner reproduce "$@"
