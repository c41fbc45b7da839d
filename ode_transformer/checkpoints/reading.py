"""Reading of checkpoints: the one place that opens a file of a stranger, whose code never runs.

A checkpoint is a pickle, and a pickle can run code. torch's restricted unpickler (``weights_only=True``) builds tensors
and plain containers and refuses every other class; fairseq's files need one class more, ``argparse.Namespace``. What
was read comes to fairseq through :mod:`ode_transformer.checkpoints.admission`; how much it may need is said in
:mod:`ode_transformer.checkpoints.stored_sizes`. Models are built from what was read:
fairseq's own loading would read the file a second time, and in place of ``model.pt`` it takes a ``model-shard0.pt``
beside it.
"""

import argparse
import errno
import hashlib
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ode_transformer.checkpoints.parameters import upgrade_checkpoint
from ode_transformer.checkpoints.plain_numbers import numpy_allowed
from ode_transformer.checkpoints.stored_sizes import check_archive, check_old_file, check_tensors, limited_parameters
from ode_transformer.support.errors import DamagedCheckpoint, OptionError, UserError, is_out_of_memory
from ode_transformer.support.files import atomic_write, check_regular
from ode_transformer.support.subword_models import SUBWORD_MODELS

MAX_SETTINGS = 10_000  # bytes of a stack's settings
_REFUSED = r"GLOBAL (\S+) (?:was not an allowed|whose module)|Unsupported class (\S+)"  # of torch's messages
_DISK_ERRORS = (errno.EIO, errno.ESTALE)  # damaged files raise others
# Greatest values by the end of an option's name, far beyond published models: what is built must not fill a machine.
_LARGEST = {"_layers": 1000, "_steps": 1000, "_dim": 2**16, "_positions": 2**18, "_sample": 2**18, "_size": 2**20}
_LARGEST |= {"_labels": 10_000}
_LARGEST_TABLE = 2**26  # numbers of a table of positions
POSITIONS = ("max_positions", "max_source_positions", "max_target_positions", "tokens_per_sample")
# Files beside a model and the options that name them, as in fairseq's from_pretrained.
_FILES_BESIDE = {
    **{model.file_name: model.fairseq_option for model in SUBWORD_MODELS.values()},
    **{"code": "bpe_codes", "merges.txt": "bpe_merges", "vocab.json": "bpe_vocab"},
}


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a fairseq checkpoint onto the CPU.

    :return: fairseq's dictionary; ``["model"]`` maps parameter names to tensors
    :raises DamagedCheckpoint: the file is broken or truncated
    :raises UserError: it is no fairseq checkpoint, or holds what could run code
    """
    check_regular(Path(path))
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            is_archive = file.read(4) == b"PK\3\4"  # as torch tells its formats apart
            file.seek(0)
            if is_archive:
                check_archive(file)
            else:  # the format from before torch 1.6, which has no checksums
                check_old_file(file)
            file.seek(0)
            torch.serialization.add_safe_globals([argparse.Namespace])  # in which fairseq keeps options
            with numpy_allowed():
                state = torch.load(file, map_location="cpu", weights_only=True)
            if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
                raise UserError("not a fairseq checkpoint, it has no 'model'")
            for name, tensor in state["model"].items():
                if name.endswith("_extra_state") and tensor.numel() > MAX_SETTINGS:
                    raise UserError(f"refused: {name} has more than {MAX_SETTINGS:,} bytes")
            check_tensors(state, os.fstat(file.fileno()).st_size)
            check_sizes(saved_options(state, "model"))
            upgrade_checkpoint(state)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except Exception as error:  # bytes that are no checkpoint make the unpickler fail in any way
            if is_out_of_memory(error) or (isinstance(error, OSError) and error.errno in _DISK_ERRORS):
                raise
            if refused := re.search(_REFUSED, str(error)):
                raise UserError(f"{path}: refused: it holds {refused[1] or refused[2]}") from error
            raise DamagedCheckpoint(f"{path}: broken or truncated, or not a checkpoint") from error
    return state


def check_sizes(options: Mapping[str, Any]) -> None:
    """Refuse sizes of a model or a dictionary far beyond those of published models."""
    numbers = {name: value for name, value in options.items() if isinstance(value, int)}
    for name, value in numbers.items():
        largest = next((limit for end, limit in _LARGEST.items() if name.endswith(end)), None)
        if largest is not None and value > largest:
            raise UserError(f"refused: option {name} is {str(value)[:60]}, more than {largest:,}")
    positions = max(numbers.get(name, 0) for name in POSITIONS)
    width = max(numbers.get(f"{stack}_embed_dim", 0) for stack in ("encoder", "decoder"))
    if positions * width > _LARGEST_TABLE:
        raise UserError(f"refused: a table of {positions:,} positions of {width:,} numbers")


def save_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a checkpoint; whenever the process dies, ``path`` holds its old content or the whole new one."""
    with atomic_write(Path(path)) as file:
        torch.save(state, file)


