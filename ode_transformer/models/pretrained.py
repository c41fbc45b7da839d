"""Models of checkpoints as fairseq's, built from what our own reading has checked.

fairseq's own loading would read the file a second time, and in place of ``model.pt`` it takes a ``model-shard0.pt``
beside it.
"""

import argparse
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, tasks, utils
from fairseq.hub_utils import GeneratorHubInterface

from ode_transformer.checkpoints.dictionary import words_digest
from ode_transformer.checkpoints.reading import load_checkpoint, option_group, saved_updates
from ode_transformer.checkpoints.stored_sizes import limited_parameters
from ode_transformer.models.admission import admitted_state
from ode_transformer.support.errors import OptionError, UserError
from ode_transformer.support.subword_models import SUBWORD_MODELS

# Files beside a model and the options that name them, as in fairseq's from_pretrained.
_FILES_BESIDE = {
    **{model.file_name: model.fairseq_option for model in SUBWORD_MODELS.values()},
    **{"code": "bpe_codes", "merges.txt": "bpe_merges", "vocab.json": "bpe_vocab"},
}


def dictionary_digests(task: Any) -> dict[str, str]:
    """Return the SHA-256 of the words of a task's dictionaries, in their order, by side or by language."""
    dictionaries = dict(option_group(getattr(task, "dicts", None)))  # of multilingual tasks, which train on no sides
    for side in () if dictionaries else ("source", "target"):
        with suppress(NotImplementedError):  # a task without words, such as speech
            if (dictionary := getattr(task, f"{side}_dictionary")) is not None:
                dictionaries[side] = dictionary
    return {name: words_digest(dictionary.symbols) for name, dictionary in dictionaries.items()}


def build_model(
    path: Path, state: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, task: Any = None
) -> tuple[Any, Any, Any]:
    """Build the model of a checkpoint and load its parameters.

    The caller has imported :mod:`ode_transformer.models`, which registers the architectures. Options of the search, of
    subwords and of tokenisation have fairseq's defaults unless ``overrides`` name them.

    :return: the model, fairseq's configuration and the task
    :raises UserError: the architecture is refused, or options, parameters and dictionaries do not fit
    """
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
        hub = GeneratorHubInterface(*load_pretrained(*arguments, **options))
        for model in hub.models:
            model.decoder.reports_alignment = True  # a later call may ask for alignments
        return hub
