"""Fine-tuning of a pre-trained encoder on a GLUE task: its data, its flags, its predictions and their metrics."""

import argparse
import hashlib
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ode_transformer.checkpoints.reading import load_checkpoint, saved_options
from ode_transformer.lab.glue.tasks import Example, GlueTask
from ode_transformer.lab.recipes.recipe import package_architectures
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory, write_files
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE, SubwordEncoder

WARMUP_FRACTION = 0.1
PREDICTED_TOGETHER = 64  # examples in a batch
_TASK_OPTIONS = {"max_positions", "load_checkpoint_heads"}


@dataclass(frozen=True)
class PreparedTask:
    """A task with its binary data.

    :param tables: examples of each split
    :param digest: digest of everything that the data were made from
    """

    task: GlueTask
    data: Path
    tables: Mapping[str, Sequence[Example]]
    digest: str


def prepare_task(
    task: GlueTask, tables: Mapping[str, Sequence[Example]], pieces: Path, output: Path, dry_run: bool = False
) -> PreparedTask:
    """Write the binary data of a task unless they are there.

    :param pieces: folder with the dictionary and the pieces of the pre-trained model
    """
    dictionary, model = pieces / "dict.txt", pieces / SENTENCEPIECE_FILE
    data, text = output / "data-bin" / task.name, output / "text" / task.name
    encoding = [dictionary.read_text(encoding="utf-8"), hashlib.sha256(model.read_bytes()).hexdigest()]
    jobs, request = Jobs(output / "text"), [task, tables, encoding]
    prepared = PreparedTask(task, data, tables, jobs.digest_of(request))
    if not dry_run:
        encode = SubwordEncoder("sentencepiece", model).encode
        with lock_directory(text, "preparing data"):
            jobs.run(f"binarise {task.name}", request, data, lambda: binarise(prepared, encode, dictionary, text))
    return prepared


def binarise(prepared: PreparedTask, encode: Callable[[str], str], dictionary: Path, text: Path) -> None:
    """Write encoded texts, then binary data in the layout of fairseq's task sentence_prediction.

    That has ``input0``, ``input1`` and ``label``; a second development set is called valid1.
    """
    tables, classes, binary = prepared.tables, prepared.task.classes, prepared.data
    inputs = [f"input{number}" for number in range(len(prepared.task.texts))]
    labelled_splits = [split for split in tables if not split.startswith("test")]
    files = {}
    for split, examples in tables.items():
        for number, name in enumerate(inputs):
            files[f"{split}.{name}"] = "".join(f"{encode(example.texts[number])}\n" for example in examples)
        if split in labelled_splits:
            files[f"{split}.label"] = "".join(f"{example.label}\n" for example in examples)
    if classes:
        files["classes.txt"] = "".join(f"{name} 1\n" for name in classes)
    write_files(text, files, last=f"train.{inputs[0]}")
    shutil.rmtree(binary, ignore_errors=True)
    for name in inputs:
        _preprocess(tables, name, text, dictionary, binary)
    if classes:
        _preprocess(labelled_splits, "label", text, text / "classes.txt", binary)
    else:
        (binary / "label").mkdir()
        for split in labelled_splits:
            shutil.copy(text / f"{split}.label", binary / "label")


def _preprocess(splits: Iterable[str], name: str, text: Path, dictionary: Path, binary: Path) -> None:
    options: dict[str, object] = {"only-source": True, "srcdict": dictionary, "destdir": binary / name}
    for kind in ("train", "valid", "test"):
        prefixes = [str(text / f"{split}.{name}") for split in splits if split.startswith(kind)]
        options[f"{kind}pref"] = ",".join(prefixes) or None
    commands.run(["fairseq-preprocess", *commands.flags(options)], text / f"preprocess-{name}.log")


