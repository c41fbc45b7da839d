#!/usr/bin/env bash
# Trains an architecture with a recipe. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand train "$@"
