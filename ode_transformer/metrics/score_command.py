"""``ode-transformer score``: how good a system's output is, with the settings that the number depends on.

A score carries its signature: flavours of one measure differ by more than systems do. Several systems are
compared with the first of them by the paired bootstrap test (``significance``).
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from ode_transformer.metrics.metric import Lines, Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.metrics.rouge import SENTENCES
from ode_transformer.metrics.translation_scores import TOKENIZERS
from ode_transformer.support.arguments import language_code, positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.generate_log import read_generate_log
from ode_transformer.support.lines import read_lines

OUTPUTS = ("hypotheses", "generate_log")
FILES = (*OUTPUTS, "references", "eval_lm_log", "gold")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer score``."""
    parser.add_argument("--metric", required=True, nargs="+", choices=METRICS, help="one or several measures")
    output = parser.add_mutually_exclusive_group()
    several = "; several are compared with the first"
    output.add_argument(
        "--hypotheses", type=Path, nargs="+", metavar="FILE", help=f"a system's output, a sentence a line{several}"
    )
    output.add_argument(
        "--generate-log", type=Path, nargs="+", metavar="FILE", help=f"what fairseq-generate printed{several}"
    )
    parser.add_argument(
        "--references",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="the right output; by default the log's own T- lines. bleu, chrf: several, if others are as right",
    )
    parser.add_argument("--tokenize", choices=TOKENIZERS, help="bleu: the flavour (default: 13a; none: as multi-bleu)")
    parser.add_argument("--lowercase", action="store_true", help="bleu, chrf: ignore case")
    parser.add_argument(
        "--compound-split", action="store_true", help="bleu: divide compounds at hyphens (##AT##-##AT##), both sides"
    )
    parser.add_argument(
        "--detokenize",
        type=language_code,
        metavar="LANG",
        help="bleu, chrf: join the hypotheses' Moses tokens to text of this language",
    )
    parser.add_argument(
        "--sentences",
        choices=SENTENCES,
        help="rouge: what divides a line, for ROUGE-L (default: period, after each '. ')",
    )
    parser.add_argument("--eval-lm-log", type=Path, metavar="FILE", help="perplexity: what fairseq-eval-lm printed")
    parser.add_argument("--gold", type=Path, metavar="FILE", help="m2, errant: the M2 file of annotated corrections")
    parser.add_argument("-v", "--verbose", action="store_true", help="m2: the edits found in every sentence, too")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each score")
    parser.add_argument(
        "--bootstrap-samples", type=positive_int, metavar="N", help="several systems: draws of the test (default: 1000)"
    )
    parser.add_argument("--seed", type=positive_int, help="several systems: of the draws (default: 12345)")
    parser.epilog = "A file - is standard input."


def flag(name: str) -> str:
    """The option that sets a field."""
    return f"--{name.replace('_', '-')}"


def chosen_settings(args: argparse.Namespace) -> Settings:
    """The settings of the command line, of which each is read by a measure that is asked for.

    The references are to be read yet.

    :raises UserError: one is read by none of them, or one is missing
    """
    asked = [METRICS[name] for name in args.metric]
    given = {field.name: value for field in fields(Settings) if (value := getattr(args, field.name, None))}
    output = next((name for name in OUTPUTS if getattr(args, name)), None)
    options = {name: flag(name) for name in given}
    if output:
        options["hypotheses"] = flag(output)
    if len(args.references or []) > 1:
        options["more_references"] = "more than one file of --references"
    for name, option in options.items():
        if not any(metric.reads(name) for metric in asked):
            users = (user for user, metric in METRICS.items() if metric.reads(name))
            raise UserError(f"{option} goes with --metric {' or '.join(users)}")
    for user, metric in zip(args.metric, asked, strict=True):
        for name in metric.needs:
            if name == "hypotheses" and not output:
                raise UserError(f"--metric {user} needs {' or '.join(map(flag, OUTPUTS))}")
            if name == "references" and name not in given and not args.generate_log:
                raise UserError(f"--metric {user} needs --references")
            if name not in (*options, "references"):
                raise UserError(f"--metric {user} needs {flag(name)}")
    return Settings(**{name: value for name, value in given.items() if name != "references"})


