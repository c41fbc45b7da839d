#!/usr/bin/env bash
# Trains and evaluates the systems of a study, and compares them. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand study "$@"
