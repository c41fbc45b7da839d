"""Which tasks of fairseq a model can do: those with a source and a target, or those that read one text."""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.multilingual_masked_lm import MultiLingualMaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.tasks.sentence_ranking import SentenceRankingTask

_MASKED = (MaskedLMTask, MultiLingualMaskedLMTask, SentencePredictionTask, SentenceRankingTask)


def refuse_task(args: argparse.Namespace, task: Any, reads_one_text: bool) -> None:
    """Refuses a task for which fairseq would build the model and then fail within it.

    :param task: a task of fairseq; anything else is let through
    :param reads_one_text: the model is an encoder with a masked language model's head; otherwise encoder and decoder
    :raises ValueError: in one line that says which tasks go with the architecture
    """
    if not isinstance(task, FairseqTask):
        return
    if reads_one_text and not isinstance(task, _MASKED):
        wanted = "reads one text: --task masked_lm, or sentence_prediction to fine-tune it"
    elif not reads_one_text and isinstance(task, (*_MASKED, LanguageModelingTask)):
        wanted = "has an encoder and a decoder: --task translation"
    else:
        return
    name = getattr(args, "task", type(task).__name__)
    raise ValueError(f"--task {name} does not go with --arch {args.arch}, which {wanted}")
