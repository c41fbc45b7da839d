#!/usr/bin/env bash
# Prepares the data of a recipe: obtains raw files, cleans, tokenises, divides and binarises them. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand prepare "$@"
