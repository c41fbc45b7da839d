"""Models from checkpoints: built from what was read and checked, never from the file a second time.

fairseq's own loading reads a file again, and in place of ``model.pt`` it takes a ``model-shard0.pt`` beside it.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.hub_utils import GeneratorHubInterface
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ode_transformer.models.saved_options import TASKS, check_saved_options, is_allowed_architecture
from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.checkpoint_schema import check_finite, saved_layers, saved_updates
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.plain_options import option_mapping, plain_mapping, shown
from ode_transformer.support.subword_models import SUBWORD_MODELS

logger = logging.getLogger(__name__)

Interface = TypeVar("Interface")

# Options that name code or a file to read, which a model with saved parameters does not need.
_DROPPED = dict.fromkeys(("user_dir", "encoder_embed_path", "decoder_embed_path"))

_LAYER_COUNTS = ("encoder_layers", "decoder_layers", "layers")
_POSITION_COUNTS = ("max_source_positions", "max_target_positions", "max_positions", "tokens_per_sample")
MAX_UNUSED_LAYERS = 100  # options of a language model count layers of an encoder, too, which it has not
MAX_POSITION_NUMBERS = 2**28  # 262,144 positions of width 1024
SPARE_NUMBERS = 2**24  # which a model may have beside its parameters
_FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn}  # take a shape first

# Files beside a model and the options that name them, as in fairseq's from_pretrained.
_FILES_BESIDE = {
    **{model.file_name: model.fairseq_option for model in SUBWORD_MODELS.values()},
    **{"code": "bpe_codes", "merges.txt": "bpe_merges", "vocab.json": "bpe_vocab"},
}


def build_saved_model(
    path: Path,
    state: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    task: Any = None,
    finite: bool = True,
) -> tuple[Any, Any, Any]:
    """Build the model of a checkpoint and load its parameters.

    :param path: file of the checkpoint, for messages
    :param state: what :func:`ode_transformer.support.checkpoint_file.load_checkpoint` returned
    :param overrides: options to change
    :param task: fairseq's task; by default the checkpoint's
    :param finite: refuse parameters that are infinite or not a number
    :return: the model, fairseq's configuration and the task
    :raises UserError: the checkpoint's options are refused, or do not fit its parameters or the dictionaries
    """
    try:
        args, cfg, _ = check_buildable(state)
    except UserError as error:
        raise UserError(f"{path}: refused: {error}") from error
    try:
        if finite:
            check_finite(state["model"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    overrides = _DROPPED | dict(overrides or {})
    try:
        config = None if args is not None else OmegaConf.create(cfg, flags={"allow_objects": True})
        if config is not None:
            overwrite_args_by_name(config, overrides)
        used = checkpoint_utils._upgrade_state_dict(
            {
                "args": None if args is None else argparse.Namespace(**(args | overrides)),
                "cfg": config,
                "model": state["model"],
                "optimizer_history": [
                    {"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": saved_updates(state) or 0}
                ],
                "extra_state": {"train_iterator": {"epoch": 1}},
            }
        )
        config, used["args"] = used["cfg"], None  # with args, fairseq would convert them for a second time
        task = task or tasks.setup_task(config.task, from_checkpoint=True)
        with size_limit(config.model, state["model"]):
            (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task, state=used)
    except OSError:
        raise
    except Exception as error:  # options of the right types can still fail anywhere in fairseq, torch and Hydra
        data = overrides.get("data")
        raise UserError(f"{path}: cannot be built with the dictionaries of {data}: {_message_of(error)}") from error
    return model, config, task


def _message_of(error: Exception) -> str:
    """Return the message of an error, some of which have a line for each parameter of a wrong size."""
    return one_line(str(error) or type(error).__name__, 300)


@contextmanager
def size_limit(options: argparse.Namespace | DictConfig, parameters: Mapping[str, Tensor]) -> Iterator[None]:
    """Build no model within the block that is larger than the saved parameters.

    :param options: options of the model
    :raises ValueError: a number of layers or of positions is out of range, or the model is larger
    """
    check_sizes(options, parameters)
    numbers = sum(tensor.numel() for tensor in parameters.values())
    with _AllocationLimit(4 * numbers + SPARE_NUMBERS):
        yield


def check_sizes(options: Any, parameters: Mapping[str, Tensor]) -> None:
    """Check that a model has no more layers than its saved parameters, and a number of positions that fits into memory.

    :param options: options of the model
    :raises ValueError: it has more
    """
    options = option_mapping(options)
    for name in (*_LAYER_COUNTS, *_POSITION_COUNTS):
        if not isinstance(options.get(name), int | float | None):
            raise ValueError(f"option {name}: {shown(options[name])} is not a number")
    layers = saved_layers(parameters)
    width = _position_width(options, parameters)
    for name in _LAYER_COUNTS:
        if (options.get(name) or 0) > max(layers, MAX_UNUSED_LAYERS):
            raise ValueError(f"option {name}: {options[name]:,}, but the file has {layers} layers in a stack")
    for name in _POSITION_COUNTS:
        if (options.get(name) or 0) * width > MAX_POSITION_NUMBERS:
            raise ValueError(f"option {name}: {options[name]:,} positions of {width:,} numbers are out of range")


def _position_width(options: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> int:
    """Return the width of a position: that of the embeddings, in the options or in the file, whichever is larger."""
    tables = [tensor for name, tensor in parameters.items() if name.endswith("embed_tokens.weight") and tensor.dim()]
    widths = [options.get(name) for name in ("encoder_embed_dim", "decoder_embed_dim")]
    return max(1, *(tensor.size(-1) for tensor in tables), *(int(w) for w in widths if isinstance(w, int | float)))


class _AllocationLimit(TorchFunctionMode):
    """Lets tensors be made of ``limit`` numbers in all; a model of more than its file has raises ``ValueError``."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit, self.numbers = limit, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FACTORIES:
            shape = args[0] if args and isinstance(args[0], Sequence) else args
            self.numbers += math.prod(shape)
            if self.numbers > self.limit:
                raise ValueError("its options describe a model that is larger than the one in the file")
        return func(*args, **(kwargs or {}))


