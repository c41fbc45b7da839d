"""Corrections of fairseq's searches and of what its commands write of them."""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq import search, tasks, utils
from fairseq.data import Dictionary
from fairseq.data.multilingual.multilingual_utils import LangTokStyle, get_lang_tok
from fairseq.iterative_refinement_generator import IterativeRefinementGenerator
from fairseq.models import BaseFairseqModel
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from ode_transformer.models.fairseq_corrections.replacing import Function, replace
from ode_transformer.support.errors import OptionError


@replace(NGramRepeatBlock, "forward")
def _block_repeated_ngrams(
    original: Function, block: NGramRepeatBlock, tokens: Tensor, scores: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """Compare the last words of a hypothesis, not the padding behind them (5206).

    A prefix that the user gave may repeat itself: where all other words are forbidden, none is blocked.
    """
    blocked = original(block, tokens[:, : step + 1], scores.clone(), bsz, beam_size, step)
    return torch.where(blocked.isneginf().all(dim=1, keepdim=True), scores, blocked)


@replace(search.DiverseBeamSearch, "step")
def _step_diverse_beams(
    original: Function, strategy: Any, step: int, scores: Any, earlier_scores: Any, tokens: Any = None, ids: Any = None
) -> Any:
    """Number sentences within their batch: fairseq takes their numbers in the data set, which end in an IndexError."""
    if step == 0:
        strategy.first_ids = ids
    if ids is not None:
        ids = ids[:, None].eq(strategy.first_ids).int().argmax(dim=1)
    return original(strategy, step, scores, earlier_scores, tokens, ids)


@replace(search.LexicallyConstrainedBeamSearch, "init_constraints")
def _require_constraints(original: Function, strategy: Any, constraints: Tensor | None, beam_size: int) -> None:
    """Refuse ``fairseq-generate --constraints``, whose data have none, in one line (4332)."""
    if constraints is None:
        raise OptionError("--constraints: binarised data have none; give fairseq-interactive LINE<TAB>CONSTRAINT")
    original(strategy, constraints, beam_size)


@replace(BaseFairseqModel, "prepare_for_inference_")
def _align_unknown_words(original: Function, model: BaseFairseqModel, cfg: Any) -> None:
    """Let ``--replace-unk`` imply ``--print-alignment``: without it there is nothing to replace a word by (3533)."""
    if cfg.generation.replace_unk is not None:
        if cfg.common_eval.post_process is not None:
            raise OptionError("--replace-unk replaces whole words: it cannot go with --remove-bpe or --post-process")
        cfg.generation.print_alignment = "hard"
    original(model, cfg)


@replace(utils, "replace_unk")
def _replace_unknown_words(
    original: Function, output: str, source: str, alignment: Sequence[tuple[int, int]], *options: Any
) -> str:
    """Read an alignment as what it is, pairs of a source and a target position (3533)."""
    return original(output, source, {target: position for position, target in alignment}, *options)


@replace(utils, "load_align_dict")
def _load_aligned_words(original: Function, path: str | None) -> dict[str, str] | None:
    """Take ``--replace-unk`` without a value, for which fairseq puts "@@ ", for no file (3533)."""
    return original("" if path == "@@ " else path)


@replace(TranslationTask, "get_interactive_tokens_and_lengths")
def _truncate_sources(original: Function, task: TranslationTask, *arguments: Any) -> tuple[list[Tensor], list[int]]:
    """Let ``--truncate-source`` cut the lines of fairseq-interactive, too, which fail otherwise."""
    sources, lengths = original(task, *arguments)
    if task.cfg.truncate_source:
        limit = task.cfg.max_source_positions
        sources = [torch.cat([s[: limit - 1], s[-1:]]) if len(s) > limit else s for s in sources]
        lengths = list(map(len, sources))
    return sources, lengths


@replace(FairseqTask, "inference_step")
def _leave_blank_lines_empty(
    original: Function, task: FairseqTask, generator: Any, models: Any, sample: dict[str, Any], **options: Any
) -> Any:
    """Return an output without words for a source without words, for which a search invents some.

    A prefix and constraints of words are searched for as ever, and a language model begins a text.
    """
    hypotheses = original(task, generator, models, sample, **options)
    source = sample["net_input"].get("src_tokens")
    searches = isinstance(generator, SequenceGenerator | IterativeRefinementGenerator) and hasattr(models[0], "encoder")
    if searches and source is not None and source.dim() == 2 and not source.is_floating_point():
        is_blank = _is_blank(source, task.source_dictionary, task)
        if (prefix := options.get("prefix_tokens")) is not None:
            is_blank &= _is_blank(prefix, task.target_dictionary, task)
        if (constraints := options.get("constraints")) is not None:
            is_blank &= constraints[:, 0].eq(0)  # their number
        for number in is_blank.nonzero()[:, 0].tolist():
            for hypothesis in hypotheses[number]:
                scores = torch.zeros(1, device=source.device)
                hypothesis |= {"tokens": hypothesis["tokens"][-1:], "positional_scores": scores}
                hypothesis |= {"score": scores[0], "alignment": []}
                if hypothesis.get("attention") is not None:
                    hypothesis["attention"] = hypothesis["attention"][..., -1:]
    return hypotheses


def _is_blank(tokens: Tensor, words: Dictionary, task: FairseqTask) -> Tensor:
    """Tell which rows have no word: only padding, ends, and the languages that multilingual tasks add, [B, S] -> [B]"""
    languages = [get_lang_tok(name, style.value) for name in getattr(task, "langs", ()) for style in LangTokStyle]
    others = [words.bos(), words.pad(), words.eos(), *(words.index(name) for name in languages if name in words)]
    return torch.isin(tokens, tokens.new_tensor(others)).all(dim=1)


_OWN_INFERENCE: set[type] = set()


@replace(tasks, "setup_task")
def _leave_blank_lines_of_other_tasks_empty(original: Function, cfg: Any, **options: Any) -> FairseqTask:
    """Correct the ``inference_step`` that a task defines itself, such as a multilingual one."""
    task: FairseqTask = original(cfg, **options)
    owner = next(parent for parent in type(task).__mro__ if "inference_step" in vars(parent))
    if owner is not FairseqTask and owner not in _OWN_INFERENCE:
        replace(owner, "inference_step")(_leave_blank_lines_empty)
        _OWN_INFERENCE.add(owner)
    return task
