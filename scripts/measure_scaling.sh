#!/usr/bin/env bash
# Measures what depth and width are worth to an architecture, and solves for a larger one. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand analyse scaling "$@"
