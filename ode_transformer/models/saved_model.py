"""Models from checkpoints: built from what was read and checked, never from the file a second time.

fairseq's own loading reads a file again, and in place of ``model.pt`` it takes a ``model-shard0.pt`` beside it.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, utils
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.hub_utils import GeneratorHubInterface
from omegaconf import OmegaConf

from ode_transformer.models.saved_options import TASKS, check_saved_options, is_allowed_architecture
from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.errors import UserError
from ode_transformer.support.plain_options import plain_mapping, shown

logger = logging.getLogger(__name__)

# Options that name code or a file to read, which a model with saved parameters does not need.
_DROPPED = dict.fromkeys(("user_dir", "encoder_embed_path", "decoder_embed_path"))

# Files beside a model and the options that name them, as in fairseq's from_pretrained.
_FILES_BESIDE = {
    "code": "bpe_codes",
    "bpecodes": "bpe_codes",
    "sentencepiece.bpe.model": "sentencepiece_model",
    "merges.txt": "bpe_merges",
    "vocab.json": "bpe_vocab",
}


def build_saved_model(
    path: Path, state: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, task: Any = None
) -> tuple[Any, Any, Any]:
    """Build the model of a checkpoint and load its parameters.

    :param path: file of the checkpoint, for messages
    :param state: what :func:`ode_transformer.support.checkpoint_file.load_checkpoint` returned
    :param overrides: options to change
    :param task: fairseq's task; by default the checkpoint's
    :return: the model, fairseq's configuration and the task
    :raises UserError: the checkpoint's options are refused
    """
    try:
        args, cfg = _checked_options(state)
    except UserError as error:
        raise UserError(f"{path}: refused: {error}") from error
    overrides = _DROPPED | dict(overrides or {})
    namespace = None if args is None else argparse.Namespace(**(args | overrides))
    config = None if cfg is None else OmegaConf.create(cfg, flags={"allow_objects": True})
    if config is not None:
        overwrite_args_by_name(config, overrides)
    state = checkpoint_utils._upgrade_state_dict({**state, "args": namespace, "cfg": config})
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task, state=state)
    return model, cfg, task


def _checked_options(state: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return copies of ``args`` and ``cfg``.

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
    for model, task in (sources if args is None else (args, args),):
        names = _names(model, "arch"), _names(task, "task")
        if not names[0] or not all(map(is_allowed_architecture, names[0])):
            raise UserError(
                f"architecture {shown((names[0] or [None])[0])} is none of this package or fairseq's plain ones"
            )
        if not set(names[1]) <= set(TASKS):
            raise UserError(f"task {shown(names[1][0])} is not supported; known are {', '.join(TASKS)}")
    return args, cfg


def _names(options: Any, key: str) -> list[Any]:
    """Return the names under which fairseq looks for a model or a task."""
    options = vars(options) if isinstance(options, argparse.Namespace) else options
    options = options if isinstance(options, Mapping) else {}
    return [options[name] for name in ("_name", key) if options.get(name) is not None]


def load_saved_model(path: Path, overrides: Mapping[str, Any] | None = None, task: Any = None) -> tuple[Any, Any, Any]:
    """Read a checkpoint and build its model, as :func:`build_saved_model`."""
    return build_saved_model(path, load_checkpoint(path), overrides, task)


def load_pretrained(
    model_name_or_path: str | os.PathLike[str],
    checkpoint_file: str,
    data_name_or_path: str | os.PathLike[str],
    **kwargs: Any,
) -> tuple[list[Any], Any, Any]:
    """Load the models of a folder with what fairseq's ``from_pretrained`` takes.

    :param checkpoint_file: files in the folder, divided by ``os.pathsep``
    :param data_name_or_path: folder of the dictionaries; relative to the model's if it begins with a dot
    :param kwargs: options to change
    :return: models, configuration, task
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
            kwargs[option] = str(folder / name)
    if "user_dir" in kwargs:
        utils.import_user_module(argparse.Namespace(user_dir=kwargs["user_dir"]))
    models: list[Any] = []
    cfg: Any = None
    task: Any = None
    for name in checkpoint_file.split(os.pathsep):
        model, cfg, task = load_saved_model(folder / name, kwargs, task)
        models.append(model)
    for name, value in (kwargs.get("generation_args") or {}).items():
        cfg.generation[name] = value
    logger.info(cfg)
    return models, cfg, task


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
        models, cfg, task = load_pretrained(model_name_or_path, checkpoint_file, data_name_or_path, **kwargs)
        return GeneratorHubInterface(cfg, task, models)
