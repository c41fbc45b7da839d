"""The one door for options of a stranger's file, be it a checkpoint or an exported folder.

fairseq evaluates some options as Python and opens the files that others name. Through this door come numbers, lists of
numbers, and words that are among the choices of a flag, each only for an option that a model or a task declares.
fairseq's own interface also gets the words of a task, such as languages, and the folder of the data.
"""

import argparse
import os
import re
from collections.abc import Container, Mapping
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import _upgrade_state_dict
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, overwrite_args_by_name
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.utils import split_paths

from ode_transformer.checkpoints.reading import POSITIONS, check_sizes, option_group, saved_languages, saved_options
from ode_transformer.support.errors import UserError

FAIRSEQ_MODELS = ("transformer", "transformer_lm")  # fairseq's own that are built, with all their architectures
TASKS = (
    *("translation", "joint_translation", "language_modeling", "multilingual_language_modeling"),
    *("masked_lm", "multilingual_masked_lm", "sentence_prediction", "sentence_ranking"),
    "symmetric_sentence_prediction",
)
# Words that become part of a name: of a dictionary, which has no folder, of a split, or of a head.
_NAMES = ("source_lang", "target_lang", "langs", "train_subset", "classification_head_name")
_NAME = re.compile(r"\w[\w,.-]*")
_NUMBERS = re.compile(r"[-+\d.,()\[\]\s]*")  # as old checkpoints hold lists: neither letters nor powers


def is_of_this_package(arch: str) -> bool:
    """Tell whether this package registers an architecture."""
    model = ARCH_MODEL_REGISTRY.get(arch)
    return model is not None and model.__module__.partition(".")[0] == __package__.partition(".")[0]


def declared_flags(component: Any) -> list[argparse.Action]:
    """Return the flags that a model, a task or a criterion declares; ``default`` is "==SUPPRESS==" if it has none.

    They are read anew each time, because a scheme may have been registered since.
    """
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, add_help=False)
    component.add_args(parser)
    return parser._actions


def admitted_options(component: Any, options: Mapping[str, Any], refuses_text: bool = False) -> dict[str, Any]:
    """Return those options that a component declares, without text that could name a file or be evaluated.

    :param component: class of a model, a task or a criterion
    :param refuses_text: refuse such text, because without it something else would be computed
    :raises UserError: a value is refused
    """
    admitted = {}
    for action in declared_flags(component):
        name, value = action.dest, options.get(action.dest)
        is_name = name in _NAMES and isinstance(value, str) and _NAME.fullmatch(value)
        if name in options and (is_name or _is_number(value) or (action.choices and value in action.choices)):
            admitted[name] = deepcopy(value)
        elif name in options and (action.choices or (refuses_text and not name.endswith("_path"))):
            raise UserError(f"refused: option {name} is {str(value)[:60]!r}")
    return admitted


def _is_number(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_number, value))
    return isinstance(value, int | float | bool | None) or (isinstance(value, str) and bool(_NUMBERS.fullmatch(value)))


def _is_words(value: object) -> bool:
    """Tell whether a value is a word or a number, or holds nothing else: evaluated, it calls nothing."""
    if isinstance(value, Mapping):
        return all(map(_is_words, (*value, *value.values())))
    if isinstance(value, list | tuple):
        return all(map(_is_words, value))
    return _is_number(value) or (isinstance(value, str) and bool(_NAME.fullmatch(value)))


def _admitted_folder(data: object) -> str:
    """Return the folder, or several with colons between them, that a task reads its dictionaries from.

    :raises UserError: something in it is neither a file nor a folder, but a device or a fifo
    """
    folders = str((data[:1] or [""])[0] if isinstance(data, list | tuple) else data or "")
    for folder in filter(os.path.isdir, split_paths(folders)):
        with os.scandir(folder) as entries:
            for entry in entries:
                if os.path.exists(entry) and not entry.is_file() and not entry.is_dir():
                    raise UserError(f"refused: in the folder of its data, {entry.path} is not a file")
    return folders


def _is_file_in(folders: str, value: object) -> bool:
    """Tell whether an option names a file in one of the folders of the data, such as a dictionary."""
    if not isinstance(value, str) or not os.path.isfile(value):
        return False
    return any(Path(folder).resolve() in Path(value).resolve().parents for folder in split_paths(folders) if folder)


