"""Builds the plain model of a checkpoint, without fairseq.

Only the fields of sizes and choices are read of a checkpoint's options; what is no field of theirs is nowhere used.
The model is outlined first, without memory, and takes the stored tensors as its parameters: it never needs more than
is stored.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ode_transformer.checkpoints.reading import check_sizes, saved_options
from ode_transformer.checkpoints.stored_sizes import limited_parameters
from ode_transformer.nn import (
    ARCHITECTURES,
    STACKS,
    DepthChoice,
    GridChoice,
    LanguageModel,
    Stack,
    Transformer,
    TransformerSizes,
    complete_options,
    read_choices,
    read_grid,
    read_sizes,
)
from ode_transformer.nn.architectures import MODELS
from ode_transformer.nn.model_options import OFF, UNSUPPORTED_OPTIONS, size_options
from ode_transformer.nn.older_parameters import join_projections
from ode_transformer.nn.plugins import load_plugins
from ode_transformer.support.errors import UserError

PlainModel = Transformer | LanguageModel

# fairseq's own architectures whose models are ours with residual layers, without relative positions and layer history
_FAIRSEQS_TRANSFORMERS = re.compile(r"transformer(_tiny|_iwslt_de_en|_wmt_en_de\w*|_vaswani_wmt_en_\w+)?")
_FAIRSEQS_LANGUAGE_MODELS = re.compile(r"transformer_lm(_\w+)?")
# Patterns of fairseq's names of their parameters and ours
_FAIRSEQS_NAMES = (
    (r"(layers\.\d+\.(?:self|encoder)_attn)\.", r"\1.function."),
    (r"(layers\.\d+\.(?:self|encoder)_attn)_layer_norm\.", r"\1.layer_norm."),  # after it, whose pattern it would meet
    (r"(layers\.\d+)\.final_layer_norm\.", r"\1.ffn.layer_norm."),
    (r"(layers\.\d+)\.(fc[12])\.", r"\1.ffn.function.\2."),
)
# Options of ours and of fairseq's that the plain models lack
_FOR_FAIRSEQ: tuple[str, ...] = (
    *("adaptive_softmax_cutoff", *UNSUPPORTED_OPTIONS, "merge_src_tgt_embed", "character_embeddings"),
    *("scale_fc", "scale_attn", "scale_heads", "scale_resids", "encoder_layerdrop", "decoder_layerdrop"),
)


# Of fairseq's module, which an exported folder may describe
ADAPTIVE_SOFTMAX = ("adaptive_softmax_cutoff", "adaptive_softmax_dropout", "adaptive_softmax_factor")


class NeedsFairseq(UserError):
    """A model has a part that only fairseq can compute."""


def model_kind(options: Mapping[str, Any]) -> str:
    """Return the model of saved options: one of ``MODELS``, or ``transformer`` or ``transformer_lm`` of fairseq.

    :raises NeedsFairseq: it is another
    """
    # Old checkpoints, and those of some models, have one of the two names.
    arch = str(options.get("arch") or options.get("_name"))
    if arch in ARCHITECTURES:
        return ARCHITECTURES[arch].model
    if _FAIRSEQS_LANGUAGE_MODELS.fullmatch(arch):
        return "transformer_lm"
    if _FAIRSEQS_TRANSFORMERS.fullmatch(arch):
        return "transformer"
    raise NeedsFairseq(f"architecture {arch} is none of this package or fairseq's plain ones")


def model_options(options: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the options from which a model is built.

    :param options: saved ones
    :param kind: from :func:`model_kind`
    :raises NeedsFairseq: they ask for a part that only fairseq has
    """
    for name in _FOR_FAIRSEQ:
        if options.get(name) not in (*OFF, "", "False"):
            raise NeedsFairseq(f"option {name} {options[name]!r} is one of fairseq's")
    saved = {name: value for name, value in options.items() if value is not None}
    if kind not in MODELS:
        for stack in ("encoder", "decoder"):
            if not saved.get(f"{stack}_normalize_before", kind == "transformer_lm"):  # fairseq's layers as they are
                saved[f"{stack}_ode_function"] = "layer-output"
                saved[f"{stack}_normalize_before"] = False
        return saved
    architecture = ARCHITECTURES.get(str(options.get("arch") or options.get("_name")))
    return complete_options(kind, {**({} if architecture is None else architecture.options), **saved})


