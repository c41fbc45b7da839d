"""``ode-transformer checkpoint convert``: convert checkpoints of the authors' released code to this package.

The released codes (libeineu/ODE-Transformer, zhuohan123/macaron-net and lyy1994/reformer, all on fairseq 0.6) keep the
three projections of an attention in one matrix and number the layer normalisations of an encoder layer; ODE Transformer
shares one set of coefficients over the encoder. Here, flags select what they compute: F is the whole layer
(``--ode-function layer-output``), a Macaron layer is ``--layer-splitting strang``, Reformer adds its positions by
``--joint-input released``.
"""

import argparse
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ode_transformer.checkpoints.plain_model import build_plain_model, model_kind, model_options
from ode_transformer.support.errors import UserError

# Patterns of released names and our names, without encoder. or decoder.; None if we have no such parameter
_NAMES: tuple[tuple[str, str | None], ...] = (
    (r"version|embed_positions\._float_tensor", None),
    (r"embed_out", r"output_projection.weight"),
    (r"gate_linear\.(weight|bias)", r"coefficients.0.projection.\1"),
    (r"alpha", r"coefficients.0.weight"),
    (r"history\.weight", r"scheme.weight"),
    (r"history\.layer_norms\.(\d+\.\w+)", r"scheme.norms.\1"),
    (
        r"layers\.(\d+)\.(self_attn|encoder_attn)\.relative_position_(keys|values)",
        r"layers.\1.\2.function.relative_\3.weight",
    ),
    (r"layers\.(\d+)\.(self_attn|encoder_attn)\.(in|out)_proj[._](\w+)", r"layers.\1.\2.function.\3_proj.\4"),
    (r"layers\.(\d+)\.(fc[12]\.\w+)", r"layers.\1.ffn.function.\2"),
    (r"layers\.(\d+)\.macaron_(fc[12]\.\w+)", r"layers.\1.ffn_down.function.\2"),
    (r"layers\.(\d+)\.macaron_layer_norm\.(\w+)", r"layers.\1.ffn_down.layer_norm.\2"),
    (r"layers\.(\d+)\.(self_attn|encoder_attn)_layer_norm\.(\w+)", r"layers.\1.\2.layer_norm.\3"),
    (r"output_layer\.reduction\.weights", r"reduction.projection.weight"),
    (r"output_layer\.reduction\.(layer_norm\.\w+)", r"reduction.\1"),
    (r"layers\.(\d+)\.final_layer_norm\.(\w+)", r"layers.\1.ffn.layer_norm.\2"),
    (r"(?:embed_tokens|embed_positions|layer_norm|project_(?:in|out)_dim)\.\w+", r"\g<0>"),
)
# The sub-layers of the numbered layer normalisations
_NUMBERED_NORMS = {"encoder": ("self_attn", "ffn", "ffn_down"), "decoder": ("self_attn", "encoder_attn", "ffn")}
# The sub-layers of a Reformer layer: all published architectures have this chain.
_CHAIN = "attn1d:dec+ffn2d:dec+attn1d:enc+ffn2d:enc"
_CHAIN_SUBLAYERS = ("self_attn_target", "ffn_target", "self_attn_source", "ffn_source")
_COMBINATIONS = {"add": "add", "cat": "concat"}
_REDUCTIONS = {"attn": "softmax", "max": "max"}
_SCHEMES = {1: "euler", 2: "rk2", 3: "rk3-released", 4: "rk4"}
_COEFFICIENTS = {"gate": "encoder.gate_linear.weight", "scalar": "encoder.alpha"}
_RK_TYPES = {"learnable": "gate", "initialization": "scalar"}
_HISTORIES = {None: "none", "dense": "dense", "learnable_dense": "dlcl"}

# Options that have the same name in both codes
_OF_STACKS = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads", "learned_pos", "normalize_before")
_COMMON_OPTIONS = (
    *(f"{stack}_{name}" for stack in ("encoder", "decoder") for name in _OF_STACKS),
    *("decoder_input_dim", "decoder_output_dim", "dropout", "attention_dropout", "max_source_positions"),
    *("max_target_positions", "no_token_positional_embeddings", "share_all_embeddings"),
    *("share_decoder_input_output_embed", "task", "source_lang", "target_lang", "left_pad_source", "left_pad_target"),
    *("data", "criterion", "label_smoothing", "seed"),
)  # fmt: skip


