"""``ode-transformer score``: how good a system's output is, with the settings that the number depends on.

BLEU and chrF are sacrebleu's, over the whole corpus, and carry its signature: flavours differ by up to 1.5
BLEU. For spelling to phonemes, with tokens separated by spaces and one word per line:

    phoneme error rate = summed edit distance / summed length of the references
    word error rate    = share of the words with at least one error
"""

import argparse
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ode_transformer.errors import UserError
from ode_transformer.evaluation.generate_log import read_generate_log
from ode_transformer.evaluation.lines import read_lines

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


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Corpus BLEU of detokenised text; of text that is already tokenised with ``tokenize="none"``."""
    from sacrebleu.metrics.bleu import BLEU

    _require_pairs(hypotheses, references)
    # force: no warning that tokenised text looks tokenised.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    result = metric.corpus_score(hypotheses, [references])
    precisions = "/".join(f"{precision:.1f}" for precision in result.precisions)
    detail = f"{precisions}, brevity penalty {result.bp:.3f}"
    return Score("BLEU", result.score, str(metric.get_signature()), detail, len(hypotheses))


def chrf(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """Corpus chrF2: the F-score, recall counted twice, of character n-grams up to 6."""
    from sacrebleu.metrics.chrf import CHRF

    _require_pairs(hypotheses, references)
    metric = CHRF(lowercase=lowercase)
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
    from sacrebleu.metrics.bleu import BLEU

    _require_pairs(hypotheses, references)
    result = BLEU(tokenize=tokenize, force=True).corpus_score(hypotheses, [references])
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer score``."""
    parser.add_argument("--metric", required=True, nargs="+", choices=METRICS, help="one or several measures")
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("--hypotheses", type=Path, metavar="FILE", help="the system's output, a sentence a line")
    output.add_argument("--generate-log", type=Path, metavar="FILE", help="what fairseq-generate printed")
    parser.add_argument(
        "--references", type=Path, metavar="FILE", help="the right output; by default the log's own T- lines"
    )
    parser.add_argument("--tokenize", choices=TOKENIZERS, help="bleu: the flavour (default: 13a)")
    parser.add_argument("--lowercase", action="store_true", help="bleu, chrf: ignore case")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each score")


def _read_pairs(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Hypotheses and references in the same order."""
    if args.generate_log is None:
        if args.references is None:
            raise UserError("--hypotheses needs --references")
        return read_lines(args.hypotheses), read_lines(args.references)
    translations = read_generate_log(args.generate_log)
    hypotheses = [translation.hypothesis for translation in translations]
    if args.references is not None:
        return hypotheses, read_lines(args.references)
    references = [translation.reference for translation in translations if translation.reference is not None]
    if len(references) < len(translations):
        raise UserError(f"{args.generate_log}: not every sentence has a reference (T-): give --references")
    return hypotheses, references


def run(args: argparse.Namespace) -> int:
    """Print the asked scores, one a line."""
    if args.tokenize and "bleu" not in args.metric:
        raise UserError("--tokenize goes with --metric bleu")
    if args.lowercase and not {"bleu", "chrf"} & set(args.metric):
        raise UserError("--lowercase goes with --metric bleu or chrf")
    hypotheses, references = _read_pairs(args)
    for name in args.metric:
        score = METRICS[name](hypotheses, references, args.tokenize or "13a", args.lowercase)
        print(json.dumps(asdict(score)) if args.json else score)
    return 0
