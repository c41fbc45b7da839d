"""Which tasks of fairseq a model can do: those with a source and a target, that read one text, or that continue it."""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.multilingual_language_modeling import MultilingualLanguageModelingTask
from fairseq.tasks.multilingual_masked_lm import MultiLingualMaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.tasks.sentence_ranking import SentenceRankingTask

_TASKS = {
    "masked_lm": (MaskedLMTask, MultiLingualMaskedLMTask, SentencePredictionTask, SentenceRankingTask),
    "language_modeling": (LanguageModelingTask, MultilingualLanguageModelingTask),
}
# Which model: what it is, and with which tasks it goes.
_WANTED = {
    "translation": "has an encoder and a decoder: --task translation",
    "masked_lm": "reads one text: --task masked_lm, or sentence_prediction to fine-tune it",
    "language_modeling": "continues a text: --task language_modeling",
}


def refuse_task(args: argparse.Namespace, task: Any, wanted: str) -> None:
    """Refuses a task for which fairseq would build the model and then fail within it.

    :param task: a task of fairseq; anything else is let through
    :param wanted: the task that stands for all that the model can do: translation, masked_lm or language_modeling
    :raises ValueError: in one line that says which tasks go with the architecture
    """
    if not isinstance(task, FairseqTask):
        return
    if wanted != next((name for name, kinds in _TASKS.items() if isinstance(task, kinds)), "translation"):
        name = getattr(args, "task", type(task).__name__)
        raise ValueError(f"--task {name} does not go with --arch {args.arch}, which {_WANTED[wanted]}")
