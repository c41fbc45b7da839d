"""Systems that ``speed.py`` measures, sizes that they share, and comparisons between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

MEASURES = ("train", "decode", "memory")


@dataclass(frozen=True)
class System:
    """An architecture, its options beside the common sizes, and the measures that make sense for it.

    :param export: numbers of the weights with which CTranslate2 decodes it, as for ``ode-transformer export
        --quantization``; None for PyTorch
    :param int8: decodes with its linear maps in int8, as ``ode-transformer translate --int8`` does
    :param graphs: decodes by CUDA graphs, as ``ode-transformer translate`` does
    :param recorded: trains by CUDA graphs, as ``--cuda-graphs`` of fairseq-train does
    :param fused: trains with ``fused_adam`` and ``fused_label_smoothed_cross_entropy``, as recipes do
    """

    arch: str
    options: dict[str, Any] = field(default_factory=dict)
    measures: tuple[str, ...] = MEASURES
    export: str | None = None
    fused: bool = True
    int8: bool = False
    graphs: bool = False
    recorded: bool = False


def _fairseq(layers: int) -> System:
    pre_norm = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    return System("transformer", {"encoder_layers": layers} | pre_norm, fused=False)


def _ode_transformer(layers: int, scheme: str = "euler", **options: Any) -> System:
    """Return a system with fixed coefficients, relative positions (k = 8) and DLCL unless ``options`` change them."""
    return System("ode_transformer_euler", {"encoder_layers": layers, "encoder_ode_scheme": scheme} | options)


def _reformer_base(**options: Any) -> System:
    return System("reformer_base", {"encoder_layers": 0, "decoder_layers": 7} | options)


_PLAIN: dict[str, Any] = {"max_relative_positions": 0, "encoder_layer_history": "none", "decoder_layer_history": "none"}
_STEPS: dict[str, dict[str, Any]] = {
    "normalized": {"ode_normalize_step": True},
    "heavy-ball": {"scheme": "heavy-ball", "decoder_ode_scheme": "heavy-ball", "ode_normalize_step": True},
    "nesterov": {"scheme": "nesterov", "decoder_ode_scheme": "nesterov", "ode_normalize_step": True},
    "nesterov-plain": {"scheme": "nesterov", "decoder_ode_scheme": "nesterov"},
    "learned-length": {"encoder_ode_coefficients": "vector", "decoder_ode_coefficients": "vector"},
}

# Numbers in names count the encoder's layers; Reformers have a number of joint layers.
SYSTEMS: dict[str, System] = {
    "fairseq-3": _fairseq(3),
    "fairseq-6": _fairseq(6),
    "fairseq-12": _fairseq(12),
    "fairseq-24": _fairseq(24),
    "euler-6-plain": _ode_transformer(6, **_PLAIN),
    **{f"{name}-6": _ode_transformer(6, **_PLAIN, **options) for name, options in _STEPS.items()},
    "euler-6": _ode_transformer(6),
    "euler-12": _ode_transformer(12),
    "euler-24": _ode_transformer(24),
    "euler-6-unfused": replace(_ode_transformer(6), measures=("train",), fused=False),
    "rk2-3": _ode_transformer(3, "rk2"),
    "rk2-6": _ode_transformer(6, "rk2"),
    "rk2-gate-6": System("ode_transformer_rk2", {"encoder_layers": 6}),
    "rk2-gate-6-int8": System("ode_transformer_rk2", {"encoder_layers": 6}, ("decode",), int8=True),
    "rk4-6": _ode_transformer(6, "rk4"),
    "rk4-6-recompute": System(
        "ode_transformer_rk4", {"encoder_layers": 6, "checkpoint_activations": True}, ("train", "memory")
    ),
    **{
        f"{name}-6-recorded": replace(_ode_transformer(6, name), measures=("train",), recorded=True)
        for name in ("euler", "rk2", "rk4")
    },
    **{
        f"{name}-6-graphs": replace(_ode_transformer(6, name), measures=("decode",), graphs=True)
        for name in ("euler", "rk2", "rk4")
    },
    "marian-6": System("marian", {"encoder_layers": 6}, ("train", "decode"), fused=False),
    "dlstm-6": System("dlstm", {"encoder_layers": 6}),
    # What CTranslate2 can express: without DLCL.
    "ones-6": System("ode_transformer_ones", {"encoder_layers": 6}, ("decode",)),
    "ones-6-ctranslate2": System("ode_transformer_ones", {"encoder_layers": 6}, ("decode",), "float32"),
    "ones-6-ctranslate2-int8": System("ode_transformer_ones", {"encoder_layers": 6}, ("decode",), "int8"),
    # The joint layers of Reformer's paper, whose matrices are as many as those of a Transformer with 6-6 layers.
    "reformer-fast-5": System("reformer_fast", {"encoder_layers": 5, "decoder_layers": 5}),
    "reformer-base-7": _reformer_base(),
    "reformer-base-7-independent": _reformer_base(joint_dropout="independent"),
}

# measure -> system and baseline: ratios of training times, of decoding speeds, of peaks of memory
COMPARISONS = {
    "train": (
        *("rk2-3/fairseq-3", "euler-6/fairseq-6", "euler-6-plain/fairseq-6", "euler-6/euler-6-unfused"),
        *("rk2-6/fairseq-12", "rk2-gate-6/fairseq-12", "rk4-6/fairseq-24", "euler-24/fairseq-24"),
        *("euler-6-recorded/fairseq-6", "rk2-6-recorded/fairseq-12", "rk4-6-recorded/fairseq-24"),
        *(
            "euler-6-recorded/marian-6",
            "marian-6/fairseq-6",
            "euler-6-recorded/euler-6",
            "rk2-6/euler-6",
            "rk2-6/euler-12",
            "rk2-gate-6/euler-12",
            "rk4-6/euler-24",
        ),
        *("rk4-6-recompute/rk4-6", "dlstm-6/euler-6-plain", "reformer-fast-5/fairseq-6"),
        *(f"{name}-6/euler-6-plain" for name in _STEPS),
    ),
    "decode": (
        *("euler-6/fairseq-6", "rk2-6/fairseq-6", "rk4-6/fairseq-6", "ones-6/fairseq-6", "rk2-6/euler-6"),
        *("marian-6/fairseq-6", "euler-6-graphs/fairseq-6", "rk2-6-graphs/fairseq-6", "rk4-6-graphs/fairseq-6"),
        *("rk4-6/euler-6", "rk2-gate-6-int8/rk2-gate-6", "ones-6-ctranslate2/fairseq-6", "dlstm-6/euler-6-plain"),
        *("ones-6-ctranslate2-int8/fairseq-6", "reformer-fast-5/fairseq-6", "reformer-base-7/fairseq-6"),
    ),
    "memory": (
        *("rk2-6/fairseq-12", "rk2-6/euler-12", "rk4-6/fairseq-24", "rk4-6/euler-24"),
        *("rk4-6-recompute/rk4-6", "dlstm-6/euler-6-plain"),
    ),
}
# A layer of the LSTM has three times the operations of another: times are divided by the operations of a step.
PER_OPERATION = ("train", "dlstm-6/euler-6-plain")

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "ffn": 256, "heads": 4, "decoder_layers": 4, "vocabulary": 4000},
    "iwslt": {"dim": 256, "ffn": 1024, "heads": 4, "decoder_layers": 6, "vocabulary": 10000},
    "base": {"dim": 512, "ffn": 2048, "heads": 8, "decoder_layers": 6, "vocabulary": 34040},
    "big": {"dim": 1024, "ffn": 4096, "heads": 16, "decoder_layers": 6, "vocabulary": 34040},
}

# Table 6 of ODE Transformer (2022). The paper trains with 4,096 tokens on each GPU, here 164 pairs of 25 tokens. It
# states neither batch nor beam of decoding, nor which RK2 it measures; here RK2 has fixed coefficients.
PRESETS: dict[str, dict[str, Any]] = {
    f"table6-{size}": {
        "size": size,
        "systems": ["euler-6", "euler-12", "euler-24", "rk2-6", "rk4-6"],
        "sentences": 164,
        "device": "cuda",
        "precision": "fp16",
    }
    for size in ("base", "big")
}
