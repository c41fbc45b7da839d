#!/usr/bin/env bash
# The Python environment of the project: .venv in the repository root, with the versions of constraints.txt.
#
# For other scripts:
#
#     set -euo pipefail
#     source "$(dirname "$0")/environment.sh"   # defines ROOT, VENV, say, die, ensure_environment; does nothing yet
#     ensure_environment                        # makes, completes or finds .venv; exits with one line if it cannot
#     "$VENV/bin/python" …
#
# ROOT  the repository root, absolute      VENV  the environment, absolute
# say   a line of progress to stdout       die   "script: message" to stderr, exit 1
#
# How far the set-up got is in .venv/.set-up ("begun", "base" or "ready", with a hash of the files that decide the
# contents), written only when a stage is complete. So it can be stopped at any point: the next call goes on from there.

ROOT=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv

# Megabytes that a set-up takes, measured with both builds of PyTorch 2.13.0: the finished .venv and,
# while it is made, the wheels that pip unpacks and keeps in its cache.
MEGABYTES_CPU=2600
MEGABYTES_CUDA=8700

say() { printf '%s\n' "$*"; }

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

environment_help() {
    cat <<'HELP'
The Python environment
  .venv in the repository root, made on the first call, used from then on, completed if it was interrupted.
  About 1.9 GB with PyTorch's CPU build. Where pip's index offers the CUDA build it takes that one: 5.5 GB.
  pip's own settings are honoured: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS can point
  to an index or a folder with a CPU build.
  PYTHON=/path/to/python chooses the Python (3.11 or 3.12); otherwise python3.11, python3.12, python3.
HELP
}

# -- what the machine offers -------------------------------------------------------------------------------------

check_platform() {
    local system machine
    system=$(uname -s) machine=$(uname -m)
    [[ $system == Linux && $machine == x86_64 ]] ||
        die "Linux on x86-64 is needed, because fairseq's wheels exist for nothing else; this is $system on $machine"
}

