"""fairseq's groups of options, filled from a command line or an old checkpoint.

fairseq has Hydra compose them, which takes half a second of each command: it writes every option as a line of Hydra's
grammar, and parses it. Here their classes are filled; OmegaConf checks types and resolves references as before.
"""

import argparse
import ast
import contextlib
import re
from dataclasses import fields
from enum import Enum
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import interpret_dc_type
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import DictConfig, OmegaConf


def group_options(args: argparse.Namespace) -> DictConfig:
    """Return fairseq's groups of options; those without a class, which fairseq fills itself, are ``None``."""
    names = {group: getattr(args, group, None) for group in ("task", *REGISTRIES)}
    names["model"] = getattr(args, "arch", None)
    classes = {group: registry["dataclass_registry"].get(names[group]) for group, registry in REGISTRIES.items()}
    classes["model"] = getattr(ARCH_MODEL_REGISTRY.get(names["model"]), "__dataclass", None)
    classes["task"] = TASK_DATACLASS_REGISTRY.get(names["task"])
    groups: dict[str, Any] = {}
    for field in fields(FairseqConfig):
        of_class = classes.get(field.name, field.type)
        is_group = isinstance(of_class, type) and issubclass(of_class, FairseqDataclass)
        groups[field.name] = _fill(of_class, args) if is_group else None
        if is_group and field.name in names:
            groups[field.name]._name = names[field.name]
    return OmegaConf.create(groups)


def _fill(of_class: type[FairseqDataclass], args: argparse.Namespace) -> FairseqDataclass:
    options = of_class()
    for field in fields(of_class):
        if not field.name.startswith("_"):
            value = getattr(args, field.name, getattr(options, field.name))
            is_group = isinstance(value, FairseqDataclass)
            setattr(options, field.name, _fill(type(value), args) if is_group else _convert(value, field.type))
    return options


def _convert(value: Any, field_type: Any) -> Any:
    """Return the value of an option as fairseq does: numbers and lists may be text, as in old checkpoints."""
    value_type = interpret_dc_type(field_type)
    if isinstance(value, str):
        if re.fullmatch(r"\$\{\w+\.\w+\}", value):  # a default that refers to another option
            return value
        if value_type is str or (isinstance(value_type, type) and issubclass(value_type, Enum)):
            return value.replace("${", r"\\\${")  # literally, as in a path: OmegaConf resolves it here and in fairseq
        value = ast.literal_eval(value)
    if isinstance(value, list | tuple):
        (number,) = getattr(field_type, "__args__", [None])[:1]
        return [number(element) for element in value] if number in (int, float) else list(value)
    with contextlib.suppress(TypeError, ValueError):  # what is no number OmegaConf refuses by the option's name
        return value_type(value) if value is not None and value_type in (int, bool, float) else value
    return value
