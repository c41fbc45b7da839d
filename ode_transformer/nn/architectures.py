"""The architectures of the papers: sizes and options by name.

An architecture is a mapping of options under the names of their flags, such as ``encoder_layers`` for
``--encoder-layers``; what it leaves open has the defaults of its kind of model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.depth_wise_lstm import LSTM
from ode_transformer.nn.model_choice import ModelChoice
from ode_transformer.nn.model_options import read_choices, read_grid, read_sizes
from ode_transformer.nn.sizes import GridChoice, TransformerSizes

# Options of layers as in the Transformer of 2017.
NO_HISTORY: dict[str, Any] = {"encoder_layer_history": "none", "decoder_layer_history": "none"}
PLAIN_LAYERS = {"max_relative_positions": 0} | NO_HISTORY

# Options by the scheme in an architecture's name (ODE Transformer 2022, section 3). There "rk2" is the RK2-block with
# learnable γ_i, which is the scheme rk2 (Heun's) with the learned gate; RK4 keeps the coefficients of its tableau.
# PCformer and IIET read all earlier layers themselves, so that they have no layer history. For translation PCformer's
# released code predicts with RK4's stages, for language models with RK2's; all its layers share one α. "ones" is ours:
# RK2 with both coefficients 1, each layer applied twice, and no layer history, so that ode-transformer export takes it.
# "normalized" is an Euler step of normalised length (Peri-LN, Kim et al. 2025), which learns fastest in a few minutes.
SCHEME_OPTIONS: dict[str, dict[str, Any]] = {
    "euler": {"encoder_ode_scheme": "euler"},
    "normalized": {"encoder_ode_scheme": "euler", "ode_normalize_step": True},
    "rk2": {"encoder_ode_scheme": "rk2", "ode_coefficients": "gate"},
    "ones": {"encoder_ode_scheme": "rk2", "ode_coefficients": "ones"} | NO_HISTORY,
    "rk4": {"encoder_ode_scheme": "rk4"},
    "pcformer": {
        "encoder_ode_scheme": "pcformer4",
        "ode_coefficients": "ema",
        "ode_share_coefficients": True,
        "encoder_layer_history": "none",
    },
    "iiet": {"encoder_ode_scheme": "iiet", "encoder_layer_history": "none"},
}
LANGUAGE_MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    name: {option.replace("encoder", "decoder"): value for option, value in options.items()}
    for name, options in SCHEME_OPTIONS.items()
}
LANGUAGE_MODEL_OPTIONS["pcformer"]["decoder_ode_scheme"] = "pcformer2"


def stack_sizes(
    dim: int, inner_dim: int, heads: int, *, encoder: int | None = None, decoder: int | None = None, **options: Any
) -> dict[str, Any]:
    """Return the size options of a model whose stacks have equal layers."""
    sizes: dict[str, Any] = {}
    for stack, layers in (("encoder", encoder), ("decoder", decoder)):
        if layers is not None:
            sizes |= {f"{stack}_embed_dim": dim, f"{stack}_ffn_embed_dim": inner_dim}
            sizes |= {f"{stack}_attention_heads": heads, f"{stack}_layers": layers}
    return sizes | options


# Sizes of translation models by the suffix of their architecture's name.
TRANSLATION_SIZES: dict[str, dict[str, Any]] = {
    "": stack_sizes(512, 2048, 8, encoder=6, decoder=6),
    "_tiny": stack_sizes(128, 256, 4, encoder=4, decoder=4),
    "_iwslt_de_en": stack_sizes(512, 1024, 4, encoder=6, decoder=6),
    "_wmt_en_de": stack_sizes(512, 2048, 8, encoder=6, decoder=6),
    "_wmt_en_de_deep": stack_sizes(512, 2048, 8, encoder=24, decoder=6),
    "_wmt_en_de_big": stack_sizes(1024, 4096, 16, encoder=6, decoder=6, dropout=0.3),
    "_wmt_en_de_big_deep": stack_sizes(1024, 4096, 16, encoder=12, decoder=6, dropout=0.3),
    "_small_18": stack_sizes(256, 1024, 4, encoder=18, decoder=6),  # 2022, Table 3, which does not state the heads
    "_small_28": stack_sizes(256, 1024, 4, encoder=28, decoder=6),
}


# Macaron Net (Lu et al. 2019): layers are a Strang–Marchuk splitting. The inner size given is that of a Transformer
# layer; each of a Macaron layer's two feed-forward networks has half of it.
MACARON_OPTIONS: dict[str, Any] = {"layer_splitting": "strang", **PLAIN_LAYERS}
MACARON_SIZES = {suffix: TRANSLATION_SIZES[suffix] for suffix in ("", "_tiny", "_wmt_en_de", "_wmt_en_de_big")} | {
    # 4.1: the inner size is four times the width in all settings
    "_iwslt_de_en": stack_sizes(512, 2048, 4, encoder=6, decoder=6),
    "_iwslt_de_en_released": TRANSLATION_SIZES["_iwslt_de_en"],
}

# Depth-wise LSTM (Xu et al. 2020): attention layers connected by an LSTM over depth. In the paper's sizes the hidden
# computation is as wide as a Transformer's feed-forward network and its input is twice as wide, so that a model of base
# size has 36% more parameters outside the embeddings than its baseline. dlstm_matched* have as many as the baseline.
DLSTM_OPTIONS: dict[str, Any] = {
    "encoder_ode_scheme": LSTM,
    "decoder_ode_scheme": LSTM,
    "activation_fn": "gelu",
    # The LSTM normalises its input; gradients stay even without further normalisation (docs/depth_wise_lstm.md).
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    **PLAIN_LAYERS,
}
_DLSTM_NAMES = ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")
DLSTM_SIZES = {suffix: TRANSLATION_SIZES[suffix] for suffix in _DLSTM_NAMES}


def matched_inner_dim(size: dict[str, Any]) -> int:
    """Return the inner size f', a multiple of 8, that gives the layers as many parameters as a Transformer's.

    With M and N layers, of 4(d² + d) parameters in an attention and 2d in a normalisation:

        Transformer       M attentions + 2N attentions + (M + N)(2df + f + d) + (2M + 3N) normalisations
        depth-wise LSTM   M attentions + 2N attentions + (M + N)(3df' + 3f' + d) + 2(6d² + 9d)
    """
    d, f = size["encoder_embed_dim"], size["encoder_ffn_embed_dim"]
    encoder, decoder = size["encoder_layers"], size["decoder_layers"]
    layers = encoder + decoder
    available = layers * (2 * d * f + f) + (2 * encoder + 3 * decoder) * 2 * d - 2 * (6 * d * d + 9 * d)
    return 8 * round(available / (layers * (3 * d + 3)) / 8)


# Options of every architecture of this model. The input is the released code's, because Eq. 4 as printed learns slower
# (docs/reformer.md); fairseq's default dropout of 0.1 is the paper's, the other rates are those released for IWSLT.
REFORMER_OPTIONS: dict[str, Any] = {
    "joint_input": "released",
    "joint_combination": "add",
    "joint_reduction": "softmax",
    "joint_dropout": "shared",
    "max_joint_cells": 131_072,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    **PLAIN_LAYERS,
}


def reformer_sizes(
    dim: int, inner_dim: int, heads: int, base: int, fast: int, **options: Any
) -> dict[str, dict[str, Any]]:
    """Return the sizes of a Reformer-base and a Reformer-fast.

    :param base: joint layers of Reformer-base, which has no PreNet
    :param fast: joint layers of Reformer-fast, and layers of its PreNet
    """
    return {
        "base": stack_sizes(dim, inner_dim, heads, encoder=0, decoder=base, **options),
        "fast": stack_sizes(dim, inner_dim, heads, encoder=fast, decoder=fast, **options),
    }


_NIST_DROPOUTS = {"attention_dropout": 0.1, "activation_dropout": 0.1}  # as released
REFORMER_SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "_tiny": reformer_sizes(128, 256, 4, 4, 3),
    "_iwslt_de_en": reformer_sizes(256, 1024, 4, 7, 5),
    "_nist_zh_en": reformer_sizes(512, 2048, 8, 7, 5, **_NIST_DROPOUTS),
    # Scaled by single-shot gradients with β = 2: two layers more, and the inner size times 1.5 (5.3).
    "_iwslt_de_en_scaled": {"fast": stack_sizes(256, 1536, 4, encoder=7, decoder=7)},
    "_nist_zh_en_scaled": {"fast": stack_sizes(512, 3072, 8, encoder=7, decoder=7, dropout=0.2, **_NIST_DROPOUTS)},
}


BERT_SIZES = {"base": stack_sizes(768, 3072, 12, encoder=12), "tiny": stack_sizes(128, 256, 4, encoder=4)}


@dataclass(frozen=True)
class Architecture:
    """A named architecture.

    :param model: its model: ``ode_transformer``, ``ode_transformer_lm``, ``reformer`` or ``ode_bert``
    :param options: what the name says of it
    """

    model: str
    options: Mapping[str, Any]


# Kind of task, and stacks, of each model
MODELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ode_transformer": ("translation", ("encoder", "decoder")),
    "reformer": ("translation", ("encoder", "decoder")),
    "ode_transformer_lm": ("language_modeling", ("decoder",)),
    "ode_bert": ("masked_lm", ("encoder",)),
}


def _architectures() -> dict[str, Architecture]:
    named: dict[str, Architecture] = {}
    for scheme, options in LANGUAGE_MODEL_OPTIONS.items():
        named[f"ode_transformer_lm_{scheme}"] = Architecture("ode_transformer_lm", {"decoder_layers": 1, **options})
    for scheme, options in SCHEME_OPTIONS.items():
        for suffix, size in TRANSLATION_SIZES.items():
            named[f"ode_transformer_{scheme}{suffix}"] = Architecture("ode_transformer", {**size, **options})
    for suffix, size in MACARON_SIZES.items():
        named[f"macaron{suffix}"] = Architecture("ode_transformer", {**size, **MACARON_OPTIONS})
    for suffix, size in DLSTM_SIZES.items():
        named[f"dlstm{suffix}"] = Architecture("ode_transformer", {**size, **DLSTM_OPTIONS})
        inner_dim = matched_inner_dim(size)
        matched = size | {"encoder_ffn_embed_dim": inner_dim, "decoder_ffn_embed_dim": inner_dim}
        named[f"dlstm_matched{suffix}"] = Architecture("ode_transformer", {**matched, **DLSTM_OPTIONS})
    for suffix, kinds in (REFORMER_SIZES | {"": REFORMER_SIZES["_nist_zh_en"]}).items():
        for kind, size in kinds.items():
            named[f"reformer_{kind}{suffix}"] = Architecture("reformer", {**REFORMER_OPTIONS, **size})
    fast = REFORMER_SIZES["_nist_zh_en"]["fast"]
    named["reformer"] = Architecture("reformer", {**REFORMER_OPTIONS, **fast})
    for model, splitting in (("ode_bert", "lie-trotter"), ("macaron_bert", "strang")):
        for name, size in BERT_SIZES.items():
            named[f"{model}_{name}"] = Architecture("ode_bert", {"layer_splitting": splitting, **size})
    return named


ARCHITECTURES = _architectures()


def complete_options(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the defaults of a model in the place of what is open.

    :param model: a key of ``MODELS``
    """
    defaults = _BERT_DEFAULTS if model == "ode_bert" else _TRANSFORMER_DEFAULTS
    complete = {**DEPTH_DEFAULTS, **defaults, **options}
    for stack in MODELS[model][1]:
        complete.setdefault(f"{stack}_normalize_before", not complete["post_norm"])
    if model == "ode_bert":
        # Sinusoids reach 1, BERT's embeddings start at 0.02: without the factor √d positions would drown the words.
        complete.setdefault("no_scale_embedding", complete["encoder_learned_pos"])
    return complete


