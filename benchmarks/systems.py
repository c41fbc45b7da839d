"""Systems that ``speed.py`` measures, sizes that they share, and comparisons between them."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any

MEASURES = ("train", "decode", "memory")


@dataclass(frozen=True)
class System:
    """An architecture, its options beside the common sizes, and the measures that make sense for it.

    :param export: numbers of the weights with which CTranslate2 decodes it, as for ``ode-transformer export
        --quantization``; None for PyTorch
    :param int8: decodes with its linear maps in int8, as ``ode-transformer translate --int8`` does
    :param fused: trains with ``fused_adam`` and ``fused_label_smoothed_cross_entropy``, as recipes do
    """

    arch: str
    options: dict[str, Any] = field(default_factory=dict)
    measures: tuple[str, ...] = MEASURES
    export: str | None = None
    fused: bool = True
    int8: bool = False


def _fairseq(layers: int) -> System:
    pre_norm = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    return System("transformer", {"encoder_layers": layers} | pre_norm, fused=False)


def _ode_transformer(layers: int, scheme: str = "euler", **options: Any) -> System:
    """Return a system with fixed coefficients, relative positions (k = 8) and DLCL unless ``options`` change them."""
    return System("ode_transformer_euler", {"encoder_layers": layers, "encoder_ode_scheme": scheme} | options)


_NO_HISTORY = {"encoder_layer_history": "none", "decoder_layer_history": "none"}

# Numbers in names count the encoder's layers; Reformers have a number of joint layers.
SYSTEMS: dict[str, System] = {
    "fairseq-3": _fairseq(3),
    "fairseq-6": _fairseq(6),
    "fairseq-12": _fairseq(12),
    "fairseq-24": _fairseq(24),
    "euler-6-plain": _ode_transformer(6, max_relative_positions=0, **_NO_HISTORY),
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
    "rk4-5": System("ode_transformer_rk4", {"encoder_layers": 5}, ("memory",)),
    "dlstm-6": System("dlstm", {"encoder_layers": 6}),
    # What CTranslate2 can express: without DLCL.
    "ones-6": System("ode_transformer_ones", {"encoder_layers": 6}, ("decode",)),
    "ones-6-ctranslate2": System("ode_transformer_ones", {"encoder_layers": 6}, ("decode",), "float32"),
    "ones-6-ctranslate2-int8": System("ode_transformer_ones", {"encoder_layers": 6}, ("decode",), "int8"),
    # The joint layers of Reformer's paper, whose matrices are as many as those of a Transformer with 6-6 layers.
    "reformer-fast-5": System("reformer_fast", {"encoder_layers": 5, "decoder_layers": 5}),
    "reformer-base-7": System("reformer_base", {"encoder_layers": 0, "decoder_layers": 7}),
}
ONE_STEP = ("rk4-6", "rk4-5")  # the memory that one RK4 step holds is the difference of these systems


@dataclass(frozen=True)
class Comparison:
    """A comparison of one system with a baseline.

    :param measure: ``train``: ratio of times; ``decode``: of speeds; ``memory``: of peaks
    :param aim: relation and bound; None if there is nothing to reach
    :param tiny_aim: the same for the size tiny, where it differs
    :param less_one_step: first subtract the memory of one RK4 step from the system's
    :param per_operation: divide times by the operations of a training step
    """

    measure: str
    system: str
    baseline: str
    aim: tuple[str, float] | None = None
    less_one_step: bool = False
    per_operation: bool = False
    tiny_aim: tuple[str, float] | None = None

    def aim_for(self, size: str) -> tuple[str, float] | None:
        """Return the aim for models of one of ``SIZES``."""
        return self.tiny_aim if size == "tiny" and self.tiny_aim is not None else self.aim

    @property
    def name(self) -> str:
        """Both systems, as ``--comparisons`` names them."""
        return f"{self.system}/{self.baseline}"

    @property
    def required_systems(self) -> set[str]:
        """All systems that have to be measured."""
        return {self.system, self.baseline, *(ONE_STEP if self.less_one_step else ())}


RELATIONS = {"≤": operator.le, "<": operator.lt, "≥": operator.ge}

COMPARISONS = (
    Comparison("train", "rk2-3", "fairseq-3", ("≤", 1.10)),
    Comparison("train", "euler-6", "fairseq-6", ("≤", 0.90)),
    Comparison("train", "euler-6-plain", "fairseq-6"),
    Comparison("train", "euler-6", "euler-6-unfused"),
    Comparison("train", "rk2-6", "fairseq-12", ("≤", 1.0)),
    Comparison("train", "rk2-6", "euler-12", ("≤", 1.0)),
    Comparison("train", "rk2-gate-6", "euler-12"),
    Comparison("train", "rk4-6", "fairseq-24", ("≤", 0.90)),
    Comparison("train", "rk4-6", "euler-24", ("≤", 1.0)),
    Comparison("train", "rk4-6-recompute", "rk4-6"),
    Comparison("train", "dlstm-6", "euler-6-plain", ("≤", 1.15), per_operation=True),
    Comparison("decode", "euler-6", "fairseq-6", ("≥", 1.1), tiny_aim=("≥", 1.3)),
    Comparison("decode", "rk2-6", "fairseq-6"),
    Comparison("decode", "rk4-6", "fairseq-6"),
    Comparison("decode", "ones-6", "fairseq-6"),
    Comparison("decode", "rk2-gate-6-int8", "rk2-gate-6"),
    Comparison("decode", "ones-6-ctranslate2", "fairseq-6", tiny_aim=("≥", 2.0)),
    Comparison("decode", "ones-6-ctranslate2-int8", "fairseq-6", ("≥", 2.0)),
    Comparison("decode", "rk2-6", "euler-6", ("≥", 0.96)),  # ODE Transformer (2022), Table 6: relative inference speed
    Comparison("decode", "rk4-6", "euler-6", ("≥", 0.85)),
    Comparison("decode", "dlstm-6", "euler-6-plain"),
    Comparison("train", "reformer-fast-5", "fairseq-6"),
    Comparison("decode", "reformer-fast-5", "fairseq-6", ("≥", 0.9)),  # Reformer, Table 3: 0.73 on a GPU
    Comparison("decode", "reformer-base-7", "fairseq-6", ("≥", 0.7)),  # Reformer, Table 3: 0.52 on a GPU
    Comparison("memory", "rk2-6", "fairseq-12", ("<", 1.0)),
    Comparison("memory", "rk2-6", "euler-12", ("<", 1.0)),
    Comparison("memory", "rk4-6", "fairseq-24", ("<", 1.0)),
    Comparison("memory", "rk4-6", "euler-24", ("<", 1.0)),
    Comparison("memory", "rk4-6-recompute", "euler-6", ("≤", 1.0), less_one_step=True),
    Comparison("memory", "dlstm-6", "euler-6-plain"),
)

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "ffn": 256, "heads": 4, "decoder_layers": 4, "vocabulary": 4000},
    "iwslt": {"dim": 256, "ffn": 1024, "heads": 4, "decoder_layers": 6, "vocabulary": 10000},
    "base": {"dim": 512, "ffn": 2048, "heads": 8, "decoder_layers": 6, "vocabulary": 34040},
    "big": {"dim": 1024, "ffn": 4096, "heads": 16, "decoder_layers": 6, "vocabulary": 34040},
}