def refuse_several_inputs(args: argparse.Namespace) -> None:
    """Standard input can be read once.

    :raises UserError: several files are ``-``
    """
    files: list[Path] = []
    for name in FILES:
        value = getattr(args, name)
        files += value if isinstance(value, list) else [value] if value else []
    if files.count(Path("-")) > 1:
        raise UserError("- is standard input, which is read once: give the other files by name")


def read_system(
    path: Path | None, args: argparse.Namespace, settings: Settings, references: Sequence[Lines]
) -> tuple[Lines, Settings]:
    """Hypotheses of one system, and the settings with the references.

    :param path: None where no measure needs hypotheses
    :param references: of the files that are named; where there are none, a log's own are taken, if a measure needs any
    :raises UserError: there are more hypotheses than references, or fewer
    """
    paired = any({"hypotheses", "references"} <= set(METRICS[name].needs) for name in args.metric)
    hypotheses: Lines = []
    if path is not None and args.generate_log is None:
        hypotheses = read_lines(path)
    elif path is not None:
        translations = read_generate_log(path)
        hypotheses = [translation.hypothesis for translation in translations]
        if not references and paired:
            own = [translation.reference for translation in translations if translation.reference is not None]
            if len(own) < len(translations):
                raise UserError(f"{path}: not every sentence has a reference (T-): give --references")
            references = [own]
    for lines in references if paired else []:
        if len(hypotheses) != len(lines):
            raise UserError(f"{path}: {len(hypotheses)} hypotheses, but {len(lines)} references")
    if references:
        settings = replace(settings, references=references[0], more_references=tuple(references[1:]))
    return hypotheses, settings


def run(args: argparse.Namespace) -> int:
    """Print the asked scores, one a line."""
    refuse_several_inputs(args)
    if args.verbose and args.json:
        raise UserError("--verbose is text: it does not go with --json")
    settings = chosen_settings(args)
    references = [read_lines(path) for path in args.references or []]
    names = args.hypotheses or args.generate_log or [None]
    systems = [read_system(path, args, settings, references) for path in names]
    if len(names) > 1:
        return compare(args, names, systems)
    for option in ("bootstrap_samples", "seed"):
        if getattr(args, option):
            raise UserError(f"{flag(option)} is for comparing systems: name several")
    for name in args.metric:
        for score in METRICS[name](*systems[0]):
            print(json.dumps(asdict(score)) if args.json else score)
    return 0


def compare(args: argparse.Namespace, names: Sequence[Path], systems: Sequence[tuple[Lines, Settings]]) -> int:
    """Print the scores of several systems, each with the paired bootstrap test against the first."""
    tests = {name: metric.compare for name, metric in METRICS.items() if metric.compare}
    for name in args.metric:
        if name not in tests:
            raise UserError(f"--metric {name}: systems are compared by {' and '.join(tests)}; score one at a time")
    _, settings = systems[0]
    for path, (_, own) in zip(names, systems, strict=True):
        if own != settings:
            raise UserError(f"{path}: its references (T-) are not those of {names[0]}")
    outputs = [hypotheses for hypotheses, _ in systems]
    samples, seed = args.bootstrap_samples or 1000, args.seed or 12345
    for name in args.metric:
        metric = METRICS[name]
        scores = [metric(hypotheses, settings)[0] for hypotheses in outputs]
        resampled = tests[name](outputs, metric.own(settings), samples, seed)
        for path, score, found in zip(names, scores, resampled, strict=True):
            if args.json:
                print(json.dumps({**asdict(score), "system": str(path), "bootstrap": asdict(found)}))
            else:
                against = "" if found.p_value is None else f" against {names[0]}"
                print(f"{path}: {score}; {samples} draws, seed {seed}: {found}{against}")
    return 0
