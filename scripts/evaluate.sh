#!/usr/bin/env bash
# Averages the checkpoints of a training, decodes the test sets and scores them. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand evaluate "$@"
