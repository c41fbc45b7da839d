"""``ode-transformer checkpoint average``: average the parameters of several checkpoints into one that fairseq loads.

fairseq names a checkpoint ``checkpointE.pt`` at the end of epoch E, ``checkpoint_E_U.pt`` after update U within
epoch E, and with ``--keep-best-checkpoints`` also ``checkpoint.best_METRIC_VALUE.pt``, where VALUE has three decimals
and then digits that only keep names apart. ``checkpoint_last.pt`` and ``checkpoint_best.pt`` are copies of others.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ode_transformer.checkpoints.parameters import check_finite, tied_names
from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint, saved_options, saved_updates
from ode_transformer.support.console import print_progress, print_text
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.files import check_outputs_are_no_inputs, check_writable

# The last group is the number to order by; as text "checkpoint10" would come before "checkpoint9".
_NUMBERED = {"epoch": r"checkpoint(\d+)\.pt", "update": r"checkpoint_(\d+)_(\d+)\.pt"}
_BEST = re.compile(r"checkpoint\.best_(?P<metric>.+)_(?P<value>-?\d+\.\d{3})\d*\.pt")
_OF_TRAINING = re.compile(rf"checkpoint_(last|best)\.pt|{'|'.join(_NUMBERED.values())}|{_BEST.pattern}")


def numbered_checkpoints(directory: Path, by: str) -> dict[int, Path]:
    """Return all checkpoints of a run by their epoch or update (``by``), in rising order."""
    matches = ((re.fullmatch(_NUMBERED[by], path.name), path) for path in directory.iterdir())
    numbered = [(int(match.groups()[-1]), path) for match, path in matches if match]
    if len({number for number, _ in numbered}) < len(numbered):
        raise UserError(f"{directory}: two checkpoints have the same {by}: is it one run's directory?")
    return dict(sorted(numbered))


def last_checkpoints(directory: Path, count: int, by: str = "epoch", until: int | None = None) -> list[Path]:
    """Return the ``count`` newest checkpoints of a run, oldest first.

    If there are fewer, a warning says so; if there is none, ``checkpoint_last.pt`` stands for them.

    :param by: kind of checkpoint by its name, ``epoch`` or ``update``
    :param until: leave out checkpoints after this epoch or update
    """
    paths = [path for number, path in numbered_checkpoints(directory, by).items() if until is None or number <= until]
    if len(paths) < count:
        limit = "" if until is None else f" up to {by} {until}"
        counts = {kind: len(numbered_checkpoints(directory, kind)) for kind in ("epoch", "update")}
        existing = ", ".join(f"{number} of --by {kind}" for kind, number in counts.items())
        shortfall = f"{directory}: --last {count}: {len(paths)} {by} checkpoints{limit}; there are {existing}"
        if not paths and until is None and (last := directory / "checkpoint_last.pt").exists():
            paths = [last]
        if not paths:
            raise UserError(shortfall)
        print_progress(f"warning: {shortfall}; averaged: {', '.join(path.name for path in paths)}")
    return paths[-count:]


def best_checkpoints(directory: Path, count: int) -> list[Path]:
    """Return the ``count`` best checkpoints of ``--keep-best-checkpoints``, worst first."""
    matches = {path: match for path in directory.iterdir() if (match := _BEST.fullmatch(path.name))}
    metrics = sorted({match["metric"] for match in matches.values()})
    if len(matches) < count or len(metrics) > 1:
        by = f" by {', '.join(metrics)}" if metrics else ""
        raise UserError(f"{directory}: --best {count}: {len(matches)} checkpoints of --keep-best-checkpoints{by}")
    rising = sorted(matches, key=lambda path: (float(matches[path]["value"]), path.name))
    options = saved_options(load_checkpoint(rising[0]), "checkpoint")
    return rising[-count:] if options["maximize_best_checkpoint_metric"] else rising[count - 1 :: -1]


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """Return a checkpoint with the mean of each parameter in its own type; everything else is from the last file.

    One checkpoint is in memory at a time, besides a double-precision sum. Buffers that are not floating-point
    (counters, masks) are from the last file. The optimizer's state is left out, because an average has none.

    :raises UserError: a file is broken, holds NaN, or differs from the first in a parameter's name, shape or type
    """
    sums: dict[str, torch.Tensor] = {}
    sources: list[tuple[str, int]] = []
    expected: dict[str, str] = {}
    state: dict[str, Any] = {}
    for path in paths:
        state = {}  # frees the previous checkpoint before the next one is read
        state = load_checkpoint(path)
        state.pop("last_optimizer_state", None)
        sources.append((path.name, saved_updates(state)))
        descriptions = {name: _describe(name, tensor) for name, tensor in state["model"].items()}
        expected = expected or descriptions
        if different := sorted(name for name, _ in descriptions.items() ^ expected.items()):
            name = different[0]
            description, first = (one_line(parameters.get(name, "absent")) for parameters in (descriptions, expected))
            raise UserError(f"{path}: {name} is {description}, but {first} in {paths[0]}")
        check_finite(path, state["model"])
        for name, tensor in state["model"].items():
            if name in sums:
                sums[name] += tensor
            elif tensor.is_floating_point():
                sums[name] = tensor.to(torch.float64, copy=True)
    model = state["model"]
    ties = tied_names(model.items())
    for name in sums:
        model[name] = (sums[name] / len(paths)).to(model[name].dtype)
    for name, first in ties.items():
        # If they are tied only in the last file, their means differ and they become two parameters.
        if torch.equal(model[name], model[first]):
            model[name] = model[first]
    state["averaged_from"] = sources
    return state


def describe_average(sources: Sequence[tuple[str, int]]) -> str:
    """Return in words which checkpoints are averaged: names of files with their updates."""
    if len(sources) > 1:
        return f"average of updates {', '.join(str(updates) for _, updates in sources)}"
    ((name, updates),) = sources
    return f"{name.removesuffix('.pt').removeprefix('checkpoint_')}, update {updates}"


def _describe(name: str, tensor: torch.Tensor) -> str:
    """Return type and shape of a parameter, or the settings of the model that ``_extra_state`` holds as bytes."""
    if name.endswith("_extra_state"):
        return bytes(tensor.flatten().tolist()).decode()
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def select_checkpoints(args: argparse.Namespace) -> list[Path]:
    """Return the checkpoints of the command line, in the order in which they are read."""
    if args.last is None and (args.by or args.until):
        raise UserError("--by and --until go with --last")
    if args.last is None and args.best is None:
        if directories := [path for path in args.inputs if path.is_dir()]:
            raise UserError(f"{directories[0]} is a directory: give --last N or --best N")
        return list(args.inputs)
    if len(args.inputs) > 1:
        raise UserError("--last and --best take one directory")
    if args.best is not None:
        return best_checkpoints(args.inputs[0], args.best)
    return last_checkpoints(args.inputs[0], args.last, args.by or "epoch", args.until)


def run(args: argparse.Namespace) -> None:
    """Average the selected checkpoints into ``args.output``."""
    check_writable(args.output)
    paths = select_checkpoints(args)
    check_outputs_are_no_inputs([args.output], paths)
    output = args.output.resolve()
    if _OF_TRAINING.fullmatch(output.name) and output.parent in {path.resolve().parent for path in paths}:
        raise UserError(f"--output {args.output}: a checkpoint's name in the folder of the run; choose another")
    state = average_checkpoints(paths)
    save_checkpoint(state, args.output)
    print_text(f"{args.output}: {describe_average(state['averaged_from'])}")
