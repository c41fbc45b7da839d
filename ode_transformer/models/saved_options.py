"""The check of a checkpoint's options before anything is built from them.

fairseq evaluates some options as Python: ``encoder_layers`` of its convolutional models, ``adaptive_softmax_cutoff``,
``adam_betas``. So options are accepted only for architectures of this package and for fairseq's plain Transformers, and
each of them only with a value of the type that its flag or field has. Importing this module makes every set of options
that is read from a file pass the check, in fairseq's own loading as in ours.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import DictConfig, OmegaConf

from ode_transformer.nn.depth_choice import depth_schemes
from ode_transformer.support.errors import UserError
from ode_transformer.support.plain_options import PATH_OPTIONS, add_options_check, option_mapping, plain_mapping, shown

PACKAGE_NAME = __name__.partition(".")[0]
FAIRSEQ_MODELS = ("transformer", "transformer_lm")  # fairseq's own that are accepted, with all their architectures
TASKS = (
    *("translation", "joint_translation", "language_modeling", "multilingual_language_modeling"),
    *("masked_lm", "multilingual_masked_lm", "sentence_prediction", "sentence_ranking"),
    "symmetric_sentence_prediction",
)

# Options that fairseq evaluates as Python or splits into numbers, though their fields say that they are text.
_EVALUATED = {
    *("adam_betas", "adamax_betas", "lamb_betas", "adafactor_eps"),
    *("adaptive_softmax_cutoff", "adaptive_input_cutoff", "character_filters"),
    *("xformers_att_config", "encoder_xformers_att_config", "decoder_xformers_att_config"),
    *("wer_args", "model_overrides", "pipeline_balance", "pipeline_devices"),
    *("pipeline_encoder_balance", "pipeline_encoder_devices", "pipeline_decoder_balance", "pipeline_decoder_devices"),
}
# What runs code of a text that Python evaluates. An assignment, as in a comprehension, can make of a subscript a call.
_CODE = (ast.Call, ast.Subscript, ast.comprehension, ast.Lambda, ast.NamedExpr, ast.JoinedStr, ast.Await, ast.Yield)


def is_of_this_package(arch: str) -> bool:
    """Tell whether this package registers an architecture."""
    model = ARCH_MODEL_REGISTRY.get(arch)
    return model is not None and model.__module__.partition(".")[0] == PACKAGE_NAME


def is_allowed_architecture(name: str) -> bool:
    """Tell whether models of an architecture are built from checkpoints."""
    return is_of_this_package(name) or ARCH_MODEL_NAME_REGISTRY.get(name) in FAIRSEQ_MODELS


def check_saved_options(options: Mapping[str, Any]) -> None:
    """Check plain options, flat or with groups inside as fairseq's ``cfg``.

    An architecture that is not registered passes: nothing can be built from it, and the released checkpoints that
    ``ode-transformer convert`` reads have such names.

    :raises UserError: another architecture, an option of another type, or a text that fairseq could run
    """
    for name in _architectures(options):
        if name in ARCH_MODEL_REGISTRY and not is_allowed_architecture(name):
            raise UserError(
                f"architecture {name} is refused: from checkpoints, only models of this package and fairseq's plain "
                "Transformers are built"
            )
    _check_values(options, _Types(options))


def check_build_options(options: argparse.Namespace | DictConfig) -> None:
    """Check options that fairseq read as a plain group; a namespace was checked when it was read.

    :raises UserError: as :func:`check_saved_options`
    """
    if OmegaConf.is_config(options):
        check_saved_options(plain_mapping(OmegaConf.to_container(options, resolve=False)))


def _architectures(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield every name under which fairseq could look for a model.

    The ``_name`` of a plain group other than the model's is that of a task or criterion, some of which share it with an
    architecture; namespaces are of classes without a dataclass, none of which does.
    """
    for name, value in options.items():
        if name in ("arch", "_name") and isinstance(value, str):
            yield value
        elif isinstance(value, argparse.Namespace) or (name == "model" and isinstance(value, Mapping)):
            yield from _architectures(option_mapping(value))


def _group(value: object) -> Mapping[str, Any] | None:
    if isinstance(value, argparse.Namespace):
        return vars(value)
    return value if isinstance(value, Mapping) else None


def _check_values(options: Mapping[str, Any], types: _Types) -> None:
    for name, value in options.items():
        if (group := _group(value)) is not None:
            _check_values(group, types)
        else:
            check_calls(str(name), value)
            types.check(str(name), value)


def check_calls(name: str, value: object) -> None:
    """Refuse text that runs code when Python evaluates it.

    :raises UserError: names the option
    """
    if isinstance(value, list | tuple):
        for entry in value:
            check_calls(name, entry)
    elif isinstance(value, str) and name not in PATH_OPTIONS and _runs_code(value):
        raise UserError(f"option {name}: {shown(value)} is Python code, which is refused")