def model_options(checkpoint: Path) -> dict[str, Any]:
    """Return the flags that rebuild the model of a checkpoint: its architecture and the options that differ from it."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    from ode_transformer.models import ODEBertModel
    from ode_transformer.models.admission import admitted_model
    from ode_transformer.models.model_from_options import model_flags

    state = load_checkpoint(checkpoint)
    saved = saved_options(state, "model")
    arch = str(saved.get("arch"))
    if ARCH_MODEL_REGISTRY.get(arch) is not ODEBertModel:
        allowed = ", ".join(package_architectures("masked_lm"))
        raise UserError(f"{checkpoint}: a model of --arch {arch}; what can be fine-tuned is {allowed}")
    saved, defaults = admitted_model(saved), argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](defaults)
    options: dict[str, Any] = {"arch": arch}
    for action in model_flags(arch):
        if action.dest in _TASK_OPTIONS or action.dest not in saved:
            continue
        value = saved[action.dest]
        if value != getattr(defaults, action.dest, action.default):
            options[action.option_strings[0].removeprefix("--")] = value
    return options | {"max-positions": saved["max_positions"]}


def training_options(prepared: PreparedTask, save_dir: Path, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of one fine-tuning: linear decay after a warm-up of a tenth of the updates.

    :param chosen: ``batch-size``, ``max-epoch``, ``lr`` and any other flag
    """
    updates = math.ceil(len(prepared.tables["train"]) / chosen["batch-size"]) * chosen["max-epoch"]
    return {
        "user-dir": commands.USER_DIR.get(),
        "task": "sentence_prediction",
        "criterion": "sentence_prediction",
        "num-classes": len(prepared.task.classes) or 1,
        "regression-target": not prepared.task.classes,
        "init-token": 0,  # <s>, in front as in pre-training; </s> ends each text and so separates two
        "shorten-method": "truncate",
        "distributed-world-size": 1,  # fairseq takes every GPU of the machine, and each would add to the batch
        "lr-scheduler": "polynomial_decay",
        "total-num-update": updates,
        "warmup-updates": math.ceil(WARMUP_FRACTION * updates),
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
    """Return the prediction for each example of each split, in the examples' order: a class, a number, or nan."""
    from fairseq import utils

    import ode_transformer.models  # noqa: F401  (registers the architectures)
    from ode_transformer.models.pretrained import build_model

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
                logits = model(**sample["net_input"], features_only=True, classification_head_name=head)[0].cpu()
            if regression:
                answers = [f"{value:.6f}" if math.isfinite(value) else "nan" for value in logits.view(-1).tolist()]
            else:
                labels = task.label_dictionary
                answers = [labels[row.argmax() + labels.nspecial] if row.isfinite().all() else "nan" for row in logits]
            for number, answer in zip(sample["id"].tolist(), answers, strict=True):
                values[number] = answer
        predictions[split] = values
    return predictions


# Metrics of the tasks, and the lowest value of each
LOWEST = {"matthews": -1.0, "accuracy": 0.0, "f1": 0.0, "pearson": -1.0, "spearman": -1.0}


def _measure(name: str, labels: Sequence[str], predictions: Sequence[str]) -> float:
    """Compute a metric; a correlation is 0 where all predictions are equal and it is not defined."""
    from scipy import stats
    from sklearn import metrics  # slow, as scipy

    if name in ("pearson", "spearman"):
        numbers = [[float(value) for value in values] for values in (predictions, labels)]
        return 0.0 if len(set(numbers[0])) < 2 else float(getattr(stats, f"{name}r")(*numbers)[0])
    if name == "f1":
        return float(metrics.f1_score(labels, predictions, pos_label="1", zero_division=0.0))
    function = metrics.matthews_corrcoef if name == "matthews" else metrics.accuracy_score
    return float(function(labels, predictions))


def evaluate(metrics: Sequence[str], predictions: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """Compute metrics in per cent (Lu et al. 2019, Table 2); each has its lowest value if a prediction is nan."""
    diverged = "nan" in predictions
    return {name: 100 * (LOWEST[name] if diverged else _measure(name, labels, predictions)) for name in metrics}
