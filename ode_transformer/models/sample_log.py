"""Sample translations in the training log of fairseq, at each validation (``--log-samples``).

The first sentences of at least ``LEAST`` tokens are translated greedily, always the same ones:

    | sample_log | {"updates": 150, "samples": [{"source": …, "reference": …, "output": …}]}
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

from ode_transformer.support.depth_log_names import SAMPLES
from ode_transformer.support.subword_models import join_pieces, kind_of_symbols

logger = logging.getLogger(__name__)

LEAST = 8  # tokens of the source; validation begins with the shortest sentences


class SampleLog(nn.Module):
    """Translates some sentences of the first validation batch that has any, once after each update.

    :param count: number of the sentences
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.training = False  # until an update: a model that is only loaded counts its updates, too
        self.updates: int | None = None  # None until the first update after a validation

    def set_num_updates(self, num_updates: int) -> None:
        """Count an update; fairseq calls this before each one, with the number of updates so far."""
        if self.training:
            self.updates = num_updates + 1

    def see_batch(self, model: Any, _: Any, batch: Mapping[str, Any]) -> None:
        """Log the samples of a batch, before the model sees it."""
        if model.training or self.updates is None or not batch:
            return
        tokens, shifted = batch["src_tokens"], batch["prev_output_tokens"]
        rows = tokens.ne(model.encoder.padding_idx).sum(1).ge(LEAST).nonzero()[: self.count, 0]
        if not len(rows):
            return
        source_words, target_words = model.encoder.dictionary, model.decoder.dictionary
        greedy_search = SequenceGenerator([model], target_words, max_len_a=2, max_len_b=0, min_len=0)
        net_input = {"src_tokens": tokens[rows], "src_lengths": batch["src_lengths"][rows]}
        outputs = [best["tokens"] for best, *_ in greedy_search.generate([model], {"net_input": net_input})]
        texts = [
            {
                "source": line(source_words, source),
                "reference": line(target_words, reference),
                "output": line(target_words, output),
            }
            for source, reference, output in zip(tokens[rows], shifted[rows, 1:], outputs, strict=True)
        ]
        logger.info(json.dumps({"updates": self.updates, SAMPLES: texts}, ensure_ascii=False))
        self.updates = None


def line(dictionary: Any, tokens: Tensor) -> str:
    """Return token numbers, [T], as a line of words."""
    text = dictionary.string(tokens, extra_symbols_to_ignore={dictionary.pad()})
    return join_pieces(text, kind_of_symbols(dictionary.symbols))


SampleLog.see_batch.only_in_evaluation = True  # type: ignore[attr-defined]  # a recorded training goes on


def log_samples(model: Any, count: int) -> None:
    """Let a translation model log sample translations at each validation; 0 for never."""
    if count:
        model.sample_log = SampleLog(count)  # a submodule, because fairseq calls set_num_updates on submodules
        model.register_forward_pre_hook(model.sample_log.see_batch, with_kwargs=True)
