"""Sample translations in the training log of fairseq, at each validation (``--log-samples``).

The first sentences of at least ``LEAST`` tokens are translated greedily, always the same ones:

    | sample_log | {"updates": 150, "samples": [{"source": …, "reference": …, "output": …}]}
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ode_transformer.support.depth_log_names import SAMPLES
from ode_transformer.support.subword_models import join_pieces, kind_of_symbols

logger = logging.getLogger(__name__)

LEAST = 8  # tokens of the source; validation begins with the shortest sentences


@torch.no_grad()
def greedy_translations(model: Any, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the most probable next words, one after the other, [B, T].

    :param tokens: of the sources, [B, S]
    """
    encoder_out = model.encoder.forward_torchscript({"src_tokens": tokens, "src_lengths": lengths})
    end, padding = model.decoder.dictionary.eos(), model.decoder.dictionary.pad()
    prefix, caches = tokens.new_full((len(tokens), 1), end), dict[str, Any]()
    for _ in range(min(2 * tokens.size(1), model.max_decoder_positions() - 1)):
        output = model.decoder(prefix, encoder_out=encoder_out, incremental_state=caches)
        scores = model.get_normalized_probs(output, log_probs=True)[:, -1]  # [B, words]
        scores[:, padding] = -torch.inf
        best = scores.argmax(-1).masked_fill(prefix[:, 1:].eq(end).any(1), end)
        prefix = torch.cat([prefix, best[:, None]], 1)
        if best.eq(end).all():
            break
    return prefix[:, 1:]


class SampleLog(nn.Module):
    """Translates some sentences of the first validation batch that has any, once after each update.

    :param count: number of the sentences
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.updates: int | None = None  # None until the first update after a validation

    def set_num_updates(self, num_updates: int) -> None:
        """Count an update; fairseq calls this before each one, with the number of updates so far."""
        self.updates = num_updates + 1

    def see_batch(self, model: Any, _: Any, batch: Mapping[str, Any]) -> None:
        """Log the samples of a batch, before the model sees it."""
        if model.training or self.updates is None or not batch:
            return
        tokens, shifted = batch["src_tokens"], batch["prev_output_tokens"]
        rows = tokens.ne(model.encoder.padding_idx).sum(1).ge(LEAST).nonzero()[: self.count, 0]
        if not len(rows):
            return
        outputs = greedy_translations(model, tokens[rows], batch["src_lengths"][rows])
        texts = [
            {"source": source, "reference": reference, "output": output}
            for source, reference, output in zip(
                lines(model.encoder.dictionary, tokens[rows]),
                lines(model.decoder.dictionary, shifted[rows, 1:]),
                lines(model.decoder.dictionary, outputs),
                strict=True,
            )
        ]
        logger.info(json.dumps({"updates": self.updates, SAMPLES: texts}, ensure_ascii=False))
        self.updates = None


def lines(dictionary: Any, rows: Tensor) -> list[str]:
    """Return token numbers as lines of words, [B, T]."""
    kind = kind_of_symbols(dictionary.symbols)
    return [join_pieces(dictionary.string(row, extra_symbols_to_ignore={dictionary.pad()}), kind) for row in rows]


SampleLog.see_batch.only_in_evaluation = True  # type: ignore[attr-defined]  # a recorded training goes on


def log_samples(model: Any, count: int) -> None:
    """Let a translation model log sample translations at each validation; 0 for never."""
    if count:
        model.sample_log = SampleLog(count)  # a submodule, because fairseq calls set_num_updates on submodules
        model.register_forward_pre_hook(model.sample_log.see_batch, with_kwargs=True)
