"""Corrections of how fairseq's commands read their options and end."""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import torch
from fairseq import options, utils
from fairseq.dataclass import utils as dataclass_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import FairseqTask

from ode_transformer.models.fairseq_corrections.replacing import Function, replace
from ode_transformer.support.errors import UserError, printable_line


@replace(options, "parse_args_and_arch")
def _parse_options(original: Function, parser: argparse.ArgumentParser, *arguments: Any, **keywords: Any) -> Any:
    """Let fairseq-validate do without ``--task``, and ``--bf16`` without a TPU.

    fairseq ends in a KeyError, though the checkpoint says its task. It takes ``--bf16`` for ``--tpu``, which ends in an
    AttributeError.
    """
    for action in parser._actions:
        if action.dest == "task" and action.default is None:
            action.default = "translation"
    parsed = original(parser, *arguments, **keywords)
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    args.tpu = getattr(args, "tpu", False) and utils.xm is not None  # of torch_xla
    return parsed


@replace(utils, "split_paths")
def _keep_existing_path(original: Function, paths: str, *separator: str) -> list[str]:
    """Take a path that exists for one: its name may hold the colon at which fairseq divides several."""
    return [paths] if Path(paths).exists() else original(paths, *separator)


@replace(FairseqTask, "has_sharded_data")
def _has_several_folders(original: Function, task: FairseqTask, split: str) -> bool:
    """Tell whether the data are in several folders: the name of one may hold a colon, too."""
    return len(utils.split_paths(getattr(task.cfg, "data", None) or "")) > 1


_REFERENCE = re.compile(r"\$\{\w+\.\w+\}")  # of a default to another option


@replace(dataclass_utils, "override_module_args")
def _keep_dollars(original: Function, args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Keep ``${x}`` in an option such as a path: Hydra would replace it by the value of x, and fairseq again."""
    texts = {name: value for name, value in vars(args).items() if isinstance(value, str)}
    literal = {name: text.replace("${", r"\\\${") for name, text in texts.items() if not _REFERENCE.fullmatch(text)}
    return original(argparse.Namespace(**vars(args) | literal))


@replace(distributed_utils, "distributed_main")
def _leave_the_group(original: Function, *arguments: Any) -> None:
    """Leave the group of processes at the end: a thread of it that still frees tensors aborts a process that exits."""
    original(*arguments)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def print_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print a refusal in one line, and any other exception as Python does."""
    if not issubclass(kind, UserError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"{Path(sys.argv[0]).name}: error: {printable_line(error)}", file=sys.stderr)


if Path(sys.argv[0]).name.startswith("fairseq-"):
    sys.excepthook = print_error