def build(kind: str, options: Mapping[str, Any], source_words: int, target_words: int | None = None) -> PlainModel:
    """Return a model with its first parameters.

    :param kind: from :func:`model_kind`
    :param options: from :func:`model_options`
    :raises UserError: options are refused or do not go together
    """
    try:
        check_sizes(options)
        sizes = read_sizes(options, source_words, target_words)
        return _build(kind, options, sizes)
    except (ValueError, TypeError) as error:
        raise UserError(f"refused: {error}") from error


def _build(kind: str, options: Mapping[str, Any], sizes: TransformerSizes) -> PlainModel:
    is_language_model = kind in ("ode_transformer_lm", "transformer_lm")
    stacks = ("decoder",) if is_language_model else ("encoder", "decoder")
    choices: dict[str, DepthChoice] = read_choices(options, stacks, trained=True)
    if is_language_model:
        return LanguageModel(sizes, choices["decoder"])
    grid = read_grid(options) if kind == "reformer" else None
    return Transformer(sizes, choices["encoder"], choices["decoder"], grid)


def exported_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options that a model is built from, without those of its training, which may name folders."""
    names = {"arch", "post_norm", *size_options(options), *ADAPTIVE_SOFTMAX}
    for option in (*DepthChoice.options().values(), *GridChoice.options().values()):
        names |= {option.dest(prefix) for prefix in ("", *STACKS)}
    return {name: value for name, value in options.items() if name in names and value is not None}


def load_parameters(model: PlainModel, parameters: Mapping[str, Tensor], kind: str, may_change: bool = False) -> None:
    """Give an outline its parameters, which it shares with ``parameters``.

    :param parameters: of a checkpoint
    :param may_change: the model may have other settings than the trained one, such as another scheme
    :raises UserError: they do not fit
    """
    ours = dict(parameters)
    if kind not in MODELS:
        # fairseq's own order is K, V, Q; ours is Q, K, V.
        in_order = sorted(parameters, key=lambda name: name.replace(".q_proj.", ".a_proj."))
        ours = {_our_name(name): parameters[name] for name in in_order}
        join_projections(ours)
    if "decoder.output_projection.weight" not in ours and model.sizes.share != "none":
        ours["decoder.output_projection.weight"] = ours["decoder.embed_tokens.weight"]
    for stack in model.modules():
        if isinstance(stack, Stack):
            stack.trained_version.may_change = may_change
    ours = {name: x.float() if x.is_floating_point() else x for name, x in ours.items()}
    try:
        model.load_state_dict(ours, assign=True)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"its parameters do not fit its options and dictionaries: {reason}") from error


def _our_name(name: str) -> str:
    for pattern, ours in _FAIRSEQS_NAMES:
        name = re.sub(pattern, ours, name)
    return name


class UndrawnWeights(TorchFunctionMode):
    """Leaves tensors as they are that would be filled with random numbers, which takes neither time nor memory.

    On PyTorch's device ``meta`` its compiler would be imported, which takes longer than all the rest.
    """

    functions = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in self.functions:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def build_plain_model(
    state: Mapping[str, Any],
    source_words: int,
    target_words: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> PlainModel:
    """Build the model of a checkpoint, in evaluation mode.

    :param state: from :func:`ode_transformer.checkpoints.reading.load_checkpoint`
    :param source_words: size of the source's dictionary, or of a language model's
    :param target_words: size of the target's dictionary
    :param changes: options in the place of saved ones
    :raises UserError: options are refused, or options, parameters and dictionaries do not fit
    :raises NeedsFairseq: it has a part that only fairseq has
    """
    load_plugins()  # whose schemes it may have
    saved = {**saved_options(state, "model"), **(changes or {})}
    kind = model_kind(saved)
    with UndrawnWeights(), limited_parameters() as limit:
        limit.allow_stored(state["model"])
        model = build(kind, model_options(saved, kind), source_words, target_words)
    load_parameters(model, state["model"], kind, may_change=bool(changes))
    return model.eval()
