"""Predictions of a model at each target position after the correct prefix (teacher forcing)."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ode_transformer.nn import LanguageModel, Transformer


@dataclass(frozen=True)
class TokenPredictions:
    """Predictions for a batch of B sentences of at most T target tokens, the end symbol included.

    :param numbers: numbers of the sentences in their split, [B]
    :param target: [B, T]
    :param predicted: the most probable tokens, [B, T]
    :param loss: -log p(target), in nats, [B, T]
    :param real: False where the target is padding, [B, T]
    """

    numbers: Tensor
    target: Tensor
    predicted: Tensor
    loss: Tensor
    real: Tensor


def on_device(sample: dict[str, Any], device: Any) -> Any:
    """Move the tensors of fairseq's batch, or of a part of it, to a device."""
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), sample)


def forward_pass(model: Any, net_input: Mapping[str, Any]) -> Any:
    """Return what a model computes of a batch with the names of fairseq's; of a plain model the scores [B, T, V].

    :param model: a plain model, or one of fairseq's
    """
    if isinstance(model, Transformer):
        return model(net_input["src_tokens"], net_input["prev_output_tokens"])
    return model(net_input["src_tokens"]) if isinstance(model, LanguageModel) else model(**net_input)


def log_probabilities(model: Any, net_input: Mapping[str, Any]) -> Tensor:
    """Return log p of each word at each target position after the correct prefix, [B, T, V]."""
    output = forward_pass(model, net_input)
    if isinstance(output, Tensor):
        return output.log_softmax(dim=-1, dtype=torch.promote_types(output.dtype, torch.float32))
    result: Tensor = model.get_normalized_probs(output, log_probs=True)
    return result


@torch.no_grad()
def predict_tokens(model: Any, batches: Iterable[dict[str, Any]], padding_idx: int) -> Iterator[TokenPredictions]:
    """Predict the target tokens of fairseq's batches by a model in evaluation mode; results are on the CPU."""
    device = next(model.parameters()).device
    for batch in batches:
        target, inputs = batch["target"], on_device(batch["net_input"], device)
        scores = log_probabilities(model, inputs)  # [B, T, V]
        loss = -scores.gather(-1, target.to(device).unsqueeze(-1)).squeeze(-1)
        predicted = scores.argmax(-1).cpu()
        yield TokenPredictions(batch["id"], target, predicted, loss.float().cpu(), target.ne(padding_idx))


def surprisals(model: Any, sample: dict[str, Any]) -> list[float]:
    """Return the surprisal of each target token of a sentence, -log₂ p(y_t | y_<t, source), in bits.

    :param model: in evaluation mode
    :param sample: fairseq's batch of a single sentence, so that nothing is padding
    """
    (predictions,) = predict_tokens(model, [sample], padding_idx=-1)
    bits: list[float] = (predictions.loss[0] / math.log(2)).tolist()
    return bits


def cross_entropy(predictions: Iterable[TokenPredictions]) -> float:
    """Return the mean of -log p over all target tokens, end symbols included, in nats."""
    total, tokens = 0.0, 0
    for batch in predictions:
        total += batch.loss[batch.real].double().sum().item()
        tokens += int(batch.real.sum())
    return total / tokens
