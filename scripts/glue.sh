#!/usr/bin/env bash
# Fine-tunes a pre-trained encoder on the eight GLUE tasks of the Macaron Net paper. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand analyse glue "$@"