def admitted_model(options: Mapping[str, Any], any_of_fairseq: bool = False) -> dict[str, Any]:
    """Return the options that the model of a file is built from.

    :param any_of_fairseq: admit fairseq's other architectures
    :raises UserError: the architecture or an option is refused
    """
    # fairseq looks for both names; old checkpoints, and those of some models, have one of them.
    arch = options.get("arch") or options.get("_name")
    is_plain = all(_is_plain(name) for name in (options.get("_name") or arch, arch))
    if not is_plain and not (any_of_fairseq and arch in ARCH_MODEL_REGISTRY):
        raise UserError(f"refused: architecture {arch} is none of this package or fairseq's plain ones")
    defaults = argparse.Namespace()
    if is_plain:
        ARCH_CONFIG_REGISTRY[arch](defaults)
    undeclared = {name: options[name] for name in (*vars(defaults), *POSITIONS) if _is_number(options.get(name, {}))}
    declared = admitted_options(ARCH_MODEL_REGISTRY[arch], options, refuses_text=is_plain)
    admitted = undeclared | declared
    check_sizes(admitted)
    return admitted | {"arch": arch, "ode_options_saved": True}


def _is_plain(arch: object) -> bool:
    return isinstance(arch, str) and (is_of_this_package(arch) or ARCH_MODEL_NAME_REGISTRY.get(arch) in FAIRSEQ_MODELS)


def admitted_task(options: Mapping[str, Any], tasks: Container[str] = TASKS) -> str:
    """Return the name of a task.

    :raises UserError: it is none of ``tasks``
    """
    names = [str(options[name]) for name in ("_name", "task") if options.get(name) is not None]
    for name in names:
        if name not in tasks:
            raise UserError(f"refused: task {name} is not supported, only {', '.join(TASKS)}")
    return names[0] if names else "translation"


def admitted_state(
    state: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, any_of_fairseq: bool = False
) -> dict[str, Any]:
    """Return a checkpoint in fairseq's form, with the options of model, task and criterion alone.

    :param overrides: values of the user's, which are not checked
    :param any_of_fairseq: admit fairseq's other architectures and tasks, and leave out what is refused of them; admit
        the folder of the data, unless ``overrides`` name one, and all words of the task and files in that folder
    :raises UserError: the architecture, the task, the folder or an option is refused
    """
    model, task, criterion = (saved_options(state, group) for group in ("model", "task", "criterion"))
    task = {**task, **{name: language for name, language in saved_languages(state).items() if language}}
    task_name = admitted_task(task, TASK_REGISTRY if any_of_fairseq else TASKS)
    args = {"data": "", "task": task_name} | admitted_options(TASK_REGISTRY[task_name], task)
    words = {}
    if any_of_fairseq:
        args["data"] = (overrides or {}).get("data") or _admitted_folder(task.get("data"))
        admitted = {name for name, value in task.items() if _is_words(value) or _is_file_in(args["data"], value)}
        words = {name: deepcopy(task[name]) for name in admitted - {"data", "user_dir"}}
    of_task = {field.name for field in fields(TASK_DATACLASS_REGISTRY.get(task_name, FairseqDataclass))}
    of_task |= {action.dest for action in declared_flags(TASK_REGISTRY[task_name])}
    args |= {name: words[name] for name in of_task & words.keys()}
    name = str(criterion.get("criterion") or criterion.get("_name"))
    if name in CRITERION_REGISTRY:  # for fairseq-validate
        args |= {"criterion": name} | admitted_options(CRITERION_REGISTRY[name], criterion)
        # Those that refer to other options are no flags.
        referring = (field.name for field in fields(CRITERION_DATACLASS_REGISTRY.get(name, FairseqDataclass)))
        args |= {name: criterion[name] for name in referring if name in criterion and _is_words(criterion[name])}
    args |= admitted_model(model, any_of_fairseq)
    groups = convert_namespace_to_omegaconf(argparse.Namespace(**args))
    if isinstance(groups.task, argparse.Namespace):  # older tasks read more options than they declare
        vars(groups.task).update(words | vars(groups.task))
    used = _upgrade_state_dict(dict(state) | {"args": None, "cfg": groups})
    used["task_state"] = {**option_group(state.get("task_state")), "languages": saved_languages(state)}
    # OmegaConf would replace the ${x} of a folder's name by the value of x.
    literal = {name: v.replace("${", r"\${") if isinstance(v, str) else v for name, v in (overrides or {}).items()}
    overwrite_args_by_name(used["cfg"], literal)
    return used
