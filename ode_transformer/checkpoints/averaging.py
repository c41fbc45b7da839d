"""``ode-transformer average``: the mean of several checkpoints, as one checkpoint that fairseq loads.

fairseq names a checkpoint ``checkpointE.pt`` at the end of epoch E, ``checkpoint_E_U.pt`` after update U
within epoch E, and with ``--keep-best-checkpoints`` also ``checkpoint.best_METRIC_VALUE.pt``, VALUE with
three decimals and then digits that only keep names apart.
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from ode_transformer.support.arguments import positive_int
from ode_transformer.support.checkpoint_file import load_checkpoint, save_checkpoint
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_writable

_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
_UPDATE = re.compile(r"checkpoint_(\d+)_(\d+)\.pt")
_BEST = re.compile(r"checkpoint\.best_(?P<metric>.+)_(?P<value>-?\d+\.\d{3})\d*\.pt")


def numbered_checkpoints(directory: Path, by: str) -> dict[int, Path]:
    """All checkpoints of a run by their epoch or update (``by``), in rising order."""
    pattern = {"epoch": _EPOCH, "update": _UPDATE}[by]
    found = ((pattern.fullmatch(path.name), path) for path in directory.iterdir())
    # The last group is the number to order by; as text "checkpoint10" would come before "checkpoint9".
    numbered = [(int(match.groups()[-1]), path) for match, path in found if match]
    if len({number for number, _ in numbered}) < len(numbered):
        raise UserError(f"{directory}: two checkpoints have the same {by}: is it one run's directory?")
    return dict(sorted(numbered))


def last_checkpoints(directory: Path, count: int, by: str = "epoch", until: int | None = None) -> list[Path]:
    """The ``count`` newest checkpoints of a run, oldest first.

    :param by: ``epoch`` or ``update``: which kind of checkpoint, told by its name
    :param until: leave out every checkpoint after this epoch or update
    :raises UserError: there are fewer
    """
    everything = numbered_checkpoints(directory, by)
    paths = [path for number, path in everything.items() if until is None or number <= until]
    if len(paths) < count:
        limit = "" if until is None else f" up to {by} {until}"
        raise UserError(f"{directory}: {count} {by} checkpoints asked for, {len(paths)} found{limit}")
    return paths[-count:]


def best_checkpoints(directory: Path, count: int) -> list[Path]:
    """The ``count`` best of the checkpoints that ``--keep-best-checkpoints`` kept, worst first.

    :raises UserError: there are fewer, or they were kept by different metrics
    """
    found = [(match, path) for path in directory.iterdir() if (match := _BEST.fullmatch(path.name))]
    if len(found) < count:
        raise UserError(f"{directory}: {count} best checkpoints asked for, {len(found)} found")
    if len(metrics := sorted({match["metric"] for match, _ in found})) > 1:
        raise UserError(f"{directory}: kept by different metrics ({', '.join(metrics)}): name the files instead")
    rising = [path for _, path in sorted(found, key=lambda item: (float(item[0]["value"]), item[1].name))]
    return rising[-count:] if _larger_is_better(rising[0]) else rising[count - 1 :: -1]


def _larger_is_better(path: Path) -> bool:
    """Whether the run that wrote ``path`` maximised its metric: the saved options tell, the name does not."""
    state = load_checkpoint(path)
    option = "maximize_best_checkpoint_metric"
    options = (state.get("cfg") or {}).get("checkpoint") or vars(state.get("args") or argparse.Namespace())
    if option not in options:
        raise UserError(f"{path}: does not say whether its metric is better high or low: name the files instead")
    return bool(options[option])


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """The mean of the checkpoints' parameters, each in its own type; everything else is the last file's.

    One checkpoint is in memory at a time, beside a double-precision sum. Buffers that are not floating-point
    (counters, masks) are the last file's. The optimizer's state is left out: it belongs to no averaged model.

    :raises UserError: a file is broken, or differs from the first in a parameter's name, shape or type
    """
    sums: dict[str, torch.Tensor] = {}
    expected: dict[str, str] = {}
    state: dict[str, Any] = {}
    for path in paths:
        state = {}  # lets go of the previous checkpoint before the next one is read
        state = load_checkpoint(path)
        state.pop("last_optimizer_state", None)
        described = {name: _describe(name, tensor) for name, tensor in state["model"].items()}
        expected = expected or described
        _require_same(expected, paths[0], described, path)
        _add(sums, state["model"])
    model = state["model"]
    ties = _ties(model.items())
    for name in sums:
        model[name] = (sums[name] / len(paths)).to(model[name].dtype)
    for name, first in ties.items():
        # Tied in the last file only, and the means of the two differ: then they are two parameters.
        if torch.equal(model[name], model[first]):
            model[name] = model[first]
    state["averaged_from"] = [path.name for path in paths]
    return state


def _add(sums: dict[str, torch.Tensor], model: dict[str, torch.Tensor]) -> None:
    for name, tensor in model.items():
        if name in sums:
            sums[name] += tensor
        elif tensor.is_floating_point() or tensor.is_complex():
            wide = torch.complex128 if tensor.is_complex() else torch.float64
            sums[name] = tensor.to(wide, copy=True)


def _describe(name: str, tensor: torch.Tensor) -> str:
    if name.endswith("_extra_state"):  # the bytes of a line that says what the parameters were trained for
        return bytes(tensor.tolist()).decode()
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _require_same(expected: dict[str, str], first: Path, described: dict[str, str], path: Path) -> None:
    """Raise a ``UserError`` naming a parameter in which ``path`` differs from the ``first`` checkpoint."""
    if missing := sorted(expected.keys() - described.keys()):
        raise UserError(f"{path}: lacks the parameter {missing[0]!r} of {first}")
    if extra := sorted(described.keys() - expected.keys()):
        raise UserError(f"{path}: has a parameter {extra[0]!r} that {first} lacks")
    for name, description in described.items():
        if description != expected[name]:
            raise UserError(f"{path}: {name!r} is {description}, but {expected[name]} in {first}")


def _ties(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """Map each further name of a tied parameter (the same elements of one storage) to its first name."""
    firsts: dict[tuple[object, ...], str] = {}
    ties = {}
    for name, tensor in tensors:
        identity = (
            tensor.untyped_storage().data_ptr(),
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
        )
        first = firsts.setdefault(identity, name)
        if first != name:
            ties[name] = first
    return ties


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer average``."""
    parser.add_argument("inputs", nargs="+", type=Path, metavar="DIR_OR_FILE", help="a run's directory, or checkpoints")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="where to write the average")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--last", type=positive_int, metavar="N", help="the newest N of the directory")
    which.add_argument("--best", type=positive_int, metavar="N", help="the best N kept by --keep-best-checkpoints")
    parser.add_argument("--by", choices=("epoch", "update"), help="what --last counts (default: epoch)")
    parser.add_argument("--until", type=positive_int, metavar="K", help="--last: none after this epoch or update")


def select(args: argparse.Namespace) -> list[Path]:
    """The checkpoints that the options name, in the order in which they are read."""
    directories = [path for path in args.inputs if path.is_dir()]
    if args.last is None and (args.by or args.until):
        raise UserError("--by and --until go with --last")
    if args.last is None and args.best is None:
        if directories:
            raise UserError(f"{directories[0]} is a directory: say --last N or --best N")
        resolved = [path.resolve() for path in args.inputs]
        if twice := [str(path) for path in args.inputs if resolved.count(path.resolve()) > 1]:
            raise UserError(f"{twice[0]} is named twice")
        return list(args.inputs)
    if len(args.inputs) > 1 or not directories:
        raise UserError(f"--last and --best take one directory, not {', '.join(map(str, args.inputs))}")
    if args.best is not None:
        return best_checkpoints(directories[0], args.best)
    return last_checkpoints(directories[0], args.last, args.by or "epoch", args.until)


def run(args: argparse.Namespace) -> int:
    """Average the selected checkpoints into ``args.output``."""
    check_writable(args.output)
    paths = select(args)
    save_checkpoint(average_checkpoints(paths), args.output)
    print(f"{args.output}: mean of {len(paths)} checkpoints: {', '.join(path.name for path in paths)}")
    return 0
