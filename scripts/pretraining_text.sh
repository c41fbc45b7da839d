#!/usr/bin/env bash
# Prepares plain text for pre-training with fairseq's masked_lm. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/pretraining_text.sh FILE... --output DIR [--pieces N] [--valid-share S] [--cased]

  FILE            UTF-8 text, one sentence a line, blank lines between documents; a file without any: a line is one
  --output DIR    folder for everything; what fairseq reads goes to its folder data-bin
  --pieces N      size of the vocabulary (default: 32000)
  --valid-share   share of the documents that is held out (default: 1/200)
  --cased         keep upper case

Stopped at any point, the same command goes on from there.

HELP
    environment_help
}

run_module cli pretraining-text "$@"
