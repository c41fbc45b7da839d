#!/usr/bin/env bash
# Makes the data of a recipe: obtains raw files, cleans, tokenises, divides and binarises them. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/prepare.sh RECIPE [--raw DIR] [--workers N] [--output DIR] [--dry-run]

  RECIPE          a data set of configs/, such as multi30k_en_de, or the path of a .yaml file
  --raw DIR       folder with the raw files, instead of downloading them (docs/data.md lists them)
  --workers N     processes for what is slow (default: all cores)
  --output DIR    folder for everything (default: experiments)
  --dry-run       print what would be run, and run nothing

Stopped at any point, the same command goes on from there; a changed raw file or recipe makes anew what depends on it.

HELP
    environment_help
}

run_module recipes.runner prepare "$@"