def convert_parameters(released: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return parameters, or their gradients, under our names.

    :raises UserError: a name belongs to none of the released models
    """
    macaron = _is_macaron(released)
    ours: dict[str, Tensor] = {}
    for name, tensor in released.items():
        stack, _, parameter = name.partition(".")
        renamed = _rename(stack, parameter)
        if renamed is None:
            continue
        if macaron:
            renamed = renamed.replace(".ffn.", ".ffn_up.")
        if renamed.startswith("coefficients."):  # a layer history contains the scheme that steps the layers
            has_history = any(released_name.startswith(f"{stack}.history.") for released_name in released)
            renamed = f"scheme.scheme.{renamed}" if has_history else f"scheme.{renamed}"
        name = f"{stack}.{renamed}"
        if ".encoder_attn.function.in_proj." in name:
            width = len(tensor) // 3
            ours[name.replace("in_proj", "q_proj")] = tensor[:width].clone()
            ours[name.replace("in_proj", "kv_proj")] = tensor[width:].clone()
        else:
            ours[name] = tensor
    return ours


def _is_macaron(released: Mapping[str, Tensor]) -> bool:
    return "encoder.layers.0.macaron_fc1.weight" in released


def _is_reformer(released: Mapping[str, Tensor]) -> bool:
    return "decoder.layers.0.sublayers.0.layer_norm.weight" in released


def _rename(stack: str, name: str) -> str | None:
    """Return our name of a released parameter, both without the stack; None if we have no such parameter."""
    if stack == "decoder" and (match := re.fullmatch(r"layers\.(\d+)\.sublayers\.([0-3])\.(.+)", name)):
        layer, number, parameter = match.groups()
        function = "" if parameter.startswith("layer_norm.") else "function."
        parameter = parameter.removeprefix("self_attn.").replace("in_proj_", "in_proj.")
        return f"layers.{layer}.{_CHAIN_SUBLAYERS[int(number)]}.{function}{parameter}"
    if stack in _NUMBERED_NORMS and (match := re.fullmatch(r"layers\.(\d+)\.layer_norms\.([012])\.(\w+)", name)):
        layer, number, kind = match.groups()
        return f"layers.{layer}.{_NUMBERED_NORMS[stack][int(number)]}.layer_norm.{kind}"
    for pattern, ours in _NAMES:
        if stack in _NUMBERED_NORMS and (match := re.fullmatch(pattern, name)):
            return None if ours is None else match.expand(ours)
    raise UserError(f"parameter {stack}.{name} belongs to none of the released models")


def _check_family(options: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> None:
    """Refuse models that compute something else than ours with the same parameter names."""
    # PolyNet, weight sharing over sub-layers, the Macaron of ODE Transformer's code, which halves only one network
    arch = options.get("arch")
    if "encoder.embed_tokens.weight" not in parameters or "decoder.embed_tokens.weight" not in parameters:
        raise UserError("has no encoder and decoder with embeddings; language models are not converted")
    families: tuple[str, ...] = ("ode_transformer", "dense_transformer", "transformer")
    if _is_macaron(parameters):
        families = ("transformer",)
    if _is_reformer(parameters):
        families = ("reformer",)
    steps = [name for name in ("enc_step", "enc_san_step", "enc_ffn_step") if name in options]
    both_halved = not _is_macaron(parameters) or bool(options.get("macaron"))
    if (arch is not None and not arch.startswith(families)) or steps or not both_halved:
        raise UserError(f"architecture {arch} is not converted; known are those of {', '.join(families)}")


def _supported(options: Mapping[str, Any], name: str, translations: Mapping[Any, Any], default: Any = None) -> Any:
    """Return our value of a released option: ``translations`` has them by the released ones."""
    value = options.get(name, default)
    if value not in translations:
        raise UserError(f"{name} {value!r} is not supported; known are {', '.join(map(str, translations))}")
    return translations[value]


def convert_options(released: argparse.Namespace, parameters: Mapping[str, Tensor]) -> argparse.Namespace:
    """Return our options for the model that the released options describe.

    :param parameters: the released parameters, which show the model's coefficients
    :raises UserError: a part of the model does not exist here
    """
    options = vars(released)
    _check_family(options, parameters)
    _supported(options, "adaptive_softmax_cutoff", {None: None})
    _supported(options, "dec_calculate_num", {1: 1}, 1)
    ours = {name: options[name] for name in _COMMON_OPTIONS if name in options}
    for stack in ("encoder", "decoder"):
        ours[f"{stack}_layer_history"] = _supported(options, f"{stack}_history_type", _HISTORIES)
        if ours[f"{stack}_layer_history"] == "dense":
            _supported(options, f"{stack}_integration_type", {"avg": None}, "avg")
    scheme = _supported(options, "enc_calculate_num", _SCHEMES, 1)
    learned = [name for name, key in _COEFFICIENTS.items() if key in parameters]
    expected = _RK_TYPES.get(str(options.get("rk_type"))) if scheme == "rk2" else None
    if learned != ([expected] if expected else []):
        raise UserError(
            f"rk_type {options.get('rk_type')!r} does not fit its parameters: coefficients {learned or 'none'}"
        )
    arch_options: dict[str, Any] = {"arch": "ode_transformer_euler"}
    if _is_reformer(parameters):
        arch_options = _reformer_options(options, parameters)
    if macaron := _is_macaron(parameters):
        for stack in ("encoder", "decoder"):
            ours[f"{stack}_ffn_embed_dim"] *= 2  # the released number is the size of one of the two networks
    return argparse.Namespace(
        **(ours | arch_options),
        layer_splitting="strang" if macaron else "lie-trotter",
        encoder_ode_scheme=scheme,
        decoder_ode_scheme="euler",
        ode_coefficients=learned[0] if learned else "tableau",
        ode_share_coefficients=bool(learned),
        ode_function="layer-output",
        activation_dropout=options.get("relu_dropout", 0.0),
        max_relative_positions=max(0, options.get("max_relative_length", -1)),
        relative_values=any(name.endswith("relative_position_values") for name in parameters),
        # The released number is the share of words that are not zeroed.
        word_dropout_prob=1 - options["word_dropout"] if options.get("use_word_dropout") else 0.0,
    )


def _reformer_options(options: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return our options for the parts of Reformer that the other models do not have."""
    _supported(options, "layer_chain", {_CHAIN: None})
    _supported(options, "src_tgt_embed", {False: None})
    prenet = {name.split(".")[2] for name in parameters if name.startswith("encoder.layers.")}
    return {
        "arch": "reformer_fast" if prenet else "reformer_base",
        "encoder_layers": len(prenet),
        "joint_input": "released",
        "joint_combination": _supported(options, "decoder_input_layer", _COMBINATIONS),
        "joint_reduction": _supported(options, "decoder_output_layer", _REDUCTIONS),
    }


def convert_checkpoint(released: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a released checkpoint to one of this package; the optimizer's state is left out.

    :param released: result of :func:`ode_transformer.checkpoints.reading.load_checkpoint`
    :raises UserError: it belongs to none of the released models, or its parameters do not fit its options
    """
    parameters = convert_parameters(released["model"])
    options = convert_options(released["args"], released["model"])
    kind = model_kind(vars(options))
    vars(options).update(model_options(vars(options), kind), ode_options_saved=True)
    if options.share_all_embeddings or options.share_decoder_input_output_embed:
        parameters["decoder.output_projection.weight"] = parameters["decoder.embed_tokens.weight"]
    source, target = (len(parameters[f"{stack}.embed_tokens.weight"]) for stack in ("encoder", "decoder"))
    model = build_plain_model({"args": options, "model": parameters}, source, target)
    for name, tensor in model.state_dict().items():  # those that only our model has
        if name.endswith((".version", "._extra_state", "._float_tensor")):
            parameters[name] = tensor
    return {
        "args": options,
        "model": parameters,
        "optimizer_history": [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 0}},
        "last_optimizer_state": None,
    }
