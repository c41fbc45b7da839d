"""fairseq's cross entropies with one softmax for loss and gradient, for models whose decoder returns logits.

Where something else needs the logarithms of all probabilities, such as an adaptive softmax, ``--log-depth-interval``
at the updates that it observes, or ``--report-accuracy``, fairseq's own computation of them is used.

    log p = z − log Σ exp z,   ε' = ε / (V − 1)
    nll_i  = −log p_iy                                                  of word y at position i
    loss_i = −(1 − ε − ε') log p_iy − ε' Σ_v log p_iv                   as in fairseq; 0 at padding
    ∂ loss_i / ∂ z_iv = p_iv − ε' − (1 − ε − ε') [v = y]

The forward pass computes the gradient in the place of the probabilities: one tensor of all logits, where autograd keeps
the log-probabilities and allocates three more such tensors on the way back. Axes: N positions, V words.
"""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq import criterions
from fairseq.criterions import register_criterion
from fairseq.models import FairseqDecoder
from torch import Tensor

from ode_transformer.graphs import RecordedTraining
from ode_transformer.models.recorded_criterion import RecordedCriterion, RecordingConfig

# Value of --optimizer or --criterion -> fairseq's counterpart, whose checkpoints it resumes, and the other way round.
COUNTERPARTS = {
    "fused_adam": "adam",
    "fused_label_smoothed_cross_entropy": "label_smoothed_cross_entropy",
    "fused_cross_entropy": "cross_entropy",
    "fused_masked_lm": "masked_lm",
}