def option_group(options: object) -> Mapping[str, Any]:
    """Return options as a mapping, whichever of fairseq's forms they have; empty if they have none."""
    if isinstance(options, argparse.Namespace):
        return vars(options)
    return options if isinstance(options, Mapping) else {}


def saved_options(state: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    """Return the options of a checkpoint's group; old checkpoints hold all options in one namespace."""
    return option_group(state.get("args") or option_group(state.get("cfg")).get(group))


def saved_languages(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``source_lang`` and ``target_lang`` of a training, None where a checkpoint does not say.

    Options name those that the user gave, the task's state also those that follow from the names of the data's files.
    """
    options = saved_options(state, "task")
    remembered = option_group(option_group(state.get("task_state")).get("languages"))
    return {name: options.get(name) or remembered.get(name) for name in ("source_lang", "target_lang")}


def saved_updates(state: Mapping[str, Any]) -> int:
    """Return the number of updates that a model was trained for; 0 where its checkpoint does not say."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def dictionary_digests(task: Any) -> dict[str, str]:
    """Return the SHA-256 of the words of a task's dictionaries, in their order, by side or by language."""
    dictionaries = dict(option_group(getattr(task, "dicts", None)))  # of multilingual tasks, which train on no sides
    for side in () if dictionaries else ("source", "target"):
        with suppress(NotImplementedError):  # a task without words, such as speech
            if (dictionary := getattr(task, f"{side}_dictionary")) is not None:
                dictionaries[side] = dictionary
    return {
        name: hashlib.sha256("\n".join(dictionary.symbols).encode()).hexdigest()
        for name, dictionary in dictionaries.items()
    }


def build_model(
    path: Path, state: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, task: Any = None
) -> tuple[Any, Any, Any]:
    """Build the model of a checkpoint and load its parameters.

    The caller has imported :mod:`ode_transformer.models`, which registers the architectures. Options of the search, of
    subwords and of tokenisation have fairseq's defaults unless ``overrides`` name them.

    :return: the model, fairseq's configuration and the task
    :raises UserError: the architecture is refused, or options, parameters and dictionaries do not fit
    """
    from fairseq import checkpoint_utils, tasks

    from ode_transformer.checkpoints.admission import admitted_state

    used = {name: state.get(name) for name in ("args", "cfg", "model")}
    used["optimizer_history"] = [{"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": saved_updates(state)}]
    used["extra_state"] = {"train_iterator": {"epoch": 1}}
    remembered = option_group(state.get("task_state"))
    used["task_state"] = {name: remembered.get(name) for name in ("dictionaries", "languages")}
    try:
        used = admitted_state(used, overrides)
        config = used["cfg"]
        task = task or tasks.setup_task(config.task, from_checkpoint=True)
        with limited_parameters() as limit:
            limit.allow_stored(state["model"])
            (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task, state=used)
    except (UserError, OptionError) as error:
        raise UserError(f"{path}: {error}") from error
    except OSError:
        raise
    except Exception as error:  # fairseq, torch and Hydra do not name the file
        data, reason = (overrides or {}).get("data"), f"{type(error).__name__}: {error}"
        raise UserError(f"{path}: cannot be built with the dictionaries of {data}: {reason[:300]}") from error
    return model, config, task


def load_pretrained(
    model_name_or_path: str | os.PathLike[str],
    checkpoint_file: str = "model.pt",
    data_name_or_path: str | os.PathLike[str] = ".",
    **options: Any,
) -> tuple[Any, Any, list[Any]]:
    """Load models of a folder with what fairseq's ``from_pretrained`` takes; return configuration, task and models.

    :param checkpoint_file: files in the folder, divided by ``os.pathsep``
    :param data_name_or_path: folder of the dictionaries; relative to the model's if it begins with a dot
    :raises UserError: a checkpoint is broken or refused
    """
    from fairseq import utils

    folder, data = Path(model_name_or_path), os.fspath(data_name_or_path)
    options["data"] = os.path.abspath(folder / data) if data.startswith(".") else data
    for name, option in _FILES_BESIDE.items():
        if (folder / name).exists():
            options.setdefault(option, str(folder / name))
    if "user_dir" in options:
        utils.import_user_module(argparse.Namespace(user_dir=options["user_dir"]))
    models: list[Any] = []
    config: Any = None
    task: Any = None
    for name in checkpoint_file.split(os.pathsep):
        model, config, task = build_model(folder / name, load_checkpoint(folder / name), options, task)
        models.append(model)
    for name, value in (options.get("generation_args") or {}).items():
        config.generation[name] = value
    return config, task, models


class SafeFromPretrained:
    """``from_pretrained`` of a model, whose files are checked before anything is built from them."""

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> Any:
        """Load fairseq's ``GeneratorHubInterface``, to translate and score, by :func:`load_pretrained`."""
        from fairseq.hub_utils import GeneratorHubInterface

        hub = GeneratorHubInterface(*load_pretrained(*arguments, **options))
        for model in hub.models:
            model.decoder.reports_alignment = True  # a later call may ask for alignments
        return hub
