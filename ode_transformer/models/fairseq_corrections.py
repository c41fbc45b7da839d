"""Faults of fairseq 0.12.3 that give wrong results or a traceback, corrected when our models are imported.

A number is that of the public report, https://github.com/facebookresearch/fairseq/issues/NUMBER; the faults without one
were found here. The function that a correction replaces is its ``__wrapped__``. With another version of fairseq a
warning says that the corrections are not tested, and which have no function to replace.
"""

import argparse
import atexit
import contextlib
import functools
import logging
import math
import queue
import re
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fairseq
import numpy as np
import torch
from fairseq import checkpoint_utils, options, search, tasks, utils
from fairseq.data import (
    Dictionary,
    LanguagePairDataset,
    bucket_pad_length_dataset,
    data_utils,
    iterators,
    language_pair_dataset,
)
from fairseq.data.multilingual.multilingual_utils import LangTokStyle, get_lang_tok
from fairseq.dataclass import utils as dataclass_utils
from fairseq.file_io import PathManager
from fairseq.iterative_refinement_generator import IterativeRefinementGenerator
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.models import BaseFairseqModel
from fairseq.models.ema.ema import EMA
from fairseq.nan_detector import NanDetector
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import EVAL_BLEU_ORDER, TranslationTask
from fairseq.tokenizer import tokenize_line
from fairseq.trainer import Trainer
from omegaconf import DictConfig, OmegaConf
from sacrebleu.metrics import BLEU
from torch import Tensor

from ode_transformer.checkpoints.dictionary import swapped_languages
from ode_transformer.checkpoints.plain_numbers import plain_numbers
from ode_transformer.checkpoints.reading import load_checkpoint, option_group, saved_options
from ode_transformer.checkpoints.stored_sizes import LIMIT, check_dictionary, limited_parameters
from ode_transformer.models.admission import admitted_state
from ode_transformer.models.option_groups import group_options
from ode_transformer.models.pair_batches import PairBatch, pad_pairs, read_pairs
from ode_transformer.models.pretrained import dictionary_digests
from ode_transformer.support.errors import OptionError, UserError, printable_line

Function = Callable[..., Any]

_LOG = logging.getLogger(__name__)

VERSION = "0.12.3"  # of fairseq, with which each correction is tested
_MISSING: list[str] = []  # functions that another version lacks


def _replace(owner: Any, name: str, default: Function | None = None) -> Callable[[Function], Function]:
    """Put the decorated function in the place of fairseq's, which becomes its first argument.

    :param default: what happens where fairseq has no such function
    """

    def install(correction: Function) -> Function:
        original = getattr(owner, name, default)
        if original is None:
            _MISSING.append(f"{owner.__name__}.{name}")
            return correction

        @functools.wraps(original)
        def corrected(*arguments: Any, **options: Any) -> Any:
            return correction(original, *arguments, **options)

        setattr(owner, name, corrected)
        return correction

    return install


