"""``ode-transformer score``: scores of a system's output, with the settings that the numbers depend on.

A score carries its signature, because flavours of one metric differ by more than systems do. Several systems are
compared with the first of them by the paired bootstrap test (``significance``).
"""

import argparse
import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from ode_transformer.lab.metrics import significance
from ode_transformer.lab.metrics.metric import Lines, Score, SentenceStatistics, Settings
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.lab.metrics.rouge import SENTENCES
from ode_transformer.lab.metrics.translation_scores import FLAVOURS, TOKENIZERS
from ode_transformer.support.arguments import add_pieces_argument, flag_name, positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.generate_log import UNKNOWN_REFERENCE, read_generate_log
from ode_transformer.support.lines import read_lines
from ode_transformer.support.subword_models import join_output, join_references

OUTPUTS = ("hypotheses", "generate_log")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer score``."""
    add = parser.add_argument
    add("--metric", required=True, nargs="+", choices=METRICS, help="one or several metrics")
    add_output, several = parser.add_mutually_exclusive_group().add_argument, "; several are compared with the first"
    files: dict[str, Any] = {"type": Path, "nargs": "+", "metavar": "FILE"}
    add_output("--hypotheses", **files, help=f"a system's output, one sentence per line{several}")
    add_output("--generate-log", **files, help=f"log of fairseq-generate{several}")
    references = "the correct output (default: the log's T- lines). bleu, chrf: several files, if several are correct"
    add("--references", **files, help=references)
    add_pieces_argument(parser)
    add("--json", action="store_true", help="print a JSON object for each score")
    add = parser.add_argument_group("bleu, chrf").add_argument
    tokenizer = "bleu: sacrebleu's tokenizer (default: its choice for the language, mostly 13a; none: as multi-bleu)"
    add("--tokenize", choices=TOKENIZERS, help=tokenizer)
    add("--lowercase", action="store_true", help="ignore case")
    compounds = "bleu: split compounds at hyphens (##AT##-##AT##) on both sides"
    add("--compound-split", action="store_true", help=compounds)
    flavour = (
        "bleu: all settings of a published score; the references are text. get_ende_bleu: tensor2tensor's script for "
        "WMT'14 English-German, whose scores most papers print; macaron: the script of Macaron Net's release"
    )
    add("--flavour", choices=FLAVOURS, help=flavour)
    add("--detokenize", metavar="LANG", help="join the Moses tokens of the hypotheses to text of this language")
    sentences = "how a line is divided into sentences, for ROUGE-L (default: period, after each '. ')"
    parser.add_argument_group("rouge").add_argument("--sentences", choices=SENTENCES, help=sentences)
    add = parser.add_argument_group("perplexity").add_argument
    add("--eval-lm-log", type=Path, metavar="FILE", help="log of fairseq-eval-lm")
    pieces = "the model reads pieces; the score is per word of --references, whatever the pieces"
    add("--pieces", action="store_true", help=pieces)
    add = parser.add_argument_group("m2, errant").add_argument
    add("--gold", type=Path, metavar="FILE", help="M2 file of annotated corrections")
    add = parser.add_argument_group("several systems").add_argument
    runs = "N files in turn are the seeds of a system; seeds are tested, too (default: 1)"
    add("--runs", type=positive_int, metavar="N", help=runs)
    samples = f"number of samples of the test (default: {significance.SAMPLES})"
    add("--bootstrap-samples", type=positive_int, metavar="N", help=samples)
    add("--seed", type=positive_int, help=f"seed of the samples (default: {significance.SEED})")
    parser.epilog = "A file - is standard input."


def parse_settings(args: argparse.Namespace) -> Settings:
    """Return the settings of the command line, without the references, which are read later."""
    metrics = [METRICS[name] for name in args.metric]
    values = {field.name: value for field in fields(Settings) if (value := getattr(args, field.name, None))}
    output = next((name for name in OUTPUTS if getattr(args, name)), None)
    options = {name: flag_name(name) for name in values}
    if output:
        options["hypotheses"] = flag_name(output)
    if len(args.references or []) > 1:
        options["more_references"] = "more than one file of --references"
    for name, option in options.items():
        if not any(metric.uses(name) for metric in metrics):
            users = (user for user, metric in METRICS.items() if metric.uses(name))
            raise UserError(f"{option} goes with --metric {' or '.join(users)}")
    present = {*options, *(["references"] if args.generate_log else [])}
    for user, metric in zip(args.metric, metrics, strict=True):
        if missing := [name for name in metric.needs if name not in present]:
            flags = OUTPUTS if missing[0] == "hypotheses" else missing[:1]
            raise UserError(f"--metric {user} needs {' or '.join(map(flag_name, flags))}")
    return Settings(**{name: value for name, value in values.items() if name != "references"})


def read_system(
    path: Path | None, args: argparse.Namespace, settings: Settings, references: Sequence[Lines]
) -> tuple[Lines, Settings]:
    """Read the hypotheses of one system; return them and the settings with the references.

    :param path: None if no metric needs hypotheses
    :param references: lines of the files of ``--references``; if there are none and a metric needs references, those
        of the log are used
    """
    paired = any({"hypotheses", "references"} <= set(METRICS[name].needs) for name in args.metric)
    hypotheses: Lines = []
    if path is not None and args.generate_log is None:
        hypotheses = join_output(read_lines(path), args.remove_bpe, str(path))
    elif path is not None:
        translations = read_generate_log(path, args.remove_bpe)
        hypotheses = [translation.hypothesis for translation in translations]
        if not references and paired:
            log_references = [line.reference for line in translations if line.reference is not None]
            # Metrics with words of their own divide the mark, and find parts of it in the hypotheses.
            divides = {"chrf", "rouge", *(["bleu"] if settings.tokenize != "none" else [])} & set(args.metric)
            has_unknown_words = divides and any(UNKNOWN_REFERENCE in reference for reference in log_references)
            if has_unknown_words or len(log_references) < len(translations):
                lack = "have unknown words" if has_unknown_words else "are not there for every sentence"
                raise UserError(f"{path}: its references (T-) {lack}: give --references")
            references = [log_references]
    if references:
        settings = replace(settings, references=references[0], more_references=tuple(references[1:]))
    return hypotheses, settings


def read_systems(args: argparse.Namespace) -> list[tuple[Lines, Settings]]:
    """Read the hypotheses of each system; return them and the settings with the references."""
    settings = parse_settings(args)
    references = [join_references(read_lines(path), args.remove_bpe, str(path)) for path in args.references or []]
    return [read_system(path, args, settings, references) for path in args.hypotheses or args.generate_log or [None]]


def parse_recorded(command: Sequence[object]) -> argparse.Namespace:
    """Parse ``ode-transformer score …`` as a run recorded it."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        return parser.parse_args([str(word) for word in command[2:]])
    raise UserError(f"not a command of ode-transformer score: {' '.join(map(str, command))}")


