#!/usr/bin/env bash
# Fine-tunes a pre-trained encoder on the eight GLUE tasks of the Macaron Net paper. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/glue.sh prepare --pretraining DIR [--raw DIR] [--tasks NAME,...] [--output DIR]
       bash scripts/glue.sh finetune --model CHECKPOINT [--config FILE] [--tasks NAME,...] [--output DIR] [--dry-run]
                                     [-- FLAGS OF fairseq-train]

  --pretraining   what scripts/pretraining_text.sh made for fairseq: dict.txt and the model of the pieces
  --raw           folder with CoLA/train.tsv, ..., instead of downloading the public files
  --tasks         of CoLA,SST-2,MRPC,STS-B,QQP,MNLI,QNLI,RTE; all by default
  --model         checkpoint of the pre-trained model: its architecture and options are read from it
  --config        grid and flags (default: configs/glue.yaml, the paper's)
  --dry-run       print every command of the grid and run none
  --output        folder for everything (default: glue); predictions for the server go to its folder submission

Stopped at any point, the same command goes on from there.

HELP
    environment_help
}

run_module cli glue "$@"
