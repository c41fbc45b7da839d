"""``ode-transformer convert``: checkpoints of the authors' released code, under the names of this package.

The released codes (libeineu/ODE-Transformer, zhuohan123/macaron-net and lyy1994/reformer, all on fairseq 0.6) keep the
three projections of an attention in one matrix and number the layer normalisations of an encoder layer; ODE Transformer
shares one set of coefficients over the encoder. What they compute is chosen here by flags: F is the whole layer
(``--ode-function layer-output``), a Macaron layer is ``--layer-splitting strang``, Reformer adds its positions by
``--joint-input released``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ode_transformer.support.checkpoint_file import load_checkpoint, save_checkpoint
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_writable

# Released name -> ours, both after encoder. or decoder.; None where it is no parameter of ours.
_RENAMED: tuple[tuple[str, str | None], ...] = (
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
    (r"layers\.(\d+)\.(self_attn|encoder_attn)\.(in_proj_\w+|out_proj\.\w+)", r"layers.\1.\2.function.\3"),
    (r"layers\.(\d+)\.(fc[12]\.\w+)", r"layers.\1.ffn.function.\2"),
    (r"layers\.(\d+)\.macaron_(fc[12]\.\w+)", r"layers.\1.ffn_down.function.\2"),
    (r"layers\.(\d+)\.macaron_layer_norm\.(\w+)", r"layers.\1.ffn_down.layer_norm.\2"),
    (r"layers\.(\d+)\.(self_attn|encoder_attn)_layer_norm\.(\w+)", r"layers.\1.\2.layer_norm.\3"),
    (r"output_layer\.reduction\.weights", r"reduction.projection.weight"),
    (r"output_layer\.reduction\.(layer_norm\.\w+)", r"reduction.\1"),
    (r"layers\.(\d+)\.final_layer_norm\.(\w+)", r"layers.\1.ffn.layer_norm.\2"),
    (r"(?:embed_tokens|embed_positions|layer_norm|project_(?:in|out)_dim)\.\w+", r"\g<0>"),
)
# Which sub-layer a numbered layer normalisation belongs to.
_NUMBERED = {"encoder": ("self_attn", "ffn", "ffn_down"), "decoder": ("self_attn", "encoder_attn", "ffn")}
# The sub-layers of a Reformer layer: the only chain that its published architectures have.
_CHAIN = "attn1d:dec+ffn2d:dec+attn1d:enc+ffn2d:enc"
_CHAINED = ("self_attn_target", "ffn_target", "self_attn_source", "ffn_source")
_COMBINATIONS = {"add": "add", "cat": "concat"}
_REDUCTIONS = {"attn": "softmax", "max": "max"}
_SCHEMES = {1: "euler", 2: "rk2", 3: "rk3-released", 4: "rk4"}
_COEFFICIENTS = {"gate": "encoder.gate_linear.weight", "scalar": "encoder.alpha"}
_RK_TYPES = {"learnable": "gate", "initialization": "scalar"}
_HISTORIES = {None: "none", "dense": "dense", "learnable_dense": "dlcl"}

# Options that both codes have, under one name.
_KEPT = (
    *(f"{stack}_{name}" for stack in ("encoder", "decoder") for name in
      ("embed_dim", "ffn_embed_dim", "layers", "attention_heads", "learned_pos", "normalize_before")),
    *("decoder_input_dim", "decoder_output_dim", "dropout", "attention_dropout", "max_source_positions"),
    *("max_target_positions", "no_token_positional_embeddings", "share_all_embeddings"),
    *("share_decoder_input_output_embed", "task", "source_lang", "target_lang", "left_pad_source", "left_pad_target"),
    *("data", "criterion", "label_smoothing", "seed"),
)  # fmt: skip


def convert_parameters(released: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters, or their gradients, under our names.

    :raises UserError: if a name is none of the released models
    """
    macaron = _is_macaron(released)
    ours: dict[str, Tensor] = {}
    for name, tensor in released.items():
        stack, _, rest = name.partition(".")
        renamed = _rename(stack, rest)
        if renamed is None:
            continue
        if macaron:
            renamed = renamed.replace(".ffn.", ".ffn_up.")
        if renamed.startswith("coefficients."):  # a layer history holds the scheme that steps the layers
            inside = any(other.startswith(f"{stack}.history.") for other in released)
            renamed = f"scheme.scheme.{renamed}" if inside else f"scheme.{renamed}"
        if match := re.search(r"\.in_proj_(weight|bias)$", renamed):
            for part, block in zip("qkv", tensor.chunk(3), strict=True):
                ours[f"{stack}.{renamed[: match.start()]}.{part}_proj.{match[1]}"] = block.clone()
        else:
            ours[f"{stack}.{renamed}"] = tensor
    return ours


