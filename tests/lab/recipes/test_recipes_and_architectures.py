"""Every recipe with every architecture: the command that would train, as fairseq reads it, and the model it builds.

Every pair of one task is possible, because all architectures take separate dictionaries as well as a joined one; what
needs a joined one, --share-all-embeddings, may stand only in a recipe that joins.
"""

import math
import re
from argparse import Namespace
from ast import literal_eval
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import Tensor

from ode_transformer.lab.analysis.layer_replacement import see_layers
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.options import RunOptions, find_recipe, recipe_names
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.recipe import (
    Flags,
    FlagValue,
    PublishedResult,
    Recipe,
    package_architectures,
    read_recipe,
)
from ode_transformer.models.model_from_options import build_from_options, build_outline, model_flags
from ode_transformer.nn.layer import STACKS
from ode_transformer.nn.layer_hooks import depth_stacks, removed_afterwards
from ode_transformer.support import commands

RECIPES = recipe_names()
BASELINES = {  # fairseq's own
    "translation": [
        *("transformer_tiny", "transformer_iwslt_de_en"),
        *("transformer_wmt_en_de", "transformer_vaswani_wmt_en_de_big"),
    ],
    "language_modeling": ["transformer_lm"],
    "masked_lm": [],
}
ONE_GPU = Machine(1, "fp16")


@cache
def recipe_of(name: str) -> Recipe:
    return read_recipe(find_recipe(name))


@cache
def suitable(task: str) -> list[str]:
    return [*package_architectures(task), *BASELINES[task]]


def experiment(name: str, arch: str | None, variant: str | None = None, train_flags: Sequence[str] = ()) -> Experiment:
    recipe = recipe_of(name).for_arch(arch, variant)
    options = RunOptions(variant=variant, train_flags=tuple(train_flags))
    return Experiment(recipe, RecipeData(recipe, Path(name)), ONE_GPU, options)


# -- commands -----------------------------------------------------------------------------------------------------


def different_commands(name: str) -> Iterable[str]:
    """Return an architecture for each class of models with the same flags in a recipe."""
    chosen = {}
    for arch in suitable(recipe_of(name).task):
        recipe = recipe_of(name).for_arch(arch)
        chosen[ARCH_MODEL_REGISTRY[arch], recipe.model_copy(update={"arch": ""}).model_dump_json()] = arch
    return chosen.values()


@pytest.mark.parametrize("name", RECIPES)
def test_fairseq_takes_every_command_and_the_training_can_go_its_way(name: str) -> None:
    for arch in different_commands(name):
        made = experiment(name, arch)
        recipe, args = made.recipe, made.train_settings
        assert args.arch == arch
        assert args.max_tokens * args.update_freq[0] * args.distributed_world_size == made.batch.tokens
        assert int(args.max_tokens_valid) >= 1024  # what validation refuses, no model takes
        if recipe.task == "masked_lm":
            assert (args.lr_scheduler, int(args.total_num_update)) == ("polynomial_decay", args.max_update)
            continue
        # fairseq ends where the rate is not above stop-min-lr, also before the first update.
        start = args.warmup_init_lr if args.warmup_init_lr >= 0 else 0
        assert args.stop_min_lr < start < args.lr[0] or (start == 0 and args.stop_min_lr < 0), arch
        assert args.lr_scheduler == "inverse_sqrt"
        assert args.warmup_updates < (args.max_update or math.inf)
        assert args.max_update or args.max_epoch or args.stop_time_hours < math.inf
        first, second = literal_eval(args.adam_betas)
        assert 0.8 <= first < second < 1
        assert not getattr(args, "share_all_embeddings", False) or recipe.vocabulary.joined, arch
        kept = (args.keep_last_epochs, args.keep_interval_updates)
        assert recipe.average.best or recipe.average.last in kept
        for flag, value in recipe.train.items():
            if isinstance(value, float) and flag != "lr":
                assert getattr(args, flag.replace("-", "_")) == value, flag


# -- models -------------------------------------------------------------------------------------------------------


# The usual preparation of IWSLT'14; of NIST the merges of each side, and characters of Chinese.
NIST = recipe_of("nist_zh_en").vocabulary.merges
DICTIONARIES = {"iwslt14_de_en": (8848, 6632), "nist_zh_en": (NIST + 4_600, NIST)}
RESULTS = [(name, entry) for name in RECIPES for entry in recipe_of(name).expected]


