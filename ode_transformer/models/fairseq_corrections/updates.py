"""Corrections of fairseq's updates: averages of parameters, losses that are no numbers, validations."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.models.ema.ema import EMA
from fairseq.nan_detector import NanDetector
from fairseq.tasks.translation import EVAL_BLEU_ORDER, TranslationTask
from fairseq.trainer import Trainer
from sacrebleu.metrics import BLEU

from ode_transformer.models.fairseq_corrections.replacing import Function, replace
from ode_transformer.support.errors import OptionError


@replace(Trainer, "train_step")
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


@replace(EMA, "_step_internal")
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


@replace(NanDetector, "__init__")
def _look_at_outputs_alone(original: Function, detector: NanDetector, model: Any, *looks: bool) -> None:
    """Look for outputs that are no numbers; backward, PyTorch needs a tensor in what each module returns."""
    original(detector, model, backward=False)


@replace(TranslationTask, "reduce_metrics")
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
