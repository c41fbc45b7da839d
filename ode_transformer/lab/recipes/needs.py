"""Disk, time and memory that trainings will need, estimated from their models, numbers of updates and pairs."""

import math
import shutil
import time
from collections.abc import Sequence
from functools import cache

import torch
import yaml
from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel
from torch.nn import functional

from ode_transformer.decoding.operations import SENTENCE_LENGTH, count_forward_operations
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.models.model_from_options import build_outline
from ode_transformer.support import commands
from ode_transformer.support.files import read_json
from ode_transformer.support.yaml_file import CONFIGS

STEP_TOKENS = (64, 256, 1024)  # of steps that are measured, until one takes long
LONG_STEP = 1.0  # seconds
DEFAULT_DICTIONARY = 32_000  # entries, where the recipe says nothing of them
# Of each pair in each process: fairseq orders the pairs and lists them by batches (python benchmarks/corpus_cost.py)
BYTES_PER_PAIR = 190
LEAST_MEMORY = 1e9  # bytes that are worth a line


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


def processor_hours(experiment: Experiment, dictionaries: Sequence[int], sentence: int) -> float:
    """Estimate the hours of a training of known length on this processor, from a step that is measured now.

    :param dictionaries: sizes of the source's and the target's dictionary
    :param sentence: mean number of a sentence's tokens
    """
    batch, model = experiment.batch, build_outline(experiment.train_settings, dictionaries).train()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)

    def seconds_by_token(tokens: int) -> tuple[float, float]:
        """Return the time of a step with random words, and that by token."""
        length = min(sentence, tokens, batch.max_tokens)
        words = torch.randint(4, min(dictionaries), (min(tokens, batch.max_tokens) // length, length))  # [B, L]
        texts = {"src_tokens": words, "src_lengths": torch.full((len(words),), length)}
        if isinstance(model, FairseqEncoderDecoderModel):
            texts["prev_output_tokens"] = words
        start = time.perf_counter()
        functional.cross_entropy(model(**texts)[0].flatten(0, 1), words.flatten()).backward()
        seconds = time.perf_counter() - start
        return seconds, seconds / words.numel()

    threads = torch.get_num_threads()
    torch.set_num_threads(commands.threads_to_set(experiment.recipe.threads) or threads)
    try:
        seconds_by_token(STEP_TOKENS[0])  # the first step takes longer
        for tokens in STEP_TOKENS:
            seconds, by_token = seconds_by_token(tokens)
            if seconds > LONG_STEP:
                break
    finally:
        torch.set_num_threads(threads)
    return batch.tokens * (experiment.last_update() or 0) * by_token / 3600


def model_of(experiment: Experiment) -> BaseFairseqModel:
    """Build the outline of the model of an experiment; its dictionary has the published or the recipe's size."""
    recipe, vocabulary = experiment.recipe, experiment.recipe.vocabulary
    sizes = [recipe.counts.get("dictionary"), getattr(vocabulary, "merges", None), getattr(vocabulary, "size", None)]
    size = next(filter(None, sizes), DEFAULT_DICTIONARY)
    return build_outline(experiment.train_settings, [size] if vocabulary.joined else [size, size])


def batches_memory(experiment: Experiment) -> str:
    """Return a line on the memory that the processes of a machine need for the order of the pairs; "" if little."""
    data, machine = experiment.data, experiment.machine
    counted = data.folder / "counts.json"
    pairs = (read_json(counted) if counted.exists() else experiment.recipe.counts).get("train", 0)
    processes = machine.gpus or machine.cpu_processes
    if not data.parallel or (memory := BYTES_PER_PAIR * pairs * processes) < LEAST_MEMORY:
        return ""
    each = f", which each of {processes} processes keeps" if processes > 1 else ""
    return f"\nmemory: about {_rounded(memory / 1e9)} GB for the order of {pairs:,} pairs{each}"


def describe_needs(systems: Sequence[Sequence[Experiment]]) -> str:
    """Return in lines the disk, memory and time that systems need, each with an experiment for each seed."""
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
    needs = f"{disk}{batches_memory(systems[0][0])}"
    return f"{needs}\ntime: about {_rounded(hours)} hours{speed}{unknown}" if hours else needs


def describe_duration(hours: float) -> str:
    """Return an estimated time in minutes, hours or days."""
    for length, unit in ((24, "days"), (1, "hours")):
        if hours >= 2 * length:
            return f"{hours / length:.0f} {unit}"
    return f"{max(2, round(60 * hours))} minutes"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