def published(name: str, entry: PublishedResult) -> Experiment:
    return experiment(name, entry.arch, variant=entry.variant, train_flags=commands.flags(entry.flags))


def title(value: object) -> str:
    return f"{value.system} {value.arch}" if isinstance(value, PublishedResult) else str(value)


@pytest.mark.parametrize(("name", "entry"), [(n, e) for n, e in RESULTS if e.parameters is not None], ids=title)
def test_published_counts_of_parameters(name: str, entry: PublishedResult) -> None:
    """As the papers print them: whole millions, the rest cut off."""
    size = recipe_of(name).counts.get("dictionary", 0)
    model = build_outline(published(name, entry).train_settings, DICTIONARIES.get(name, (size, size)))
    assert sum(parameter.numel() for parameter in model.parameters()) // 10**6 == entry.parameters


@cache
def narrow_options(arch: str, flags: frozenset[tuple[str, FlagValue]]) -> Namespace:
    """Return the options of a narrow model of the same depth, with one layer of the decoder beside an encoder."""
    args = Namespace(**{name.replace("-", "_"): value for name, value in flags})
    ARCH_CONFIG_REGISTRY[arch](args)
    args.arch, args.decoder_input_dim, args.decoder_output_dim = arch, 32, 32
    for name in STACKS:
        for size, value in {"embed_dim": 32, "ffn_embed_dim": 64, "attention_heads": 2}.items():
            setattr(args, f"{name}_{size}", value)
    args.measured, other = STACKS if "_lm_" not in arch else STACKS[::-1]
    args.depth = getattr(args, f"{args.measured}_layers")
    if args.measured == "encoder":
        args.decoder_layers = 1
    unused = re.compile(rf"arch$|depth$|{args.measured}_layers|{other}_|share_|max_source|.*dropout")
    options = {name: value for name, value in vars(args).items() if not unused.match(name)}
    args.kind = ARCH_MODEL_REGISTRY[arch], repr(sorted(options.items()))
    return args


def largest_state(args: Namespace) -> float:
    """Return the largest number between the layers of a new encoder or language model."""
    torch.manual_seed(1)
    model, numbers = build_from_options(args, 40).eval(), [0.0]

    def see(layer: object, inputs: Sequence[Tensor], outputs: Sequence[Tensor], padding: object) -> None:
        numbers.extend(float(state.abs().max()) for state in (*inputs, *outputs))

    handles = [handle for each in depth_stacks(model).values() for handle in see_layers(each, see)]
    with torch.no_grad(), removed_afterwards(handles):
        getattr(model, args.measured)(torch.arange(4, 24).view(1, 20), None)
    return max(numbers)


def options_of(recipe: Recipe, arch: str, variant: str | None, flags: Flags) -> Namespace:
    of_model = {name for action in model_flags(arch) for name in action.option_strings}
    of_depth = re.compile("--(?!share|.*dropout)")
    train = recipe.for_arch(arch, variant).train | flags
    chosen = {name: value for name, value in train.items() if f"--{name}" in of_model and of_depth.match(f"--{name}")}
    return narrow_options(arch, frozenset(chosen.items()))


@pytest.mark.slow
def test_no_encoder_starts_with_numbers_that_fp16_cannot_keep() -> None:
    """The deepest of each kind, because the numbers grow from layer to layer."""
    deepest: dict[object, Namespace] = {}
    for recipe in filter(lambda recipe: recipe.task != "masked_lm", map(recipe_of, RECIPES)):
        ours = package_architectures(recipe.task)
        systems: list[tuple[str, str | None, Flags]] = [(arch, None, {}) for arch in ours]
        for variant, patterns in recipe.variants.items():
            matching = [arch for arch in ours if any(fnmatchcase(arch, pattern) for pattern in patterns)]
            systems += [(arch, variant, {}) for arch in matching]
        systems += [(entry.arch, entry.variant, entry.flags) for entry in recipe.expected if entry.arch in ours]
        for args in (options_of(recipe, *system) for system in systems):
            deepest[args.kind] = max(args, deepest.get(args.kind, args), key=lambda args: args.depth)
    assert [vars(args) for args in deepest.values() if largest_state(args) > 100] == []


@pytest.mark.parametrize("name", RECIPES)
def test_every_published_system_is_another_training(name: str) -> None:
    rows = [(entry.table, published(name, entry).folder) for entry in recipe_of(name).expected]
    assert len(set(rows)) == len(rows)  # a system can stand in several tables
