#!/usr/bin/env bash
# Prepares plain text for pre-training with fairseq's masked_lm. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand pretraining-text "$@"