# Defaults of the flags that all our models have: those of a short flag of depth, and the others.
DEPTH_DEFAULTS: dict[str, Any] = {
    **{option.dest(): option.default for option in DepthChoice.options().values() if not option.own_flag_only},
    **{option.dest(): option.default for option in ModelChoice.options().values()},
    "encoder_ode_scheme": DepthChoice().scheme,
    "ode_options_saved": False,  # True where a checkpoint is read, whose model may use another scheme
}
# Those of our Transformers, in the size of WMT's base model, and of our BERT models
_TRANSFORMER_DEFAULTS: dict[str, Any] = {
    "decoder_ode_scheme": "euler",
    "max_relative_positions": 8,
    "encoder_layer_history": "dlcl",
    "decoder_layer_history": "dlcl",
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
}
_BERT_DEFAULTS: dict[str, Any] = {
    "encoder_layer_history": "none",
    "encoder_learned_pos": False,
    "layernorm_embedding": False,
    "layer_norm_without_affine": False,
    "checkpoint_activations": False,
    "attention_dropout": 0.1,
    "activation_fn": "gelu",
    "pooler_dropout": 0.1,
}


def read_architecture(
    name: str, kind: str, vocabulary: int, target_vocabulary: int | None = None
) -> tuple[TransformerSizes, dict[str, DepthChoice], GridChoice | None]:
    """Return the sizes of a named architecture, the choice of each stack, and the options of its grid if it has one.

    :param kind: of its task, as in ``MODELS``
    :raises ValueError: there is no such architecture
    """
    architecture = ARCHITECTURES.get(name)
    if architecture is None or MODELS[architecture.model][0] != kind:
        names = [known for known, other in ARCHITECTURES.items() if MODELS[other.model][0] == kind]
        similar = ", ".join(get_close_matches(name, names, cutoff=0))
        raise ValueError(
            f"{name}: no architecture for {kind}; similar names are {similar} (all: {__name__}.ARCHITECTURES)"
        )
    options = complete_options(architecture.model, architecture.options)
    sizes = read_sizes(options, vocabulary, target_vocabulary)
    grid = read_grid(options) if architecture.model == "reformer" else None
    return sizes, read_choices(options, MODELS[architecture.model][1]), grid
