"""Options that a model has once, for all of its stacks."""

from dataclasses import dataclass

from ode_transformer.nn.layer import STACKS
from ode_transformer.nn.options import Choice, option


@dataclass(frozen=True)
class ModelChoice(Choice):
    """Normalisation and word dropout of all stacks, precision, and logs."""

    post_norm: bool = option(False, "normalise after each sub-layer; needs --ode-function layer-output")
    word_dropout_prob: float = option(
        0.0, "fraction of word embeddings that is zeroed", another=0.1, interval="fraction"
    )
    cpu_bf16: bool = option(False, "train with products of matrices in bfloat16 on a CPU; needs --cpu")
    # The decoder computes the probabilities that the criterion reads.
    log_depth_interval: int = option(
        0,
        "log gradient norms and learned stage weights by layer at every N updates; 0, the default, for never",
        another=1,
        interval="non-negative",
        stacks=("decoder",),
    )
    log_samples: int = option(
        0,
        "log the translations of N sentences at every validation; 0, the default, for none",
        another=1,
        interval="non-negative",
        stacks=STACKS,
    )