@_replace(NGramRepeatBlock, "forward")
def _block_repeated_ngrams(
    original: Function, block: NGramRepeatBlock, tokens: Tensor, scores: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """Compare the last words of a hypothesis, not the padding behind them (5206).

    A prefix that the user gave may repeat itself: where all other words are forbidden, none is blocked.
    """
    blocked = original(block, tokens[:, : step + 1], scores.clone(), bsz, beam_size, step)
    return torch.where(blocked.isneginf().all(dim=1, keepdim=True), scores, blocked)


@_replace(search.DiverseBeamSearch, "step")
def _step_diverse_beams(
    original: Function, strategy: Any, step: int, scores: Any, earlier_scores: Any, tokens: Any = None, ids: Any = None
) -> Any:
    """Number sentences within their batch: fairseq takes their numbers in the data set, which end in an IndexError."""
    if step == 0:
        strategy.first_ids = ids
    if ids is not None:
        ids = ids[:, None].eq(strategy.first_ids).int().argmax(dim=1)
    return original(strategy, step, scores, earlier_scores, tokens, ids)


@_replace(search.LexicallyConstrainedBeamSearch, "init_constraints")
def _require_constraints(original: Function, strategy: Any, constraints: Tensor | None, beam_size: int) -> None:
    """Refuse ``fairseq-generate --constraints``, whose data have none, in one line (4332)."""
    if constraints is None:
        raise OptionError("--constraints: binarised data have none; give fairseq-interactive LINE<TAB>CONSTRAINT")
    original(strategy, constraints, beam_size)


@_replace(BaseFairseqModel, "prepare_for_inference_")
def _align_unknown_words(original: Function, model: BaseFairseqModel, cfg: Any) -> None:
    """Let ``--replace-unk`` imply ``--print-alignment``: without it there is nothing to replace a word by (3533)."""
    if cfg.generation.replace_unk is not None:
        if cfg.common_eval.post_process is not None:
            raise OptionError("--replace-unk replaces whole words: it cannot go with --remove-bpe or --post-process")
        cfg.generation.print_alignment = "hard"
    original(model, cfg)


@_replace(utils, "replace_unk")
def _replace_unknown_words(
    original: Function, output: str, source: str, alignment: Sequence[tuple[int, int]], *options: Any
) -> str:
    """Read an alignment as what it is, pairs of a source and a target position (3533)."""
    return original(output, source, {target: position for position, target in alignment}, *options)


@_replace(utils, "load_align_dict")
def _load_aligned_words(original: Function, path: str | None) -> dict[str, str] | None:
    """Take ``--replace-unk`` without a value, for which fairseq puts "@@ ", for no file (3533)."""
    return original("" if path == "@@ " else path)


@_replace(options, "parse_args_and_arch")
def _parse_options(original: Function, parser: argparse.ArgumentParser, *arguments: Any, **keywords: Any) -> Any:
    """Let fairseq-validate do without ``--task``, and ``--bf16`` without a TPU.

    fairseq ends in a KeyError, though the checkpoint says its task. It takes ``--bf16`` for ``--tpu``, which ends in an
    AttributeError.
    """
    for action in parser._actions:
        if action.dest == "task" and action.default is None:
            action.default = "translation"
    parsed = original(parser, *arguments, **keywords)
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    args.tpu = getattr(args, "tpu", False) and utils.xm is not None  # of torch_xla
    return parsed


@_replace(TranslationTask, "get_interactive_tokens_and_lengths")
def _truncate_sources(original: Function, task: TranslationTask, *arguments: Any) -> tuple[list[Tensor], list[int]]:
    """Let ``--truncate-source`` cut the lines of fairseq-interactive, too, which fail otherwise."""
    sources, lengths = original(task, *arguments)
    if task.cfg.truncate_source:
        limit = task.cfg.max_source_positions
        sources = [torch.cat([s[: limit - 1], s[-1:]]) if len(s) > limit else s for s in sources]
        lengths = list(map(len, sources))
    return sources, lengths


@_replace(Dictionary, "encode_line")
def _read_symbols_as_unknown_words(
    original: Function,
    words: Dictionary,
    line: str,
    line_tokenizer: Callable[[str], list[str]] = tokenize_line,
    add_if_not_exist: bool = True,
    consumer: Function | None = None,
    append_eos: bool = True,
    reverse_order: bool = False,
) -> Tensor:
    """Read ``<pad>`` and other names of symbols in a text as unknown words, not as padding or an end.

    A program that writes symbols into a line, as that of RoBERTa does, has no end appended.
    """
    symbols = {words.bos_word, words.pad_word, words.eos_word}
    divide = line_tokenizer
    if append_eos and any(symbol in line for symbol in symbols):

        def divide(line: str) -> list[str]:
            return [words.unk_word if word in symbols else word for word in line_tokenizer(line)]

    return original(words, line, divide, add_if_not_exist, consumer, append_eos, reverse_order)


@_replace(utils, "split_paths")
def _keep_existing_path(original: Function, paths: str, *separator: str) -> list[str]:
    """Take a path that exists for one: its name may hold the colon at which fairseq divides several."""
    return [paths] if Path(paths).exists() else original(paths, *separator)


@_replace(FairseqTask, "has_sharded_data")
def _has_several_folders(original: Function, task: FairseqTask, split: str) -> bool:
    """Tell whether the data are in several folders: the name of one may hold a colon, too."""
    return len(utils.split_paths(getattr(task.cfg, "data", None) or "")) > 1


@_replace(dataclass_utils, "override_module_args")
def _keep_options(original: Function, args: argparse.Namespace) -> tuple[list[argparse.Namespace], list[str]]:
    """Leave options as they are; fairseq writes them in the grammar of Hydra, which replaces ``${x}`` in a path."""
    return [args], []


@_replace(dataclass_utils, "compose")
def _group_options(original: Function, name: str, overrides: list[argparse.Namespace], strict: bool) -> DictConfig:
    """Fill fairseq's groups of options from their classes; Hydra would fill them from its grammar."""
    return group_options(*overrides)


@_replace(dataclass_utils, "initialize")
def _start_no_hydra(original: Function, config_path: str) -> contextlib.AbstractContextManager[None]:
    """Start nothing: no option is written for Hydra to read."""
    return contextlib.nullcontext()


@_replace(LanguagePairDataset, "__getitems__", lambda pairs, numbers: [pairs[number] for number in numbers])
def _read_pairs_at_once(original: Function, pairs: LanguagePairDataset, numbers: Sequence[int]) -> Any:
    """Read the pairs of a batch at once, where fairseq copies sentence by sentence."""
    return read_pairs(pairs, numbers) or original(pairs, numbers)


@_replace(language_pair_dataset, "collate")
def _pad_pairs_at_once(original: Function, samples: Any, *symbols: int, **options: Any) -> dict[str, Any]:
    """Pad the pairs that were read at once."""
    pad = pad_pairs if isinstance(samples, PairBatch) else original
    return pad(samples, *symbols, **options)


@_replace(data_utils, "batch_by_size")
def _keep_last_batch(original: Function, indices: Any, *arguments: Any, **options: Any) -> Any:
    """Keep all sentences: fairseq drops a last batch that ``--required-batch-size-multiple`` does not divide (5036)."""
    batches = original(indices, *arguments, **options)
    remaining = indices[sum(map(len, batches)) :]
    return [*batches, remaining] if len(remaining) else batches


@_replace(FairseqTask, "inference_step")
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


@_replace(tasks, "setup_task")
def _leave_blank_lines_of_other_tasks_empty(original: Function, cfg: Any, **options: Any) -> FairseqTask:
    """Correct the ``inference_step`` that a task defines itself, such as a multilingual one."""
    task: FairseqTask = original(cfg, **options)
    owner = next(parent for parent in type(task).__mro__ if "inference_step" in vars(parent))
    if owner is not FairseqTask and owner not in _OWN_INFERENCE:
        _replace(owner, "inference_step")(_leave_blank_lines_empty)
        _OWN_INFERENCE.add(owner)
    return task


@_replace(FairseqTask, "get_batch_iterator")
def _batch_as_from_the_start(
    original: Function, task: FairseqTask, dataset: Any, *arguments: Any, epoch: int = 1, **options: Any
) -> Any:
    """Form the batches that a training keeps in all its epochs by the number of its first, also when it is resumed.

    fairseq takes the number of the epoch in which it is resumed: sentences are then repeated and left out.
    """
    forms_anew = options.get("disable_iterator_cache") or options.get("update_epoch_batch_itr")
    keeps = not forms_anew and task.can_reuse_epoch_itr(dataset)
    is_new = dataset not in task.dataset_to_epoch_iter
    iterator = original(task, dataset, *arguments, epoch=1 if keeps else epoch, **options)
    if keeps and is_new:
        iterator.epoch = epoch
    return iterator


@_replace(iterators.EpochBatchIterator, "state_dict")
def _count_batches(original: Function, iterator: iterators.EpochBatchIterator) -> dict[str, Any]:
    """Write beside the position within an epoch how many batches it has, and for how many processes."""
    return {**original(iterator), "batches": len(iterator.frozen_batches), "processes": iterator.num_shards}


@_replace(iterators.EpochBatchIterator, "load_state_dict")
def _resume_within_other_batches(
    original: Function, iterator: iterators.EpochBatchIterator, state: dict[str, Any]
) -> None:
    """Resume an epoch after the same share of its batches, if another ``--max-tokens`` or number of GPUs forms others.

    fairseq leaves out as many of the new batches as were read of the old, or asks to report that there are fewer.
    """
    iterator.epoch = state["epoch"]
    position = state.get("iterations_in_epoch", 0)
    resumed = min(position, len(iterator) - 1)
    if "batches" in state:
        share = position * state["processes"] * len(iterator.frozen_batches) // state["batches"]
        resumed = share // iterator.num_shards
    if resumed != position:
        _LOG.info(
            f"epoch {iterator.epoch} is resumed at its batch {resumed + 1} of {len(iterator)}: they are not those of "
            "the checkpoint, so that sentences may be read twice in this epoch, or not at all"
        )
    original(iterator, {**state, "iterations_in_epoch": resumed})


@_replace(iterators.GroupedIterator, "__init__")
def _group_what_remains(
    original: Function, groups: Any, batches: Any, size: int, skip_remainder_batch: bool = False
) -> None:
    """Group all batches that a resumed epoch has left; fairseq rounds those that were read up to whole groups.

    ``--skip-remainder-batch`` leaves out a last group that is too small, unless no other is left.
    """
    read = getattr(batches, "n", 0)
    if skip_remainder_batch:
        left = len(batches) - read
        batches.take(read + (left // size * size or left))
    original(groups, batches, size)
    groups.n = groups.total - math.ceil((len(batches) - read) / size)


@_replace(checkpoint_utils, "save_checkpoint")
def _save_updates_at_the_end_of_an_epoch(
    original: Function, cfg: Any, trainer: Trainer, iterator: Any, loss: float | None
) -> str | None:
    """Write the checkpoint of ``--save-interval-updates`` also where its update is the last of an epoch."""
    saved = original(cfg, trainer, iterator, loss)
    if (
        iterator.end_of_epoch()
        and cfg.save_interval_updates
        and trainer.get_num_updates() % cfg.save_interval_updates == 0
    ):
        only = {"no_last_checkpoints": True, "keep_best_checkpoints": 0, "keep_last_epochs": 0}
        within = SimpleNamespace(epoch=iterator.epoch, end_of_epoch=lambda: False, state_dict=iterator.state_dict)
        original(OmegaConf.merge(cfg, only), trainer, within, loss)
    return saved


@_replace(Trainer, "load_checkpoint")
def _read_checkpoint_in_each_process(
    original: Function, trainer: Trainer, path: str, *arguments: Any, **keywords: Any
) -> Any:
    """Let ``--load-checkpoint-on-all-dp-ranks`` be the rule: PyTorch >= 2.6 refuses what the first process sends.

    :raises OptionError: the parameters do not fit the model, of which fairseq writes every one
    """
    trainer.cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True
    try:
        return original(trainer, path, *arguments, **keywords)
    except Exception as error:
        reason = str(error.__context__)
        sizes = re.search(r"size mismatch for \S*embed_tokens.*?Size\(\[(\d+).*?Size\(\[(\d+)", reason)
        if sizes is not None and sizes[1] != sizes[2]:
            raise OptionError(
                f"{path}: its dictionary has {sizes[1]} words, that of the data {sizes[2]}: binarise them with its own "
                "(fairseq-preprocess --srcdict, --tgtdict)"
            ) from error
        if "Cannot load model parameters" not in str(error):
            raise
        models = saved_options(load_checkpoint(path), "model"), option_group(trainer.cfg.model)
        saved, arch = (model.get("arch") or model.get("_name") for model in models)
        found = " ".join(reason.removeprefix("Error(s) in loading state_dict for ").split())[:150]
        raise OptionError(
            f"{path}: a model of {'other options' if saved == arch else f'--arch {saved}, not {arch}'} ({found} ...); "
            "continue it with its own options, or give a new --save-dir"
        ) from error


# Counters that fairseq keeps in its process alone: of --patience, of --lr-patience and of the loss scale of --fp16.
_COUNTERS = {
    "early_stopping": ("best", "num_runs"),
    "plateau": ("num_bad_epochs",),
    "loss_scale": ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale"),
}


def _counting(trainer: Trainer) -> dict[str, Any]:
    """Return what has the counters: a function of fairseq-train, a learning rate's schedule and a loss scaler."""
    programs = (sys.modules.get(name) for name in ("__main__", "fairseq_cli.train"))  # either runs the training
    counting = {
        "early_stopping": next(
            filter(None, (getattr(program, "should_stop_early", None) for program in programs)), None
        ),
        "plateau": getattr(trainer.lr_scheduler, "lr_scheduler", None),
        "loss_scale": getattr(trainer.optimizer, "scaler", None),
    }
    return {kind: counter for kind, counter in counting.items() if counter is not None}


@_replace(Trainer, "state_dict")
def _save_counters(original: Function, trainer: Trainer) -> dict[str, Any]:
    """Write into a checkpoint how long a training has not improved, which would be counted anew when it is resumed."""
    state = original(trainer)
    state["extra_state"]["counters"] = {
        kind: {name: getattr(counter, name) for name in _COUNTERS[kind] if hasattr(counter, name)}
        for kind, counter in _counting(trainer).items()
    }
    return state


@_replace(Trainer, "load_checkpoint")
def _resume_counters(
    original: Function,
    trainer: Trainer,
    path: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    optimizer_overrides: dict[str, Any] | None = None,
    reset_meters: bool = False,
) -> Any:
    """Go on counting where a checkpoint's training stopped, unless something is to begin anew.

    A checkpoint of an epoch's end is written before the learning rate's schedule is told its validation loss.
    """
    state = original(trainer, path, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters=reset_meters)
    if state is not None and not (reset_optimizer or reset_lr_scheduler or reset_meters):
        counters = option_group(state.get("counters"))
        for kind, counter in _counting(trainer).items():
            for name in counters.get(kind, {}).keys() & _COUNTERS[kind]:
                setattr(counter, name, counters[kind][name])
        position = state["train_iterator"]
        if position.get("iterations_in_epoch") == 0 and state.get("val_loss") is not None:
            trainer.lr_step(position["epoch"] - 1, state["val_loss"])
    return state


@_replace(checkpoint_utils, "load_checkpoint")
def _say_what_begins_anew(original: Function, cfg: Any, trainer: Trainer, **options: Any) -> Any:
    """Say in the log that updates are counted from 0 in a later epoch, where the optimizer's state was not loaded."""
    state, batches = original(cfg, trainer, **options)
    if state is not None and trainer.get_num_updates() == 0 and (batches.epoch, batches.iterations_in_epoch) > (1, 0):
        _LOG.info(
            f"{cfg.restore_file}: the optimizer's state was not loaded: epoch {batches.epoch} begins with update 0; "
            "warm-up and --max-update begin anew (--reset-dataloader begins with epoch 1 as well)"
        )
    return state, batches


@_replace(Trainer, "train_step")
def _say_what_is_not_a_number(
    original: Function, trainer: Trainer, samples: Any, *arguments: Any, **keywords: Any
) -> Any:
    """End a training whose gradients are no numbers in one line, with the batch's sentences in a file.

    :raises OptionError: fairseq's FloatingPointError
    """
    try:
        return original(trainer, samples, *arguments, **keywords)
    except FloatingPointError as error:
        path = Path(trainer.cfg.checkpoint.save_dir) / "crash_batch.txt"
        # A process that has no batch left at the end of an epoch is given an empty one.
        numbers = [number for sample in samples if sample for number in sample["id"].tolist()]
        path.write_text("".join(f"{number}\n" for number in numbers))
        reason = str(error).splitlines()[0]
        raise OptionError(
            f"update {trainer.get_num_updates() + 1}: {reason}; the batch's sentences, numbered from 0 on: {path}; "
            "a lower --lr, a longer --warmup-updates or --clip-norm 1 help, and --bf16 instead of --fp16"
        ) from error


@_replace(checkpoint_utils, "load_checkpoint_to_cpu")
def _read_checkpoint(
    original: Function, path: str, arg_overrides: dict[str, Any] | None = None, load_on_all_ranks: bool = False
) -> dict[str, Any]:
    """Read a stranger's checkpoint as our commands do; fairseq evaluates its options as Python."""
    state = load_checkpoint(PathManager.get_local_path(path))
    if (limit := LIMIT.get()) is not None:
        limit.allow_stored(state["model"], path)
    return admitted_state(state, arg_overrides, any_of_fairseq=True)


@_replace(checkpoint_utils, "load_model_ensemble_and_task")
def _build_what_is_stored(original: Function, *arguments: Any, **options: Any) -> Any:
    """Refuse a checkpoint whose options describe far more parameters than it has, as our commands do."""
    with limited_parameters():
        return original(*arguments, **options)


@_replace(Dictionary, "add_from_file")
def _read_dictionary(original: Function, dictionary: Dictionary, file: Any) -> None:
    """Refuse a dictionary that is a pipe or a device, or one line without end."""
    if isinstance(file, str):
        check_dictionary(PathManager.get_local_path(file))
    original(dictionary, file)


@_replace(EMA, "_step_internal")
def _average_shared_once(original: Function, average: EMA, model: Any, updates: int | None = None) -> None:
    """Move ``--store-ema``'s average by one step for each matrix; fairseq takes one for each of its names.

    All matrices move together, where fairseq gives a GPU three operations for each.
    """
    state, averages = model.state_dict(), average.model.state_dict()
    names = {tensor.data_ptr(): name for name, tensor in averages.items() if "version" not in name}.values()
    moved = [(average.fp32_params or averages)[name] for name in names]
    torch._foreach_mul_(moved, average.decay)
    torch._foreach_add_(moved, [state[name] for name in names], alpha=1 - average.decay)
    if average.fp32_params:
        torch._foreach_copy_([averages[name] for name in names], moved)


@_replace(iterators.BufferedIterator, "_create_consumer")
def _stop_loading_at_exit(original: Function, batches: iterators.BufferedIterator) -> None:
    """End the thread that loads batches ahead, which aborts the process if it outlives Python."""
    original(batches)
    _LOADERS.add(batches._consumer)


_LOADERS: weakref.WeakSet[iterators.BackgroundConsumer] = weakref.WeakSet()


@atexit.register
def _stop_loaders() -> None:
    for loader in list(_LOADERS):
        loader._max_len = 0  # the batch that is being loaded is the last
        while loader.is_alive():
            with contextlib.suppress(queue.Empty):
                loader._queue.get(timeout=0.1)


@_replace(bucket_pad_length_dataset, "get_buckets")
def _length_buckets(original: Function, sizes: Any, buckets: int) -> np.ndarray:
    """Return the upper bounds of ``--num-batch-buckets`` lengths; NumPy 2.4 renamed the argument that fairseq gives."""
    return np.unique(np.percentile(sizes, np.linspace(0, 100, buckets + 1), method="lower")[1:])


# Left out of NumPy 2, and read by --num-batch-buckets and by fairseq-interactive with a language model.
if not hasattr(np, "compat"):
    np.compat = SimpleNamespace(long=np.int64)  # type: ignore[attr-defined]


@_replace(FairseqTask, "state_dict")
def _remember_data(original: Function, task: FairseqTask) -> dict[str, Any]:
    """Write into a checkpoint which dictionaries and languages its parameters belong to.

    fairseq's options hold the languages only if the user named them.
    """
    return {**original(task), "dictionaries": dictionary_digests(task), "languages": _languages(task)}


def _languages(task: FairseqTask) -> dict[str, str | None]:
    config = task.cfg or task.args  # older tasks have no cfg
    return {name: getattr(config, name, None) for name in ("source_lang", "target_lang")}


@_replace(FairseqTask, "load_state_dict")
def _require_own_data(original: Function, task: FairseqTask, state: dict[str, Any]) -> None:
    """Refuse data of another training, with which a model writes nonsense; older checkpoints name no dictionaries.

    :param state: with the languages of the training, as ``admitted_state`` adds them
    :raises OptionError: a dictionary has other words, or the same in another order; source and target are swapped
    """
    trained = option_group(state.get("languages"))
    asked = tuple(_languages(task).values())
    if reason := swapped_languages(asked, (trained.get("source_lang"), trained.get("target_lang"))):
        raise OptionError(reason)
    saved = option_group(state.get("dictionaries"))
    for side, digest in dictionary_digests(task).items():
        if saved.get(side, digest) != digest:
            data = getattr(task.cfg or task.args, "data", None)
            raise OptionError(f"the model was trained with another {side} dictionary than that of {data}")
    original(task, {name: value for name, value in state.items() if name not in ("dictionaries", "languages")})


@_replace(checkpoint_utils, "torch_persistent_save")
def _write_plain_numbers(original: Function, state: dict[str, Any], *arguments: Any, **options: Any) -> None:
    """Write NumPy's numbers in metrics, as of ``--eval-bleu``, as plain ones: PyTorch >= 2.6 refuses others (5603)."""
    plain = {name: plain_numbers(state[name]) for name in ("extra_state", "optimizer_history") if name in state}
    original(state | plain, *arguments, **options)


@_replace(PathManager, "copy")
def _copy_whole(original: Function, source: str, target: str, overwrite: bool = False) -> Any:
    """Copy to another name first: a process killed on its way would leave half a ``checkpoint_last.pt``."""
    if not (overwrite and PathManager.supports_rename(target)):
        return original(source, target, overwrite)
    copied = original(source, f"{target}.tmp", overwrite)
    PathManager.rename(f"{target}.tmp", target)
    return copied


@_replace(NanDetector, "__init__")
def _look_at_outputs_alone(original: Function, detector: NanDetector, model: Any, *looks: bool) -> None:
    """Look for outputs that are no numbers; backward, PyTorch needs a tensor in what each module returns."""
    original(detector, model, backward=False)


@_replace(NanDetector, "__exit__")
def _print_no_gradients(original: Function, detector: NanDetector, *error: Any) -> None:
    """Stop looking, without the gradients of all parameters in the log."""
    detector.close()


@_replace(TranslationTask, "reduce_metrics")
def _log_bleu_of_empty_outputs(original: Function, task: TranslationTask, logs: Any, criterion: Any) -> None:
    """Log the BLEU of a validation without a single output word; fairseq logs none and ends in KeyError: 'bleu'."""
    original(task, logs, criterion)
    logs = [log for log in logs if "_bleu_sys_len" in log]
    if logs and not any(log["_bleu_sys_len"] for log in logs):
        for name in ("_bleu_counts", "_bleu_totals"):
            metrics.log_scalar(name, np.zeros(EVAL_BLEU_ORDER, dtype=int))
        for name in ("_bleu_sys_len", "_bleu_ref_len"):
            metrics.log_scalar(name, sum(int(log[name]) for log in logs))
        metrics.log_derived("bleu", _bleu)


def _bleu(meters: MetersDict) -> float:
    sums = [meters[f"_bleu_{name}"].sum for name in ("counts", "totals", "sys_len", "ref_len")]
    return round(BLEU.compute_bleu(*(np.asarray(total).astype(int).tolist() for total in sums)).score, 2)


# fairseq's checkpoints hold an argparse.Namespace, which PyTorch >= 2.6 refuses (5610).
torch.serialization.add_safe_globals([argparse.Namespace])


def _print_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print a refusal in one line, and any other exception as Python does."""
    if not issubclass(kind, UserError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"{Path(sys.argv[0]).name}: error: {printable_line(error)}", file=sys.stderr)


if Path(sys.argv[0]).name.startswith("fairseq-"):
    sys.excepthook = _print_error

if fairseq.__version__ != VERSION or _MISSING:
    _LOG.warning(
        f"fairseq {fairseq.__version__}: its faults are corrected as those of {VERSION}, the tested version"
        + (f"; not found, so not corrected: {', '.join(dict.fromkeys(_MISSING))}" if _MISSING else "")
    )
