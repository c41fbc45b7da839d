#!/usr/bin/env bash
# Pre-trains a small encoder, fine-tunes it, and compares with training from scratch. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/bert_demo.sh [--text FILE] [--arch NAME] [--updates N] [--output DIR] [-- FLAGS OF fairseq-train]

  --text FILE     a sentence a line (default: quickstart/en-de/corpus/train.en, which scripts/quickstart.sh makes)
  --arch NAME     macaron_bert_tiny (default), ode_bert_tiny, ...
  --updates N     updates of pre-training (default: 2000)
  --output DIR    folder for everything (default: bert_demo)
  --              what follows goes to the pre-training, e.g. --encoder-ode-scheme rk2

Stopped at any point, the same command goes on from the last finished step.

HELP
    environment_help
}

run_module cli bert-demo "$@"
