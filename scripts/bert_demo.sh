#!/usr/bin/env bash
# Pre-trains a small encoder, fine-tunes it, and compares with training from scratch. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
run_subcommand bert-demo "$@"
