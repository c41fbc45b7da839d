#!/usr/bin/env bash
# Prepares, trains and evaluates, and sets the scores beside the published ones. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand reproduce "$@"
