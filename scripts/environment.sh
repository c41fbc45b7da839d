#!/usr/bin/env bash
# The Python environment of the project: .venv in the repository root, with the versions of constraints.txt.
# Other scripts source this file, which defines ROOT, VENV, say, die and the functions below.

ROOT=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
PIP=("$VENV/bin/python" -m pip)
unset PYTHONDONTWRITEBYTECODE # what many processes import is compiled once

say() { printf '%s\n' "$*"; }

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

environment_help() {
    cat <<'HELP'
The first call makes the Python environment, .venv in the repository root: 1.9 GB with PyTorch's CPU build, 5.5 GB with
the CUDA build. pip's settings choose the build: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS.
PYTHON=/path/to/python chooses the Python (3.11 or 3.12); otherwise python3.11, python3.12 or python3.
HELP
}

pip_install() { # WHAT ARGUMENTS…
    local log="$VENV/pip.${1%% *}.log"
    say "== $1"
    "${PIP[@]}" install --no-input --quiet --disable-pip-version-check --no-compile "${@:2}" 2>"$log" ||
        die "pip could not install $1: $(grep -a ERROR "$log" | tail -n 1) ($log; start again to continue)"
}

# ensure_environment [FUNCTION]: makes or completes .venv unless it has what the inputs ask for; calls FUNCTION on the way.
ensure_environment() {
    local inputs python info meter torch large others
    inputs="$VENV $(cat "$ROOT"/{constraints.txt,requirements-fairseq.txt,setup.py} | sha256sum)"
    [[ $(cat "$VENV/.set-up" 2>/dev/null) != "$inputs" ]] || return 0
    python=${PYTHON:-$(command -v python3.11 || command -v python3.12 || echo python3)}
    "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null ||
        die "$python is not Python 3.11 or 3.12 with venv (PYTHON=/path/to/python chooses another; Debian: python3-venv)"
    "$python" -m venv --without-pip "$VENV" || die "$python -m venv failed"
    # The pip that comes with Python, which takes twice as long as today's, installs that.
    if "$python" -m pip --version &>/dev/null; then
        PIP=("$python" -m pip --python "$VENV/bin/python")
    else
        "$VENV/bin/python" -m ensurepip >/dev/null || die "$python -m ensurepip failed"
    fi
    # pip writes INSTALLER last; it would take a package without it, of a killed installation, for complete.
    for info in "$VENV"/lib/python3*/site-packages/*.dist-info; do
        [[ ! -d $info || -e $info/INSTALLER ]] || rm -rf "$info"
    done
    pip_install "pip and setuptools" pip==26.3 "$(grep ^setuptools== "$ROOT/constraints.txt")"
    PIP=("$VENV/bin/python" -m pip)
    # pip is silent for minutes. The loop ends with this script, however that ends.
    while sleep 10 &>/dev/null && kill -0 $$ 2>/dev/null; do
        say "  packages so far: $(find "$VENV/lib" -maxdepth 3 -name '*.dist-info' | wc -l)"
    done &
    meter=$!
    # Two at a time, and without dependencies, which constraints.txt lists: fairseq would bring torchaudio, which nothing
    # here needs. A build of PyTorch for CUDA alone needs more, at the end.
    torch=$(grep ^torch== "$ROOT/constraints.txt") large='^(scipy|sympy|torch|transformers)=='
    pip_install "everything else" --no-deps --no-build-isolation -r <(grep -vE "$large" "$ROOT/constraints.txt") -e "$ROOT" &
    others=$!
    pip_install "PyTorch and other large packages" --no-deps -r <(grep -E "$large" "$ROOT/constraints.txt")
    pip_install "fairseq (CPython 3.11 and 3.12 on Linux x86-64)" --no-deps --require-hashes -r "$ROOT/requirements-fairseq.txt"
    ${1:-true}
    wait "$others" || exit 1
    pip_install "what PyTorch needs" -c "$ROOT/constraints.txt" "$torch"
    kill "$meter"
    # Compiles what all commands import, a fifth of what pip would compile, while the next ones start.
    "$VENV/bin/python" -c "import fairseq_cli.train, torch._dynamo, matplotlib.pyplot" &>/dev/null &
    compiling=$!
    say "$inputs" >"$VENV/.set-up"
}

# Makes .venv with what tests and checks need.
ensure_tools() {
    ensure_environment install_tools
    install_tools
}

install_tools() {
    local inputs
    inputs="$VENV $(sha256sum <"$ROOT/constraints-dev.txt")"
    [[ $(cat "$VENV/.set-up-tools" 2>/dev/null) != "$inputs" ]] || return 0
    pip_install "pytest, ruff, mypy and shellcheck" --no-deps -r "$ROOT/constraints-dev.txt"
    say "$inputs" >"$VENV/.set-up-tools"
}

# Waits until what was installed is compiled: processes that start together would each compile the same.
wait_for_compiling() { [[ -z ${compiling:-} ]] || wait "$compiling"; }

# run_subcommand NAME WORD…: runs a subcommand of ode-transformer, which explains its options itself.
run_subcommand() {
    if [[ " $* " =~ ' '(-h|--help)' ' && ! -e $VENV/.set-up ]]; then
        say "usage: bash scripts/${0##*/} [OPTIONS], which runs ode-transformer $1 [OPTIONS] and then lists them"
        environment_help
        exit 0
    fi
    ensure_environment
    exec "$VENV/bin/ode-transformer" "$@"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    set -euo pipefail
    ensure_environment
fi
