#!/usr/bin/env bash
# Trains an ODE Transformer on real text and shows what it can do. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand quickstart "$@"
