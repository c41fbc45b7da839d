"""``ode-transformer score``: how good a system's output is, with the settings that the number depends on.

BLEU and chrF are sacrebleu's, over the whole corpus, and carry its signature: flavours differ by up to 1.5
BLEU. For spelling to phonemes, with tokens separated by spaces and one word per line:

    phoneme error rate = summed edit distance / summed length of the references
    word error rate    = share of the words with at least one error

Several systems are compared with the first of them by the paired bootstrap test (``significance``).
"""

import argparse
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ode_transformer.arguments import positive_int
from ode_transformer.errors import UserError
from ode_transformer.evaluation.generate_log import read_generate_log
from ode_transformer.evaluation.lines import read_lines
from ode_transformer.evaluation.significance import paired_bootstrap

TOKENIZERS = ("13a", "intl", "none")


@dataclass(frozen=True)
class Score:
    """One measured number.

    :param value: in per cent; an error rate can exceed 100
    :param signature: the settings without which the number means nothing
    :param detail: what the number is made of
    :param sentences: how many lines were scored
    """

    metric: str
    value: float
    signature: str
    detail: str
    sentences: int

    def __str__(self) -> str:
        return f"{self.metric} {self.value:.2f} ({self.detail}; {self.sentences} lines; {self.signature})"


def edit_distance(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and substitutions that turn ``left`` into ``right`` (Levenshtein)."""
    above = list(range(len(right) + 1))  # above[j]: distance of left[:i] and right[:j]
    for i, x in enumerate(left, start=1):
        row = [i]
        for j, y in enumerate(right, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
        above = row
    return above[-1]


def bleu_metric(tokenize: str, lowercase: bool) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    # force: no warning that tokenised text looks tokenised.
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")


def chrf_metric(lowercase: bool) -> Any:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(lowercase=lowercase)


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Corpus BLEU of detokenised text; of text that is already tokenised with ``tokenize="none"``."""
    _require_pairs(hypotheses, references)
    metric = bleu_metric(tokenize, lowercase)
    result = metric.corpus_score(hypotheses, [references])
    precisions = "/".join(f"{precision:.1f}" for precision in result.precisions)
    detail = f"{precisions}, brevity penalty {result.bp:.3f}"
    return Score("BLEU", result.score, str(metric.get_signature()), detail, len(hypotheses))


def chrf(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """Corpus chrF2: the F-score, recall counted twice, of character n-grams up to 6."""
    _require_pairs(hypotheses, references)
    metric = chrf_metric(lowercase)
    result = metric.corpus_score(hypotheses, [references])
    return Score("chrF2", result.score, str(metric.get_signature()), "character F-score", len(hypotheses))


def phoneme_error_rate(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Edits per reference phoneme, in per cent."""
    _require_pairs(hypotheses, references)
    pairs = [(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
    edits = sum(edit_distance(hypothesis, reference) for hypothesis, reference in pairs)
    length = sum(len(reference) for _, reference in pairs)
    if not length:
        raise UserError("the references are empty")
    return Score("PER", 100 * edits / length, "tok:space", f"{edits} edits in {length} phonemes", len(pairs))


def word_error_rate(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The share of lines (words) whose phonemes are not exactly the reference's, in per cent."""
    _require_pairs(hypotheses, references)
    wrong = sum(h.split() != r.split() for h, r in zip(hypotheses, references, strict=True))
    total = len(references)
    return Score("WER", 100 * wrong / total, "tok:space", f"{wrong} of {total} words wrong", total)


def length_ratio(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> float | None:
    """Tokens of all hypotheses / tokens of all references, as BLEU counts them; None if the references have none."""
    _require_pairs(hypotheses, references)
    result = bleu_metric(tokenize, False).corpus_score(hypotheses, [references])
    return result.sys_len / result.ref_len if result.ref_len else None


def _require_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    if not references:
        raise UserError("nothing to score: the references are empty")


# name: (hypotheses, references, tokenize, lowercase) -> Score; what a measure has no use for it leaves aside
METRICS: dict[str, Callable[[Sequence[str], Sequence[str], str, bool], Score]] = {
    "bleu": bleu,
    "chrf": lambda hypotheses, references, tokenize, lowercase: chrf(hypotheses, references, lowercase),
    "per": lambda hypotheses, references, tokenize, lowercase: phoneme_error_rate(hypotheses, references),
    "wer": lambda hypotheses, references, tokenize, lowercase: word_error_rate(hypotheses, references),
}

# Those that sacrebleu can resample: (tokenize, lowercase) -> its metric
RESAMPLED: dict[str, Callable[[str, bool], Any]] = {
    "bleu": bleu_metric,
    "chrf": lambda tokenize, lowercase: chrf_metric(lowercase),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer score``."""
    parser.add_argument("--metric", required=True, nargs="+", choices=METRICS, help="one or several measures")
    output = parser.add_mutually_exclusive_group(required=True)
    several = "; several are compared with the first"
    output.add_argument(
        "--hypotheses", type=Path, nargs="+", metavar="FILE", help=f"a system's output, a sentence a line{several}"
    )
    output.add_argument(
        "--generate-log", type=Path, nargs="+", metavar="FILE", help=f"what fairseq-generate printed{several}"
    )
    parser.add_argument(
        "--references", type=Path, metavar="FILE", help="the right output; by default the log's own T- lines"
    )
    parser.add_argument("--tokenize", choices=TOKENIZERS, help="bleu: the flavour (default: 13a)")
    parser.add_argument("--lowercase", action="store_true", help="bleu, chrf: ignore case")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each score")
    parser.add_argument(
        "--bootstrap-samples", type=positive_int, metavar="N", help="several systems: draws of the test (default: 1000)"
    )
    parser.add_argument("--seed", type=positive_int, help="several systems: of the draws (default: 12345)")


def _read_pairs(args: argparse.Namespace, number: int) -> tuple[list[str], list[str]]:
    """Hypotheses of one system, and the references in the same order."""
    if args.generate_log is None:
        if args.references is None:
            raise UserError("--hypotheses needs --references")
        return read_lines(args.hypotheses[number]), read_lines(args.references)
    log = args.generate_log[number]
    translations = read_generate_log(log)
    hypotheses = [translation.hypothesis for translation in translations]
    if args.references is not None:
        return hypotheses, read_lines(args.references)
    references = [translation.reference for translation in translations if translation.reference is not None]
    if len(references) < len(translations):
        raise UserError(f"{log}: not every sentence has a reference (T-): give --references")
    return hypotheses, references


def run(args: argparse.Namespace) -> int:
    """Print the asked scores, one a line."""
    if args.tokenize and "bleu" not in args.metric:
        raise UserError("--tokenize goes with --metric bleu")
    if args.lowercase and not {"bleu", "chrf"} & set(args.metric):
        raise UserError("--lowercase goes with --metric bleu or chrf")
    names = args.hypotheses or args.generate_log
    if len(names) > 1:
        return compare(args, names)
    for option in ("bootstrap_samples", "seed"):
        if getattr(args, option):
            raise UserError(f"--{option.replace('_', '-')} is for comparing systems: name several")
    hypotheses, references = _read_pairs(args, 0)
    for name in args.metric:
        score = METRICS[name](hypotheses, references, args.tokenize or "13a", args.lowercase)
        print(json.dumps(asdict(score)) if args.json else score)
    return 0


def compare(args: argparse.Namespace, names: Sequence[Path]) -> int:
    """Print the scores of several systems, each with the paired bootstrap test against the first."""
    for metric in args.metric:
        if metric not in RESAMPLED:
            raise UserError(
                f"--metric {metric}: systems are compared by {' and '.join(RESAMPLED)}; score one at a time"
            )
    systems = []
    references: list[str] = []
    for number, name in enumerate(names):
        hypotheses, own = _read_pairs(args, number)
        if number and own != references:
            raise UserError(f"{name}: its references (T-) are not those of {names[0]}")
        if len(hypotheses) != len(own):
            raise UserError(f"{name}: {len(hypotheses)} hypotheses, but {len(own)} references")
        references = own
        systems.append(hypotheses)
    options = args.tokenize or "13a", args.lowercase
    for metric in args.metric:
        scores = [METRICS[metric](hypotheses, references, *options) for hypotheses in systems]
        samples, seed = args.bootstrap_samples or 1000, args.seed or 12345
        resampled = paired_bootstrap(RESAMPLED[metric](*options), systems, references, samples, seed)
        for name, score, found in zip(names, scores, resampled, strict=True):
            if args.json:
                print(json.dumps({**asdict(score), "system": str(name), "bootstrap": asdict(found)}))
            else:
                against = "" if found.p_value is None else f" against {names[0]}"
                print(f"{name}: {score}; {samples} draws, seed {seed}: {found}{against}")
    return 0