# Sets FOUND_PYTHON. Each candidate is run, not just looked up: version managers put commands on PATH that only fail.
find_python() {
    local candidate kind version found=() candidates=(python3.11 python3.12 python3)
    [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        read -r kind version < <("$candidate" -c 'import platform as p
print("%s %s" % (p.python_implementation(), p.python_version()))' 2>/dev/null) || continue
        if [[ $kind != CPython || ! $version =~ ^3\.(11|12)\. ]]; then
            found+=("$candidate is $kind $version")
        elif ! "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
            found+=("$candidate is $version but lacks venv and ensurepip (Debian, Ubuntu: apt install python${version%.*}-venv)")
        else
            FOUND_PYTHON=$candidate
            say "Python $version: $(command -v "$candidate")"
            return
        fi
    done
    local list
    list=$(printf '; %s' "${found[@]-}")
    [[ ${#found[@]} -gt 0 ]] || list="; none of ${candidates[*]} runs"
    die "Python 3.11 or 3.12 is needed: ${list#; } (PYTHON=/path/to/python chooses one)"
}

free_megabytes() { df -Pm "$ROOT" 2>/dev/null | awk 'NR == 2 && $4 ~ /^[0-9]+$/ {print $4}'; }

# check_disk MEGABYTES FINISHED: the set-up needs so much in all; what .venv already holds counts as done.
check_disk() {
    local need=$1 finished=$2 have
    need=$((need - $(du -sm "$VENV" 2>/dev/null | cut -f1)))
    # An unknown figure is let through: a full disk is noticed later, too.
    have=$(free_megabytes) || have=
    [[ -z $have ]] || ((have >= need)) ||
        die "the disk is too full: the set-up needs $need MB more under $ROOT (the finished .venv takes $finished), $have MB are free"
}

# -- how far the set-up got --------------------------------------------------------------------------------------

inputs_hash() {
    (cd "$ROOT" && cat constraints.txt requirements-fairseq.txt setup.py | sha256sum | cut -d' ' -f1)
}

# The path belongs to the state, because an environment does not work from another place.
read_state() { cat "$VENV/.set-up" 2>/dev/null || true; }

write_state() { # STAGE HASH
    # Renamed into place, so that it is never read half written.
    { printf '%s %s %s\n' "$1" "$2" "$VENV" >"$VENV/.set-up.new"; } 2>/dev/null &&
        mv "$VENV/.set-up.new" "$VENV/.set-up" && return
    die "cannot write to $VENV (is the disk full?)"
}

environment_is_ready() {
    [[ $(read_state) == "ready $(inputs_hash) $VENV" ]] && "$VENV/bin/python" -c '' 2>/dev/null
}

# -- pip ---------------------------------------------------------------------------------------------------------

# pip_install WHAT ARGUMENTS…: pip is silent; its complaints become one line.
pip_install() {
    local what=$1 status=0
    shift
    # Large wheels are unpacked beside their destination: /tmp is often a small memory disk.
    mkdir -p "$VENV/.tmp"
    TMPDIR=${TMPDIR:-$VENV/.tmp} "$VENV/bin/python" -m pip install --no-input --quiet --disable-pip-version-check "$@" \
        2>"$VENV/pip-errors.txt" || status=$?
    ((status == 0)) || explain_pip_failure "$what" "$VENV/pip-errors.txt"
}

explain_pip_failure() { # WHAT FILE
    local what=$1 file=$2 again="run this again, it goes on from here" last
    if grep -q 'DO NOT MATCH THE HASHES' "$file"; then
        die "the wheel of $what that the package index sent is not the expected one: its SHA-256 differs (it was not installed)"
    elif grep -qE 'No space left on device|Errno 28|Disk quota exceeded|Errno 122' "$file" || [[ $(free_megabytes) =~ ^[0-9]$ ]]; then
        # Below 10 MB even the file of complaints may have been cut off.
        die "the disk is too full: no space left while installing $what (make room; $again)"
    elif grep -q 'Operation cancelled by user' "$file"; then
        die "interrupted while installing $what ($again)"
    elif ! index_answers; then
        die "the package index cannot be reached to install $what: see to the network, the proxy or pip's settings ($again)"
    fi
    last=$(grep -E '^ *[A-Za-z]*(ERROR|Error|error):' "$file" | tail -n 1) || last=
    die "pip could not install $what: ${last:-no reason given} (all of it in $file)"
}

# Asked only after a failure: pip reports an index that is silent and one that lacks a version in the same words.
index_answers() {
    "$VENV/bin/python" -m pip install --no-input --quiet --dry-run --ignore-installed --no-deps --no-cache-dir \
        --retries 1 "$(pinned pip)" >/dev/null 2>&1
}

pinned() { grep -m 1 "^$1==" "$ROOT/constraints.txt"; }

# An installation writes INSTALLER after its last file. What lacks it was cut off, and pip would take it for complete.
# Names with ~ are what pip had set aside when it was killed in the middle of a replacement.
remove_half_installed() {
    local info
    for info in "$VENV"/lib/python3*/site-packages/*.dist-info; do
        [[ ! -d $info || -e $info/INSTALLER ]] || rm -rf "$info"
    done
    rm -rf "$VENV"/lib/python3*/site-packages/~* "$VENV/.tmp"
}

# -- the steps ---------------------------------------------------------------------------------------------------

step() { say "[$1/5] $2"; }

# Step 1. Leaves an environment whose pip is whole, in state "base"; anything less is thrown away and made again.
make_base() {
    local state place
    state=$(read_state) place=${state#* * }
    if [[ -z $state && -e $VENV/pyvenv.cfg ]]; then
        adopt_base
        return
    fi
    if [[ $state == base\ * || $state == ready\ * ]] && [[ $place == "$VENV" ]] &&
        "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        step 1 "environment in .venv: found, going on"
        return
    fi
    [[ -n $state || -z $(find "$VENV" -mindepth 1 -maxdepth 1 ! -name .lock ! -name '.set-up*' -print -quit) ]] ||
        die "$VENV is in the way: it holds files that are not this script's (rename or remove it, and run this again)"
    step 1 "environment in .venv"
    find_python
    write_state begun - # first, so that what an interruption leaves is known to be this script's
    find "$VENV" -mindepth 1 -maxdepth 1 ! -name .lock ! -name .set-up -exec rm -rf {} + || die "cannot clear $VENV"
    "$FOUND_PYTHON" -m venv "$VENV" 2>"$VENV/pip-errors.txt" >&2 ||
        die "$FOUND_PYTHON -m venv failed: $(grep . "$VENV/pip-errors.txt" | tail -n 1)"
    # Few retries: this is the first word with the index, and should it be silent, that is to be known soon.
    pip_install pip --retries 1 --no-deps "$(pinned pip)"
    write_state base -
}

# An environment that the user made: its Python must do, and the packages are brought to the pinned versions.
adopt_base() {
    if ! "$VENV/bin/python" -c 'import pip, sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
        die "$VENV is in the way: it has no Python 3.11 or 3.12 with pip (rename or remove it, and run this again)"
    fi
    step 1 "environment in .venv: one was there, bringing it to the pinned versions"
    write_state base -
}

install_build_tool() {
    step 2 "setuptools"
    pip_install setuptools --no-deps "$(pinned setuptools)"
}

# No dependencies yet, so that the hashes need to cover this one wheel only.
install_fairseq() {
    step 3 "fairseq, its SHA-256 checked"
    pip_install ve-fairseq --no-deps --only-binary ve-fairseq --require-hashes -r "$ROOT/requirements-fairseq.txt"
}

install_torch() {
    local report=$VENV/torch.json
    step 4 "PyTorch (the largest part: minutes on a slow line)"
    if ! "$VENV/bin/python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
        pip_install torch --dry-run --no-deps --report "$report" "$(pinned torch)"
        if grep -qE '"(nvidia|cuda)-' "$report"; then
            say "      the build for CUDA: several gigabytes (--help says how to choose another)"
            check_disk "$MEGABYTES_CUDA" "5.5 GB"
        fi
    fi
    pip_install torch -c "$ROOT/constraints.txt" torch
}

# Without build isolation the pinned setuptools does the building, of this package and of the two dependencies
# that come as source (antlr4-python3-runtime and langid, pure Python: no compiler is needed).
install_rest() {
    step 5 "everything else, and ode_transformer itself"
    pip_install "the other packages" --no-build-isolation -c "$ROOT/constraints.txt" -e "${ROOT}[dev,experiments,plots,serve,export,huggingface]"
}

check_imports() {
    local modules="torch, fairseq, sentencepiece, sacrebleu, subword_nmt, yaml, numpy, tqdm, pytest, matplotlib, fastapi, uvicorn"
    "$VENV/bin/python" -c "import $modules" >/dev/null 2>"$VENV/pip-errors.txt" ||
        die "all is installed, but it does not import: $(tail -n 1 "$VENV/pip-errors.txt")"
}

set_up() {
    check_platform
    check_disk "$MEGABYTES_CPU" "1.9 GB"
    make_base
    remove_half_installed
    install_build_tool
    install_fairseq
    install_torch
    install_rest
    check_imports
    rm -rf "$VENV/.tmp" "$VENV/torch.json" "$VENV/pip-errors.txt"
    write_state ready "$(inputs_hash)"
}

ensure_environment() {
    local begin=$SECONDS lock
    if [[ -L $VENV ]]; then
        die "$VENV is a symbolic link to $(readlink "$VENV"): a set-up would change the environment there; remove the link"
    fi
    if environment_is_ready; then
        return
    fi
    mkdir -p "$VENV" 2>/dev/null || die "cannot make the folder $VENV"
    { exec {lock}>"$VENV/.lock"; } 2>/dev/null || die "cannot write to $VENV"
    if command -v flock >/dev/null && ! flock -n "$lock"; then
        say "another set-up is at work on .venv: waiting for it"
        flock "$lock"
    fi
    environment_is_ready || set_up
    exec {lock}>&- # later, long-running commands must not hold it
    say "environment ready in .venv after $((SECONDS - begin)) s"
}

# run_subcommand NAME WORD...: runs a subcommand of ode-transformer, which explains its options itself. Without an
# environment --help says how to make it, instead of taking minutes; words after -- belong to fairseq-train.
run_subcommand() {
    local name=$1 word
    shift
    if ! environment_is_ready; then
        for word in "$@"; do
            case $word in
                --) break ;;
                -h | --help)
                    say "usage: bash scripts/${0##*/} [OPTIONS]      runs: ode-transformer $name [OPTIONS]"
                    say "The options are listed once the environment is ready: bash scripts/environment.sh makes it."
                    say
                    environment_help
                    exit 0
                    ;;
            esac
        done
    fi
    ensure_environment
    exec "$VENV/bin/ode-transformer" "$name" "$@"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    set -euo pipefail
    case ${1:-} in
        -h | --help)
            say "usage: bash scripts/environment.sh      makes .venv, or completes it; the other scripts do so themselves"
            say
            environment_help
            ;;
        '') ensure_environment ;;
        *) die "unknown argument $1 (--help shows what there is)" ;;
    esac
fi
