"""What ``generate`` of Hugging Face's ``transformers`` calls beside a model: encoder, caches and rules of the end."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor
from transformers.modeling_outputs import BaseModelOutput

from ode_transformer.nn import END, PADDING, EncoderOutput, SearchState, Transformer


class DecodingState:
    """Caches of a search, as ``generate`` keeps them in ``past_key_values``.

    :param source: encoder output, a row for each hypothesis
    """

    is_compileable = False

    def __init__(self, model: Transformer, source: EncoderOutput) -> None:
        self.model, self.source, self.search = model, source, SearchState()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of target positions that the caches hold."""
        return self.search.length

    def reorder_cache(self, rows: Tensor) -> None:
        """Replace the hypotheses by those with the numbers ``rows``."""
        self.search.reorder(rows)
        self.source = self.source.select(rows, self.model.encoder.shares_rows)


@dataclass
class SourceEncoding(BaseModelOutput):
    """Encoder output [B, S, C] with the padding [B, S] that attention to it must not read."""

    padding: Tensor | None = None


class SourceEncoder:
    """Encoder of a model with the call that ``generate`` makes."""

    main_input_name = "input_ids"

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> SourceEncoding:
        """Encode token numbers [B, S], of which those with a mask of 0 are padding."""
        tokens = without_masked(input_ids, attention_mask)
        source = self.model.encode(tokens)
        return SourceEncoding(last_hidden_state=source.output, padding=source.padding)

    __call__ = forward


class EndAtLimit(LogitsProcessor):
    """Leaves only the end symbol at the last position, with its own score: so fairseq ends hypotheses.

    Where another rule forbids the end symbol, such as a minimum length, the hypothesis stays without it.

    :param max_length: greatest number of tokens, with the first one and the end symbol
    """

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.size(1) < self.max_length - 1:
            return scores
        end = scores[:, [END]]
        only_end = torch.full_like(scores, -math.inf).index_copy(1, input_ids.new_tensor([END]), end)
        return torch.where(end.isneginf(), scores, only_end)


class EndOfBlankSource(LogitsProcessor):
    """Leaves only the end symbol for a source without words, for which a model invents some.

    :param is_blank: [B], of which each has one or several hypotheses in turn
    """

    def __init__(self, is_blank: Tensor) -> None:
        self.is_blank = is_blank

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        is_blank = self.is_blank.repeat_interleave(len(scores) // len(self.is_blank))
        only_end = torch.full_like(scores, -math.inf).index_fill(1, input_ids.new_tensor([END]), 0)
        return torch.where(is_blank[:, None], only_end, scores)


def without_masked(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return token numbers with the padding symbol where the mask is 0."""
    return tokens if mask is None else tokens.masked_fill(mask.eq(0), PADDING)


def known_source(
    encoding: BaseModelOutput | tuple[Tensor, ...], input_ids: Tensor | None, attention_mask: Tensor | None
) -> EncoderOutput:
    """Return what the decoder reads of an encoder output [B, S, C], with all padding that is known."""
    padding = torch.zeros(encoding[0].shape[:2], dtype=torch.bool, device=encoding[0].device)
    if isinstance(encoding, SourceEncoding) and encoding.padding is not None:
        padding = padding | encoding.padding
    if input_ids is not None:
        padding = padding | input_ids.eq(PADDING)
    if attention_mask is not None:
        padding = padding | attention_mask.eq(0)
    return EncoderOutput(encoding[0], padding)
