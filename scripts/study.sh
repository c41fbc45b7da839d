#!/usr/bin/env bash
# Trains and evaluates the systems of a study, and compares them. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/study.sh STUDY [--at PLACE] [--seeds S,S,...] [--systems PATTERN,...] [--table] [--raw DIR] [--workers N]
                             [--gpus N] [--precision fp32|fp16|bf16] [--max-tokens N] [--output DIR] [--dry-run]

  STUDY             a question of configs/studies/, or a .yaml file of your own
  --at PLACE        on which of its data sets (default: the paper's; most have g2p or cpu, minutes a run on one core)
  --seeds S,...     some of its seeds
  --systems P,...   only systems whose names match, such as 'RK2*'
  --table           train nothing: write what the runs that are there found
  --output DIR      folder for everything (default: experiments); results.md, .csv and .png go to its folder studies
  --dry-run         print every command, and run nothing

Only what is missing is trained and evaluated; trainings of scripts/train.sh with the same flags count, and those of other
studies. Stopped at any point, the same command goes on from there. Several of them at one time: each with its own --seeds.
The other options are those of scripts/reproduce.sh.

HELP
    environment_help
}

run_module studies.study_runner "$@"