def read_statistics(score_command: Sequence[object]) -> SentenceStatistics:
    """Return the statistics of the sentences that a command ``ode-transformer score`` of one metric scores."""
    args = parse_recorded(score_command)
    (metric,) = args.metric
    return METRICS[metric].sentence_statistics(*read_systems(args)[0])


def run(args: argparse.Namespace) -> None:
    """Print the requested scores, one per line."""
    systems = read_systems(args)
    if len(systems) > 1:
        compare_outputs(args, args.hypotheses or args.generate_log, systems)
        return
    for name in args.metric:
        for score in METRICS[name](*systems[0]):
            print(json.dumps(asdict(score)) if args.json else score)


def compare_outputs(args: argparse.Namespace, paths: Sequence[Path], systems: Sequence[tuple[Lines, Settings]]) -> None:
    """Print the scores of several systems, each with the paired bootstrap test against the first."""
    compared = [name for name, metric in METRICS.items() if metric.statistics]
    for name in args.metric:
        if name not in compared:
            raise UserError(f"--metric {name}: systems are compared by {', '.join(compared)}; score one at a time")
    _, settings = systems[0]
    for path, (_, system_settings) in zip(paths, systems, strict=True):
        if system_settings != settings:
            raise UserError(f"{path}: its references (T-) are not those of {paths[0]}")
    runs, outputs = args.runs or 1, [hypotheses for hypotheses, _ in systems]
    if len(paths) % runs or len(paths) == runs:
        raise UserError(f"--runs {runs}: {len(paths)} files are not two or more systems of {runs} runs")
    samples, seed = args.bootstrap_samples or significance.SAMPLES, args.seed or significance.SEED
    for name in args.metric:
        metric = METRICS[name]
        statistics = [metric.sentence_statistics(hypotheses, settings) for hypotheses in outputs]
        scores = [of_system.total() for of_system in statistics]
        starts = range(0, len(paths), runs)
        results = significance.paired_bootstrap([statistics[start : start + runs] for start in starts], samples, seed)
        values = {str(start): [score.value for score in scores[start : start + runs]] for start in starts}
        over_seeds = significance.compare_systems(values, "0", scores[0].metric) if runs > 1 else {}
        for start, result in zip(starts, results, strict=True):
            of_system = slice(start, start + runs)
            print_compared(args, paths[of_system], scores[of_system], result, over_seeds.get(str(start)), paths[0])


def print_compared(
    args: argparse.Namespace,
    paths: Sequence[Path],
    scores: Sequence[Score],
    result: significance.BootstrapResult,
    over_seeds: significance.Comparison | None,
    first: Path,
) -> None:
    """Print the scores of a system's runs and its tests: a line, or a line for each run and one for their mean."""
    if args.json:
        of_runs = [{**asdict(score), "system": str(path)} for path, score in zip(paths, scores, strict=True)]
        record = of_runs[0] if len(of_runs) == 1 else {"metric": scores[0].metric, "runs": of_runs}
        seeds = {"seeds": asdict(over_seeds)} if over_seeds else {}
        print(json.dumps({**record, "bootstrap": asdict(result), **seeds}))
        return
    further_runs = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    test = f"{result.samples} draws, seed {result.seed}: {result}"
    test += f"; over seeds {over_seeds}" if over_seeds else ""
    test += "" if result.difference is None else f" against {first}{further_runs}"
    if not further_runs:
        print(f"{paths[0]}: {scores[0]}; {test}")
        return
    for path, score in zip(paths, scores, strict=True):
        print(f"{path}: {score}")
    mean = significance.mean_text([score.value for score in scores])
    print(f"{paths[0]}{further_runs}: {scores[0].metric} {mean}; {test}")
