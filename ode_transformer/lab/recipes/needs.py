"""Disk and time that trainings will need, estimated from their models and numbers of updates."""

import math
import shutil
from collections.abc import Sequence
from functools import cache

import yaml
from fairseq.models import BaseFairseqModel

from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.models.model_from_options import SENTENCE_LENGTH, build_outline, count_forward_operations
from ode_transformer.support.yaml_file import CONFIGS

DEFAULT_DICTIONARY = 32_000  # entries, where the recipe says nothing of them


@cache
def gpu_speeds() -> list[dict[str, float]]:
    """Read ``configs/gpu_speed.yaml``, which explains its entries."""
    entries: list[dict[str, float]] = yaml.safe_load((CONFIGS / "gpu_speed.yaml").read_text(encoding="utf-8"))["speeds"]
    return entries


def training_hours(experiment: Experiment, model: BaseFairseqModel) -> float:
    """Estimate the hours of a training of known length on its GPUs, from the measurement that is nearest in size."""
    settings, batch = experiment.train_settings, experiment.batch
    width = getattr(settings, "encoder_embed_dim", None) or settings.decoder_embed_dim
    size = {"width": width, "tokens": batch.max_tokens}

    def distance(entry: dict[str, float]) -> list[float]:
        return [abs(math.log(value / entry[name])) for name, value in size.items()]

    nearest = min(gpu_speeds(), key=distance)
    operations = count_forward_operations(model) / SENTENCE_LENGTH
    speed = nearest["speed"] * nearest["operations"] / operations
    return batch.tokens * (experiment.last_update() or 0) / (speed * batch.processes) / 3600


def model_of(experiment: Experiment) -> BaseFairseqModel:
    """Build the outline of the model of an experiment; its dictionary has the published or the recipe's size."""
    recipe, vocabulary = experiment.recipe, experiment.recipe.vocabulary
    sizes = [recipe.counts.get("dictionary"), getattr(vocabulary, "merges", None), getattr(vocabulary, "size", None)]
    size = next(filter(None, sizes), DEFAULT_DICTIONARY)
    return build_outline(experiment.train_settings, [size] if vocabulary.joined else [size, size])


def describe_needs(systems: Sequence[Sequence[Experiment]]) -> str:
    """Return in lines the disk and the time that systems need, each with an experiment for each seed."""
    all_checkpoints, largest, models, hours, untimed = 0.0, 0.0, 0.0, 0.0, 0
    for experiments in systems:
        first, model = experiments[0], model_of(experiments[0])
        parameters = sum(weight.numel() for weight in model.parameters())
        # Checkpoints have a parameter and two moments in FP32; in half precision the parameter is half as long.
        checkpoint = parameters * (12 if first.machine.precision == "fp32" else 10)
        run = checkpoint * (2 + (first.recipe.average.last or 0))  # the last one and the best one beside the averaged
        all_checkpoints, largest = all_checkpoints + len(experiments) * run, max(largest, run)
        models += len(experiments) * 4 * parameters
        if first.options.minutes:
            hours += len(experiments) * first.options.minutes / 60
        elif first.machine.gpus and first.last_update():
            hours += len(experiments) * training_hours(first, model)
        else:
            untimed += len(experiments)
    output = next(folder for folder in systems[0][0].folder.absolute().parents if folder.exists())
    sizes = [all_checkpoints + models, shutil.disk_usage(output).free, largest + models]
    needed, free, least = (_rounded(size / 1e9) for size in sizes)
    fewer = f"; with --model-only about {least} GB" if least != needed else ""
    disk = f"disk: about {needed} GB of checkpoints; {free} GB are free{fewer}"
    speed = " on GPUs as fast as an H200, with CUDA graphs (docs/results/speed.md)" if first.machine.gpus else ""
    unknown = f"; without {untimed} of the trainings, whose time is unknown" if untimed else ""
    return f"{disk}\ntime: about {_rounded(hours)} hours{speed}{unknown}" if hours else disk


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
