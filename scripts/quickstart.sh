#!/usr/bin/env bash
# Trains an ODE Transformer on real text and shows what it can do. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/quickstart.sh [--task text|g2p] [--target LANG] [--arch NAME] [--scheme NAME]
                                  [--minutes M | --measure-at M,M,...] [--output DIR] [--wheels DIR]
                                  [-- FLAGS OF fairseq-train]

  --task text     English to another language, from the catalogues of translated Python packages (default)
  --task g2p      spelling to phonemes, from the CMU Pronouncing Dictionary
  --target LANG   target language of the text: de (default), fr, ro, pt_BR, ...
  --arch NAME     registered architecture in its own size, e.g. ode_transformer_rk4_tiny
  --scheme NAME   Runge-Kutta scheme of the encoder, in the size of the default: euler, rk2 (with the learned gate,
                  the default), rk4, or with its tableau's weights heun, midpoint, kutta3, ...
  --minutes M     minutes of training, apart from preparation and decoding
  --measure-at    train for the longest of these minutes and score after each
  --output DIR    folder for everything (default: quickstart)
  --wheels DIR    folder with the wheels that hold the data, instead of downloading them

Stopped at any point, the same command goes on from there. Every fairseq command is printed as it runs.

HELP
    environment_help
}

run_module recipes.quickstart "$@"
