"""Tasks of fairseq that each model supports: translation, masked language models, or language models."""

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

from ode_transformer.support.errors import OptionError

# Kinds of tasks; every other task has a source and a target, as translation has.
_TASK_CLASSES = {
    "masked_lm": (MaskedLMTask, MultiLingualMaskedLMTask, SentencePredictionTask, SentenceRankingTask),
    "language_modeling": (LanguageModelingTask, MultilingualLanguageModelingTask),
}
# What a model for each kind is, and which task it needs.
_MODEL_DESCRIPTIONS = {
    "translation": "has an encoder and a decoder: --task translation",
    "masked_lm": "reads one text: --task masked_lm, or sentence_prediction to fine-tune it",
    "language_modeling": "continues a text: --task language_modeling",
}


def check_task(args: argparse.Namespace, task: Any, kind: str) -> None:
    """Refuse a task for which fairseq would build the model and then fail inside it.

    :param task: a task of fairseq; any other object is accepted
    :param kind: of the tasks that the model supports: translation, masked_lm or language_modeling
    :raises OptionError: names the tasks that go with the architecture
    """
    if not isinstance(task, FairseqTask):
        return
    task_kind = next((name for name, classes in _TASK_CLASSES.items() if isinstance(task, classes)), "translation")
    if task_kind != kind:
        name = getattr(args, "task", type(task).__name__)
        raise OptionError(f"--task {name} does not go with --arch {args.arch}, which {_MODEL_DESCRIPTIONS[kind]}")
