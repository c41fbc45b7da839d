"""fairseq's cross entropies by :mod:`one_pass_loss`, for models whose decoder returns logits.

Where something else needs the logarithms of all probabilities, such as an adaptive softmax, ``--log-depth-interval``
at the updates that it observes, or ``--report-accuracy``, fairseq's own computation of them is used.
"""

from __future__ import annotations

from typing import Any

from fairseq import criterions
from fairseq.criterions import register_criterion, sentence_prediction
from fairseq.logging.meters import safe_round
from fairseq.models import FairseqDecoder
from torch import Tensor

from ode_transformer.training.one_pass_loss import label_smoothed_cross_entropy


def round_plainly(number: Any, digits: int) -> Any:
    """Round a metric to a plain number: NumPy's, as of Pearson's correlation, would make a checkpoint unreadable."""
    return safe_round(float(number), digits)


sentence_prediction.safe_round = round_plainly


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


# fairseq resumes a training only with a criterion of the same class name; either of the two can resume the other's.
@register_criterion(
    "fused_label_smoothed_cross_entropy",
    dataclass=criterions.label_smoothed_cross_entropy.LabelSmoothedCrossEntropyCriterionConfig,
)
class LabelSmoothedCrossEntropyCriterion(criterions.label_smoothed_cross_entropy.LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy``, with one softmax for loss and gradient."""

    def compute_loss(
        self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the negative log-likelihood, summed if ``reduce``."""
        losses = _losses(self, model, net_output, sample, reduce, self.eps, self.ignore_prefix_size)
        return losses or super().compute_loss(model, net_output, sample, reduce)


@register_criterion("fused_cross_entropy", dataclass=criterions.cross_entropy.CrossEntropyCriterionConfig)
class CrossEntropyCriterion(criterions.cross_entropy.CrossEntropyCriterion):
    """fairseq's ``cross_entropy``, with one softmax for loss and gradient."""

    def compute_loss(
        self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, summed if ``reduce``, twice."""
        losses = _losses(self, model, net_output, sample, reduce)
        return (losses[0], losses[0]) if losses else super().compute_loss(model, net_output, sample, reduce)