def _runs_code(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in the text
            tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return False
    except (ValueError, MemoryError, RecursionError):
        return True  # too much to tell
    return any(isinstance(node, _CODE) for node in ast.walk(tree))


def _is_literal(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


class _Types:
    """The types of the options that fairseq has for one architecture, task, criterion and so on."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.kinds: dict[str, list[_Kind]] = {}
        for kinds in _option_groups(options):
            for name, kind in kinds.items():
                self.kinds.setdefault(name, []).append(kind)

    def check(self, name: str, value: object) -> None:
        """Refuse a value of another type than the option's.

        :raises UserError: names the option and its type
        """
        if value is None:
            return
        if name in _EVALUATED:
            if isinstance(value, str) and value and not _is_literal(value):
                raise UserError(f"option {name}: {shown(value)} is not a list of numbers")
            return
        kinds = self.kinds.get(name, [])
        if kinds and not any(kind.accepts(value) for kind in kinds):
            raise UserError(f"option {name}: {shown(value)} is not {kinds[0].description}")


def _option_groups(options: Mapping[str, Any]) -> Iterator[dict[str, _Kind]]:
    """Yield the options of a model, a task and so on, as far as ``options`` name them; the model's come first."""
    for name in _architectures(options):
        if name in ARCH_MODEL_REGISTRY:
            model = ARCH_MODEL_REGISTRY[name]
            yield _kinds_of(MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY[name], model), depth_schemes())
    yield _kinds_of(TransformerConfig, depth_schemes())  # under the names of its parts, which fairseq reads, too
    for field in FairseqConfig.__dataclass_fields__.values():
        if inspect.isclass(field.type) and issubclass(field.type, FairseqDataclass):
            yield _kinds_of(field.type)  # type: ignore[arg-type]
    for registry, classes, dataclasses in (
        ("task", TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
        *((name, entry["registry"], entry["dataclass_registry"]) for name, entry in REGISTRIES.items()),
    ):
        for name in _choices(options, registry):
            if (source := dataclasses.get(name, classes.get(name))) is not None:
                yield _kinds_of(source)


def _choices(options: Mapping[str, Any], registry: str) -> Iterator[str]:
    """Yield what is chosen for "task", "criterion", …: by a name, or by a group with the name inside."""
    for name, value in options.items():
        group = _group(value)
        if name == registry:
            value = group.get("_name", group.get(registry)) if group else value
            if isinstance(value, str):
                yield value
        if group:
            yield from _choices(group, registry)


@dataclass(frozen=True)
class _Kind:
    """The type of an option: the value's, or that of the entries of a list."""

    description: str
    types: tuple[type, ...]
    lists: bool = False
    choices: tuple[Any, ...] = ()

    def accepts(self, value: object) -> bool:
        """Tell whether an option of this type can have ``value``."""
        if isinstance(value, list | tuple):
            return self.lists and all(isinstance(entry, self.types) for entry in value)
        if self.lists and isinstance(value, str) and str not in self.types:
            return _is_literal(value)
        return isinstance(value, self.types) and (not self.choices or value in self.choices)


_NUMBER = (bool, int, float)
_TEXT = (str, *_NUMBER)


@cache
def _kinds_of(source: Any, schemes: tuple[str, ...] = ()) -> dict[str, _Kind]:
    """Return the types of the options that a dataclass has, or that a class adds to a parser.

    :param schemes: of a model, all that are registered by now; the choices of its options depend on them
    """
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    if issubclass(source, FairseqDataclass):
        gen_parser_from_dataclass(parser, source())
    elif hasattr(source, "add_args"):
        source.add_args(parser)
    return {action.dest: _kind_of(action, bool(schemes)) for action in parser._actions}


def _kind_of(action: argparse.Action, is_model: bool) -> _Kind:
    """Return the type of a flag.

    :param is_model: its choices are binding; those of trainings change from one version of fairseq to the next
    """
    if action.choices is not None and is_model:
        choices = tuple(action.choices)
        return _Kind(f"one of {', '.join(map(str, choices))}", _TEXT, choices=choices)
    if action.nargs == 0:
        return _Kind("true or false", (bool, int))
    try:
        parsed = action.type("1") if callable(action.type) else "1"
    except Exception:
        parsed = "1"
    if isinstance(parsed, list | tuple):
        return _Kind("a list", _TEXT if parsed and isinstance(parsed[0], str) else _NUMBER, lists=True)
    if isinstance(parsed, bool):
        return _Kind("true or false", (bool, int))
    if isinstance(parsed, int | float):
        return _Kind("a number", _NUMBER, lists=action.nargs not in (None, "?"))
    return _Kind("text", _TEXT, lists=True)


add_options_check(check_saved_options)