def check_buildable(state: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
    """Check everything that a model is built from, except its parameters.

    :return: copies of ``args`` and ``cfg``, and the architecture
    :raises UserError: an option is refused, or the architecture or task is not one that is built
    """
    args, cfg = state.get("args"), state.get("cfg")
    args = None if args is None else plain_mapping(vars(args) if isinstance(args, argparse.Namespace) else args)
    cfg = None if cfg is None else plain_mapping(cfg)
    if args is None and cfg is None:
        raise UserError("it has no options (args or cfg)")
    for options in (args, cfg):
        if options is not None:
            check_saved_options(options)
    sources = (cfg or {}).get("model"), (cfg or {}).get("task")
    model, task = sources if args is None else (args, args)
    architectures = _names(model, "arch") or [None]
    for name in architectures:
        if not isinstance(name, str) or not is_allowed_architecture(name):
            raise UserError(f"architecture {shown(name)} is none of this package or fairseq's plain ones")
    for name in _names(task, "task"):
        if name not in TASKS:
            raise UserError(f"task {shown(name)} is not supported; known are {', '.join(TASKS)}")
    return args, cfg, architectures[0]


def _names(options: Any, key: str) -> list[Any]:
    """Return the names under which fairseq looks for a model or a task."""
    options = option_mapping(options)
    return [options[name] for name in ("_name", key) if options.get(name) is not None]


def load_saved_model(
    path: Path, overrides: Mapping[str, Any] | None = None, task: Any = None, finite: bool = True
) -> tuple[Any, Any, Any]:
    """Read a checkpoint and build its model, as :func:`build_saved_model`."""
    return build_saved_model(path, load_checkpoint(path), overrides, task, finite)


def load_pretrained(
    interface: Callable[[Any, Any, list[Any]], Interface],
    model_name_or_path: str | os.PathLike[str],
    checkpoint_file: str,
    data_name_or_path: str | os.PathLike[str],
    **kwargs: Any,
) -> Interface:
    """Load the models of a folder with what fairseq's ``from_pretrained`` takes.

    :param interface: makes an interface of fairseq of a configuration, a task and models
    :param checkpoint_file: files in the folder, divided by ``os.pathsep``
    :param data_name_or_path: folder of the dictionaries; relative to the model's if it begins with a dot
    :param kwargs: options to change
    :raises UserError: a folder is none, or a checkpoint is refused
    """
    folder, data = Path(model_name_or_path), os.fspath(data_name_or_path)
    folders = folder, Path(os.path.abspath(folder / data)) if data.startswith(".") else Path(data)
    for each in folders:
        if not each.is_dir():
            raise UserError(f"{each}: not a folder; download and unpack an archive first")
    kwargs["data"] = str(folders[1])
    for name, option in _FILES_BESIDE.items():
        if (folder / name).exists():
            kwargs.setdefault(option, str(folder / name))
    if "user_dir" in kwargs:
        utils.import_user_module(argparse.Namespace(user_dir=kwargs["user_dir"]))
    models: list[Any] = []
    cfg: Any = None
    task: Any = None
    for name in checkpoint_file.split(os.pathsep):
        model, cfg, task = load_saved_model(folder / name, kwargs, task)
        models.append(model)
    try:
        check_addresses(cfg, kwargs)
        reset_search(cfg, kwargs)
        for name, value in (kwargs.get("generation_args") or {}).items():
            cfg.generation[name] = value
        logger.info(cfg)
        return interface(cfg, task, models)
    except OSError:
        raise
    except Exception as error:  # options of generation, subwords and tokenisation, as in build_saved_model
        raise UserError(f"{folder}: its options for text cannot be used: {_message_of(error)}") from error


def reset_search(cfg: DictConfig, caller_options: Mapping[str, Any]) -> None:
    """Set the options of the search to fairseq's defaults, so that a checkpoint neither changes it nor names files.

    :param caller_options: options of the caller, which are kept
    """
    cfg.generation = OmegaConf.structured(GenerationConfig)
    overwrite_args_by_name(cfg.generation, caller_options)


def check_addresses(cfg: DictConfig, caller_options: Mapping[str, Any]) -> None:
    """Refuse addresses as files of subwords and tokenisation, which fairseq would fetch.

    :param caller_options: options of the caller, who may give one
    :raises ValueError: the checkpoint has one
    """
    for options in (cfg.bpe, cfg.tokenizer):
        for name, value in option_mapping(options).items():
            if "://" in str(value) and name not in caller_options:
                raise ValueError(f"option {name}: {shown(value)} is an address; give a file")


class SafeFromPretrained:
    """``from_pretrained`` of a model, whose files are checked before anything is built from them."""

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str | os.PathLike[str],
        checkpoint_file: str = "model.pt",
        data_name_or_path: str | os.PathLike[str] = ".",
        **kwargs: Any,
    ) -> GeneratorHubInterface:
        """Load a model from a folder, for translating and scoring as with fairseq's own models.

        :raises UserError: the folder does not exist, or a checkpoint is broken or refused
        """
        hub = load_pretrained(GeneratorHubInterface, model_name_or_path, checkpoint_file, data_name_or_path, **kwargs)
        for model in hub.models:
            model.decoder.reports_alignment = True  # a later call may ask for alignments
        return hub