def label_smoothed_cross_entropy(
    logits: Tensor, target: Tensor, padding: int, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the losses and the negative log-likelihoods of all positions, [N] each, in float32.

    Only the losses have a gradient, for one backward pass.

    :param logits: [N, V]
    :param target: words y, [N]
    :param padding: the word whose positions count nothing
    :param smoothing: ε
    """
    loss, nll = _Loss.apply(logits, target, padding, smoothing)
    return loss, nll


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, padding: int, smoothing: float) -> tuple[Tensor, Tensor]:
        uniform, padded, y = smoothing / (logits.size(-1) - 1), target.eq(padding), target[:, None]
        p = logits.softmax(dim=-1, dtype=torch.float32)  # [N, V]
        # log Σ exp z by the likeliest word: its p is at least 1 / V, so that the logarithm is exact.
        log_sum = logits.amax(dim=-1).float() - p.amax(dim=-1).log()  # [N]
        z_y = logits.gather(1, y)[:, 0].float()
        nll, loss = log_sum - z_y, log_sum - (1 - smoothing - uniform) * z_y
        if uniform:
            loss -= uniform * logits.sum(dim=-1, dtype=torch.float32)
        if ctx.needs_input_grad[0]:
            gradient = p.sub_(uniform) if uniform else p
            gradient.scatter_add_(1, y, p.new_full((1, 1), smoothing + uniform - 1).expand_as(y))
            ctx.gradient, ctx.padded, ctx.dtype = gradient, padded, logits.dtype
        ctx.mark_non_differentiable(nll)
        return loss.masked_fill_(padded, 0.0), nll.masked_fill_(padded, 0.0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        factors = gradients[0].masked_fill(ctx.padded, 0.0)[:, None]
        if factors.device.type == "cpu":
            rows = factors.ne(1.0).nonzero()[:, 0]  # as a rule those of padding alone
            gradient.index_copy_(0, rows, gradient[rows].mul_(factors[rows]))
        else:  # without a look at the values, for which the GPU would have to be waited for
            gradient.mul_(factors)
        return gradient.to(ctx.dtype), None, None, None


def _losses(
    criterion: Any,
    model: Any,
    output: Any,
    sample: dict[str, Any],
    reduce: bool,
    smoothing: float = 0.0,
    skipped: int = 0,
) -> tuple[Tensor, Tensor] | None:
    """Return the loss and the negative log-likelihood, summed if ``reduce``; None if fairseq has to compute them.

    :param skipped: positions at the beginning of each target that count nothing
    """
    if not _only_logits_matter(getattr(model, "decoder", None)):
        return None
    logits = output[0][:, skipped:]  # [B, T, V]
    target = model.get_targets(sample, output)[:, skipped:]  # [B, T]
    losses = label_smoothed_cross_entropy(
        logits.reshape(-1, logits.size(-1)), target.reshape(-1), criterion.padding_idx, smoothing
    )
    loss, nll = (x.sum() if reduce else x for x in losses)
    return loss, nll


def _only_logits_matter(decoder: Any) -> bool:
    """Tell whether the decoder's probabilities are a softmax of what it returns, which nobody else wants to see."""
    if getattr(decoder, "adaptive_softmax", None) is not None:
        return False
    inherits = getattr(type(decoder), "get_normalized_probs", None) is FairseqDecoder.get_normalized_probs
    return not getattr(decoder, "is_observed", not inherits)


@dataclass
class LabelSmoothedConfig(
    RecordingConfig, criterions.label_smoothed_cross_entropy.LabelSmoothedCrossEntropyCriterionConfig
):
    """Options of ``fused_label_smoothed_cross_entropy``."""


@dataclass
class CrossEntropyConfig(RecordingConfig, criterions.cross_entropy.CrossEntropyCriterionConfig):
    """Options of ``fused_cross_entropy``."""


@dataclass
class MaskedLmConfig(RecordingConfig, criterions.masked_lm.MaskedLmConfig):
    """Options of ``fused_masked_lm``."""


# fairseq resumes a training only with a criterion of the same class name; either of the two can resume the other's.
@register_criterion("fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedConfig)
class LabelSmoothedCrossEntropyCriterion(
    RecordedCriterion, criterions.label_smoothed_cross_entropy.LabelSmoothedCrossEntropyCriterion
):
    """fairseq's ``label_smoothed_cross_entropy``, with one softmax for loss and gradient."""

    def is_recordable(self, recorded: RecordedTraining, sample: dict[str, Any]) -> bool:
        return not self.report_accuracy and super().is_recordable(recorded, sample)

    def compute_loss(
        self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the negative log-likelihood, summed if ``reduce``."""
        losses = _losses(self, model, net_output, sample, reduce, self.eps, self.ignore_prefix_size)
        return losses or super().compute_loss(model, net_output, sample, reduce)


@register_criterion("fused_cross_entropy", dataclass=CrossEntropyConfig)
class CrossEntropyCriterion(RecordedCriterion, criterions.cross_entropy.CrossEntropyCriterion):
    """fairseq's ``cross_entropy``, with one softmax for loss and gradient."""

    def compute_loss(
        self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, summed if ``reduce``, twice."""
        losses = _losses(self, model, net_output, sample, reduce)
        return (losses[0], losses[0]) if losses else super().compute_loss(model, net_output, sample, reduce)


@register_criterion("fused_masked_lm", dataclass=MaskedLmConfig)
class MaskedLmLoss(RecordedCriterion, criterions.masked_lm.MaskedLmLoss):
    """fairseq's ``masked_lm``; a recorded step has one softmax, and a padded list of the masked positions."""

    def inputs(self, sample: dict[str, Any]) -> dict[str, Tensor]:
        masked = sample["target"].ne(self.padding_idx).sum()
        return super().inputs(sample) | {"masked": sample["target"].new_empty(int(masked))}

    def counts(self, sample: dict[str, Any]) -> dict[str, Any]:
        names = "ntokens", "nsentences"
        return {name: sample[name] for name in names} | {"sample_size": sample["target"].ne(self.padding_idx).sum()}

    def step(self, model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss at as many positions as the input ``masked`` is long, which has no values."""
        features = model(inputs["src_tokens"], features_only=True)[0].flatten(0, 1)  # [N, C]
        target = inputs["target"].flatten()  # [N]
        is_masked = target.ne(self.padding_idx)
        ranks = is_masked.cumsum(0)  # 1, 2, … at masked positions
        numbers = torch.arange(len(target), device=target.device)
        # Place 0 collects the other positions.
        positions = target.new_zeros(len(inputs["masked"]) + 1).scatter_(0, ranks * is_masked, numbers)[1:]
        surplus = torch.arange(1, len(positions) + 1, device=target.device) > ranks[-1]
        masked_target = target.index_select(0, positions).masked_fill(surplus, self.padding_idx)
        logits = model.encoder.lm_head(features.index_select(0, positions))  # [masked, words]
        return label_smoothed_cross_entropy(logits, masked_target, self.padding_idx)[0].sum(), {}
