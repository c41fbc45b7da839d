"""Fine-tuning of a pre-trained encoder on whole texts, and its predictions."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.commands import PACKAGE
from ode_transformer.support.errors import UserError

MODEL = "ode_bert"
WARMUP_SHARE = 0.1
_OF_THE_TASK = {"max_positions", "load_checkpoint_heads"}


def architectures() -> list[str]:
    """The encoders that can be pre-trained and fine-tuned."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    import ode_transformer.models  # noqa: F401

    return sorted(name for name, model in ARCH_MODEL_NAME_REGISTRY.items() if model == MODEL)


def model_options(checkpoint: Path) -> dict[str, Any]:
    """The flags that build the model of a checkpoint again: its architecture and what differs from it.

    :raises UserError: the checkpoint is none of these models
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    known = architectures()
    state = load_checkpoint(checkpoint)
    saved = (state.get("cfg") or {}).get("model") or state.get("args")
    arch = getattr(saved, "arch", None)
    if arch not in known:
        raise UserError(f"{checkpoint}: a model of --arch {arch}; what can be fine-tuned is {', '.join(known)}")
    usual = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](usual)
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, add_help=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    options: dict[str, Any] = {"arch": arch}
    for action in parser._actions:
        if action.dest in _OF_THE_TASK or not hasattr(saved, action.dest):
            continue
        value = getattr(saved, action.dest)
        if value != getattr(usual, action.dest, action.default):
            options[action.option_strings[0].removeprefix("--")] = value
    return options | {"max-positions": saved.max_positions}


def check_dictionary(checkpoint: Path, dictionary: Path) -> None:
    """Whether texts that were prepared with a dictionary can be read by a model.

    :raises UserError: names both, if the model has another number of embeddings
    """
    from fairseq.data import Dictionary

    rows = load_checkpoint(checkpoint)["model"]["encoder.sentence_encoder.embed_tokens.weight"].size(0)
    entries = len(Dictionary.load(str(dictionary))) + 1  # tasks add <mask>
    if rows != entries:
        raise UserError(f"{checkpoint}: has {rows} embeddings; with <mask>, {dictionary} has {entries} entries")


def training_options(
    data: Path, examples: int, outputs: int, regression: bool, save_dir: Path, chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """The flags of one fine-tuning: linear decay after a warm-up of a tenth of the updates.

    :param examples: to train on
    :param outputs: of the head
    :param chosen: ``batch-size``, ``max-epoch``, ``lr`` and any other flag
    """
    updates = math.ceil(examples / chosen["batch-size"]) * chosen["max-epoch"]
    return {
        "user-dir": PACKAGE,
        "task": "sentence_prediction",
        "criterion": "sentence_prediction",
        "num-classes": outputs,
        "regression-target": regression,
        "init-token": 0,  # <s>, in front as in pre-training; </s> closes each text and so divides two
        "shorten-method": "truncate",
        "distributed-world-size": 1,  # fairseq takes every GPU there is, and each would add to the batch
        "lr-scheduler": "polynomial_decay",
        "total-num-update": updates,
        "warmup-updates": math.ceil(WARMUP_SHARE * updates),
        "required-batch-size-multiple": 1,
        "num-workers": 0,
        "data-buffer-size": 0,
        "cpu": not torch.cuda.is_available(),
        "save-dir": save_dir,
        "no-epoch-checkpoints": True,
        "disable-validation": True,
        "log-format": "json",
        "log-interval": 100,
        **chosen,
    }


def predict(checkpoint: Path, data: Path, splits: Sequence[str], batch: int = 64) -> dict[str, list[str]]:
    """What a fine-tuned model says about the examples of each split, in their order: a class or a number, or nan.

    :param data: binarised, with the model's dictionary
    :raises UserError: the checkpoint is broken or refused
    """
    from fairseq import checkpoint_utils, utils

    import ode_transformer.models  # noqa: F401

    load_checkpoint(checkpoint)  # for its errors, which are one line
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], {"data": str(data)})
    gpu = torch.cuda.is_available()
    model = (model.cuda() if gpu else model).eval()
    head, regression = cfg.criterion.classification_head_name, cfg.task.regression_target
    said = {}
    for split in splits:
        task.load_dataset(split)
        dataset = task.dataset(split)
        values = [""] * len(dataset)
        batches = task.get_batch_iterator(dataset, max_sentences=batch, required_batch_size_multiple=1)
        for sample in batches.next_epoch_itr(shuffle=False):
            sample = utils.move_to_cuda(sample) if gpu else sample
            with torch.no_grad():
                logits, _ = model(**sample["net_input"], features_only=True, classification_head_name=head)
            if regression:
                answers = [f"{value:.6f}" if math.isfinite(value) else "nan" for value in logits.view(-1).tolist()]
            else:
                labels = task.label_dictionary
                answers = [
                    labels[row.argmax() + labels.nspecial] if row.isfinite().all() else "nan" for row in logits.cpu()
                ]
            for number, answer in zip(sample["id"].tolist(), answers, strict=True):
                values[number] = answer
        said[split] = values
    return said
