"""``ode-transformer new``: a recipe for a user's own text."""

import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from ode_transformer.support.commands import user_dir_flags
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError, list_numbers
from ode_transformer.support.files import check_writable, write_text

SPLITS = ("train", "valid", "test")


def run(args: Namespace) -> None:
    """Count the text, write the recipe and say how it is run."""
    from ode_transformer.lab.recipes.recipe import Recipe, check_architecture

    path = Path(f"{args.name.removesuffix('.yaml')}.yaml")
    if path.exists():
        raise UserError(f"{path}: exists already; remove it, or choose another name")
    check_writable(path)
    files = {split: getattr(args, split) for split in SPLITS if getattr(args, split)}
    one_file_kind = "corrections" if plain_name(files["train"][0]).endswith(".m2") else "text"
    kind = args.kind or ("translation" if len(files["train"]) > 1 else one_file_kind)
    sides = 2 if kind in ("translation", "summaries") else 1
    for split, paths in files.items():
        if len(paths) != sides:
            expected = "source and target" if sides == 2 else "one file"
            raise UserError(f"--{split} {shlex.join(map(str, paths))}: expected {expected} for --kind {kind}")
    if sides == 2:
        refuse_other_languages(files)
    if args.arch is not None:
        check_architecture(args.arch, "language_modeling" if kind == "text" else "translation", f"--arch {args.arch}")
    if args.library and kind == "text":
        raise UserError(f"--for {args.library}: it takes no language model")
    from ode_transformer.lab.recipes.experiment import Experiment
    from ode_transformer.lab.recipes.machine import Machine
    from ode_transformer.lab.recipes.needs import describe_duration, model_of, processor_hours, training_hours
    from ode_transformer.lab.recipes.own_recipe import (
        CHARACTERS_PER_TOKEN,
        LONG_LINE,
        UNITS,
        OwnRecipe,
        count_text,
        is_table,
        plan_training,
    )
    from ode_transformer.lab.recipes.preparation import LONG_LINE_OUTCOMES, RecipeData

    if args.kind is None and kind == "text":
        for split, (file,) in files.items():
            if is_table(file):
                advice = f"give each column as a file (cut -f 1 {file}), or --kind text for a model of such lines"
                raise UserError(f"--{split} {file}: a table, with a tab in each line: {advice}")
    counts = {split: count_text(kind, paths) for split, paths in files.items()}
    plan, unit = plan_training(kind, counts["train"]), UNITS[kind]
    arch = f"ode_transformer_ones_{plan.scale.suffix}" if args.library else args.arch
    recipe = OwnRecipe(kind, path, files, side_names(kind, files["train"]), plan, arch)
    command = shlex.join(["ode-transformer", "reproduce", str(path), *user_dir_flags()])
    comments = [
        f"ode-transformer {shlex.join(args.words)}",
        f"{counts['train'].lines:,} {unit} with {sum(counts['train'].characters):,} characters. "
        "Files are relative to this one.",
        f"Run it: {command}",
    ]
    text = recipe.text(comments)
    read = Recipe.model_validate(yaml.safe_load(text)).for_arch(None)
    data = RecipeData(read, path.parent)
    on_processor, on_gpu = (Experiment(read, data, machine) for machine in (Machine(0), Machine(1, large_gpus=True)))
    model = on_processor.model_description([plan.pieces])
    write_text(path, text)
    uses = Counter(path.resolve() for paths in files.values() for path in paths)
    for file in (file for file, count in uses.items() if count > 1):
        print_progress(f"warning: {file}: the same file for several splits or sides")
    for split, outcome in LONG_LINE_OUTCOMES.items():
        for file, numbers in counts[split].long_lines.items() if split in counts else ():
            lines = f"{LONG_LINE:,} characters or more in line {list_numbers(numbers)}"
            print_progress(f"warning: {file}: {lines}, probably too long for the model: {outcome}")
    print(f"{path}: {', '.join(f'{count.lines:,} {unit} ({split})' for split, count in counts.items())}")
    if "test" not in files:
        print("no --test: the scores will be those of the validation text")
    print(f"{model} with at most {plan.pieces:,} pieces, {plan.updates:,} updates of {plan.tokens_per_update:,} tokens")
    # A validation at the end of each pass reads its text once, without the backward pass.
    whole = 1 + max(counts["valid"].characters) / max(counts["train"].characters) / 3
    sentence = round(max(counts["train"].characters) / CHARACTERS_PER_TOKEN / counts["train"].lines)
    hours = processor_hours(on_processor, [plan.pieces], max(sentence, 1)), training_hours(on_gpu, model_of(on_gpu))
    times = [describe_duration(whole * of_machine) for of_machine in hours]
    print(f"training: about {times[0]} on this processor, as busy as it is; {times[1]} on a GPU like an H200")
    if arch is None and kind != "text":
        print("to export to CTranslate2, which has no such layers: --for ctranslate2 chooses another model")
    print(f"next: {command}")


def refuse_other_languages(files: Mapping[str, Sequence[Path]]) -> None:
    """Refuse a split whose files are in other languages than those of the training, or in another order.

    Endings other than two letters need not be languages: they are refused only if they are those of the other side.

    :raises UserError: the ending of a file contradicts that of the training
    """
    expected = [suffix(path) for path in files["train"]]
    for split, paths in files.items():
        names = [suffix(path) for path in paths]
        are_languages = all(len(name) == 2 and name.isalpha() for name in (*expected, *names))
        is_swapped = expected[0] != expected[1] and (names[0] == expected[1] or names[1] == expected[0])
        if is_swapped or (are_languages and names != expected):
            given, order = shlex.join(map(str, paths)), " and ".join(f".{name}" for name in expected)
            raise UserError(f"--{split} {given}: expected files in {order}, in this order, as those of --train")


def suffix(path: Path) -> str:
    """Return the ending of a file's name, which is mostly its language, without that of its compression."""
    return Path(plain_name(path)).suffix.removeprefix(".")


def side_names(kind: str, paths: list[Path]) -> tuple[str, str]:
    """Return the suffixes of two files, which are mostly languages, or source and target if they do not tell."""
    suffixes = tuple(map(suffix, paths))
    if kind == "translation" and all(name.isalnum() for name in suffixes) and len(set(suffixes)) == 2:
        return suffixes[0], suffixes[1]
    return "source", "target"


def plain_name(path: Path) -> str:
    """Return the name of a file without the suffix of its compression."""
    return path.name.removesuffix(".gz")
