#!/usr/bin/env bash
# Measures what depth and width are worth to an architecture, and solves for a larger one. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/scale.sh --arch NAME [--data DIR | --task text|g2p [--target LANG]] [--updates N] [--epsilon E]
                             [--beta B] [--seeds S,S,...] [--output DIR] [-- FLAGS OF fairseq-train]

  --arch NAME     registered architecture, the base to scale
  --data DIR      folder of fairseq-preprocess; then what follows -- says how to train
  --task          of the quickstart, whose data and recipe are used without --data: text (default) or g2p
  --target LANG   of the quickstart's text: de (default), fr, ...
  --quickstart    the quickstart's folder (default: quickstart)
  --wheels DIR    folder with the wheels that hold its data, instead of downloading them
  --updates N     of each training (default: 1000)
  --epsilon E     how many layers, or widths of inner size, are added to measure a gradient (default: 1, the paper's)
  --beta B        how many times as many parameters the layers may have (default: 2)
  --seeds         a set of three trainings for each (default: 1); the gradients are averaged
  --output DIR    folder for everything (default: scaling)

Stopped at any point, the same command goes on from there. Every fairseq command is printed as it runs.

HELP
    environment_help
}

run_module cli measure-scaling "$@"