def _is_macaron(released: Mapping[str, Tensor]) -> bool:
    return "encoder.layers.0.macaron_fc1.weight" in released


def _is_reformer(released: Mapping[str, Tensor]) -> bool:
    return "decoder.layers.0.sublayers.0.layer_norm.weight" in released


def _rename(stack: str, rest: str) -> str | None:
    if stack == "decoder" and (chained := re.fullmatch(r"layers\.(\d+)\.sublayers\.([0-3])\.(.+)", rest)):
        layer, number, parameter = chained.groups()
        function = "" if parameter.startswith("layer_norm.") else "function."
        return f"layers.{layer}.{_CHAINED[int(number)]}.{function}{parameter.removeprefix('self_attn.')}"
    if stack in _NUMBERED and (numbered := re.fullmatch(r"layers\.(\d+)\.layer_norms\.([012])\.(\w+)", rest)):
        layer, number, kind = numbered.groups()
        return f"layers.{layer}.{_NUMBERED[stack][int(number)]}.layer_norm.{kind}"
    for pattern, ours in _RENAMED:
        if stack in _NUMBERED and (match := re.fullmatch(pattern, rest)):
            return None if ours is None else match.expand(ours)
    raise UserError(f"parameter {stack}.{rest} is none of the released models")


def _check_family(given: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> None:
    """Refuses released models that share our names and compute something else, which the names cannot tell.

    :raises UserError: PolyNet, weight sharing over sub-layers, a language model, Macaron as ODE Transformer's authors
        copied it (only its first network is halved there), or any other architecture
    """
    arch = given.get("arch")
    if "encoder.embed_tokens.weight" not in parameters or "decoder.embed_tokens.weight" not in parameters:
        raise UserError("has no encoder and decoder with embeddings; language models are not converted")
    families: tuple[str, ...] = ("ode_transformer", "dense_transformer", "transformer")
    if _is_macaron(parameters):
        families = ("transformer",)
    if _is_reformer(parameters):
        families = ("reformer",)
    steps = [name for name in ("enc_step", "enc_san_step", "enc_ffn_step") if name in given]
    halved = not _is_macaron(parameters) or bool(given.get("macaron"))
    if (arch is not None and not arch.startswith(families)) or steps or not halved:
        raise UserError(f"architecture {arch} is not converted; known are those of {', '.join(families)}")


def convert_options(released: argparse.Namespace, parameters: Mapping[str, Tensor]) -> argparse.Namespace:
    """Our options for the model that the released options describe.

    :param parameters: the released ones: they tell which coefficients the model has
    :raises UserError: if a part of the model is none of ours
    """
    given = vars(released)
    _check_family(given, parameters)
    if given.get("adaptive_softmax_cutoff") is not None:
        raise UserError("adaptive_softmax_cutoff is not supported")
    ours = {name: given[name] for name in _KEPT if name in given}
    for stack in ("encoder", "decoder"):
        history = given.get(f"{stack}_history_type")
        if history not in _HISTORIES:
            raise UserError(f"{stack}_history_type {history!r} is not supported; known are dense, learnable_dense")
        if history == "dense" and given.get(f"{stack}_integration_type", "avg") != "avg":
            raise UserError(
                f"{stack}_integration_type {given[f'{stack}_integration_type']!r} is not supported, only avg"
            )
        ours[f"{stack}_layer_history"] = _HISTORIES[history]
    evaluations = given.get("enc_calculate_num", 1)
    if evaluations not in _SCHEMES:
        raise UserError(f"enc_calculate_num {evaluations} is not supported; known are {', '.join(map(str, _SCHEMES))}")
    if given.get("dec_calculate_num", 1) != 1:
        raise UserError(f"dec_calculate_num {given['dec_calculate_num']} is not supported, only 1")
    learned = [name for name, key in _COEFFICIENTS.items() if key in parameters]
    expected = _RK_TYPES.get(given.get("rk_type")) if evaluations == 2 else None
    if learned != ([expected] if expected else []):
        raise UserError(
            f"rk_type {given.get('rk_type')!r} does not fit its parameters: coefficients {learned or 'none'}"
        )
    more: dict[str, Any] = {"arch": "ode_transformer_euler"}
    if _is_reformer(parameters):
        more = _reformer_options(given, parameters)
    if macaron := _is_macaron(parameters):
        for stack in ("encoder", "decoder"):
            ours[f"{stack}_ffn_embed_dim"] *= 2  # the released number is that of one of the two
    return argparse.Namespace(
        **(ours | more),
        layer_splitting="strang" if macaron else "lie-trotter",
        encoder_ode_scheme=_SCHEMES[evaluations],
        decoder_ode_scheme="euler",
        ode_coefficients=learned[0] if learned else "tableau",
        ode_share_coefficients=bool(learned),
        ode_function="layer-output",
        activation_dropout=given.get("relu_dropout", 0.0),
        max_relative_positions=max(0, given.get("max_relative_length", -1)),
        relative_values=any(name.endswith("relative_position_values") for name in parameters),
        # The released number is the share of words that are kept.
        word_dropout_prob=1 - given["word_dropout"] if given.get("use_word_dropout") else 0.0,
    )


def _reformer_options(given: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """Our options for the parts of Reformer that the other models do not have.

    :raises UserError: if a part is none of ours
    """
    for name, known in (
        ("layer_chain", {_CHAIN: None}),
        ("decoder_input_layer", _COMBINATIONS),
        ("decoder_output_layer", _REDUCTIONS),
        ("src_tgt_embed", {False: None}),
    ):
        if given.get(name) not in known:
            raise UserError(f"{name} {given.get(name)!r} is not supported; known are {', '.join(map(str, known))}")
    prenet = {name.split(".")[2] for name in parameters if name.startswith("encoder.layers.")}
    return {
        "arch": "reformer_fast" if prenet else "reformer_base",
        "encoder_layers": len(prenet),
        "joint_input": "released",
        "joint_combination": _COMBINATIONS[given["decoder_input_layer"]],
        "joint_reduction": _REDUCTIONS[given["decoder_output_layer"]],
    }


def convert_checkpoint(released: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint of ours with the parameters and options of a released one; without its optimizer's state.

    :param released: what :func:`ode_transformer.support.checkpoint_file.load_checkpoint` returned
    :raises UserError: if it is none of the released models
    """
    options = released.get("args")
    if not isinstance(options, argparse.Namespace):
        raise UserError("no options (args) of a released model; is it a checkpoint of another code?")
    parameters = convert_parameters(released["model"])
    ours = convert_options(options, released["model"])
    _complete(parameters, ours)
    return {
        "args": ours,
        "model": parameters,
        "optimizer_history": [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 0}},
        "last_optimizer_state": None,
    }


def _complete(parameters: dict[str, Tensor], options: argparse.Namespace) -> None:
    """Adds what our model has beside them, and makes sure that they fit: in number, names and shapes."""
    import ode_transformer.models  # noqa: F401  (registers the architectures)
    from ode_transformer.models.model_from_options import build_from_options

    options.ode_options_saved = True  # they come from a checkpoint: its model may be given another scheme
    embeddings = parameters["encoder.embed_tokens.weight"], parameters["decoder.embed_tokens.weight"]
    try:
        model = build_from_options(options, *(len(matrix) for matrix in embeddings))
    except ValueError as error:
        raise UserError(f"describes a model that cannot be: {error}") from error
    if options.share_all_embeddings or options.share_decoder_input_output_embed:
        parameters["decoder.output_projection.weight"] = parameters["decoder.embed_tokens.weight"]
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name.endswith((".version", "._extra_state", "._float_tensor")):
            parameters[name] = tensor
    if strays := sorted(expected.keys() ^ parameters.keys()):
        which = "lacks" if strays[0] in expected else "has besides"
        raise UserError(f"does not fit the model that its options describe: {which} {strays[0]}")
    for name, tensor in expected.items():
        if parameters[name].shape != tensor.shape:
            shapes = f"{tuple(parameters[name].shape)}, not {tuple(tensor.shape)}"
            raise UserError(f"does not fit the model that its options describe: {name} is {shapes}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer convert``."""
    parser.add_argument("released", type=Path, metavar="FILE", help="checkpoint that the authors' code wrote")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="where to write ours")


def run(args: argparse.Namespace) -> int:
    """Convert one checkpoint and say what it is."""
    check_writable(args.output)
    try:
        converted = convert_checkpoint(load_checkpoint(args.released))
    except UserError as error:
        raise UserError(f"{args.released}: {str(error).removeprefix(f'{args.released}: ')}") from error
    save_checkpoint(converted, args.output)
    options = converted["args"]
    print(
        f"{args.output}: {options.encoder_ode_scheme} with coefficients {options.ode_coefficients}, function "
        f"{options.ode_function}, layer history {options.encoder_layer_history} and {options.decoder_layer_history}, "
        f"{sum(tensor.numel() for tensor in converted['model'].values()):,} numbers"
    )
    return 0
