"""Fine-tuning of a pre-trained encoder on texts with labels, and its predictions."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ode_transformer.checkpoints.reading import build_model, load_checkpoint, saved_options
from ode_transformer.recipes.architectures import package_architectures
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import PACKAGE

WARMUP_SHARE = 0.1
PREDICTED_TOGETHER = 64  # examples in a batch
_TASK_OPTIONS = {"max_positions", "load_checkpoint_heads"}


def model_options(checkpoint: Path) -> dict[str, Any]:
    """Return the flags that rebuild the model of a checkpoint: its architecture and the options that differ from it.

    :raises UserError: the checkpoint's architecture is none of this package's for pre-training
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY

    from ode_transformer.models.model_from_options import model_flags

    allowed = package_architectures("masked_lm")
    state = load_checkpoint(checkpoint)
    saved = saved_options(state, "model")
    arch = saved.get("arch")
    if arch not in allowed:
        raise UserError(f"{checkpoint}: a model of --arch {arch}; what can be fine-tuned is {', '.join(allowed)}")
    defaults = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](defaults)
    options: dict[str, Any] = {"arch": arch}
    for action in model_flags(arch):
        if action.dest in _TASK_OPTIONS or action.dest not in saved:
            continue
        value = saved[action.dest]
        if value != getattr(defaults, action.dest, action.default):
            options[action.option_strings[0].removeprefix("--")] = value
    if "max_positions" not in saved:
        raise UserError(f"{checkpoint}: its options do not say max_positions")
    return options | {"max-positions": saved["max_positions"]}


def check_dictionaries(checkpoint: Path, dictionaries: Iterable[Path]) -> None:
    """Check that a model has an embedding for each entry of some dictionaries.

    :raises UserError: names model and dictionary, if their numbers differ
    """
    from fairseq.data import Dictionary

    embeddings = load_checkpoint(checkpoint)["model"].get("encoder.sentence_encoder.embed_tokens.weight")
    if embeddings is None or embeddings.dim() != 2:
        raise UserError(f"{checkpoint}: has no embeddings of an encoder of text")
    rows = len(embeddings)
    for dictionary in dictionaries:
        entries = len(Dictionary.load(str(dictionary))) + 1  # tasks add <mask>
        if rows != entries:
            raise UserError(f"{checkpoint}: has {rows} embeddings; with <mask>, {dictionary} has {entries} entries")


def training_options(
    examples: int, outputs: int, regression: bool, save_dir: Path, chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the flags of one fine-tuning: linear decay after a warm-up of a tenth of the updates.

    :param examples: number of training examples
    :param outputs: number of outputs of the classification head
    :param regression: predict a number instead of a class
    :param chosen: ``batch-size``, ``max-epoch``, ``lr`` and any other flag
    """
    updates = math.ceil(examples / chosen["batch-size"]) * chosen["max-epoch"]
    return {
        "user-dir": PACKAGE,
        "task": "sentence_prediction",
        "criterion": "sentence_prediction",
        "num-classes": outputs,
        "regression-target": regression,
        "init-token": 0,  # <s>, in front as in pre-training; </s> ends each text and so separates two
        "shorten-method": "truncate",
        "distributed-world-size": 1,  # fairseq takes every GPU of the machine, and each would add to the batch
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


def predict(checkpoint: Path, data: Path, splits: Sequence[str]) -> dict[str, list[str]]:
    """Return the prediction for each example of each split, in the examples' order: a class, a number, or nan.

    :param data: binary data made with the model's dictionary
    :raises UserError: the checkpoint is broken or refused
    """
    from fairseq import utils

    import ode_transformer.models  # noqa: F401  (registers the architectures)

    # A fine-tuning that diverged is scored like the others of a grid: it predicts nan.
    model, cfg, task = build_model(checkpoint, load_checkpoint(checkpoint), {"data": str(data)})
    gpu = torch.cuda.is_available()
    model = (model.cuda() if gpu else model).eval()
    head, regression = cfg.criterion.classification_head_name, cfg.task.regression_target
    predictions = {}
    for split in splits:
        task.load_dataset(split)
        dataset = task.dataset(split)
        values = [""] * len(dataset)
        batches = task.get_batch_iterator(dataset, max_sentences=PREDICTED_TOGETHER, required_batch_size_multiple=1)
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
        predictions[split] = values
    return predictions
