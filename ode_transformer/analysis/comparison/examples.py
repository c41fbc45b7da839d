"""``ode-transformer examples``: what several systems make of chosen sentences, side by side.

ODE Transformer (2022), Table 11. Sentences are named, or they are those whose scores differ most between the first and
the last system. What a system says beside the reference is **bold**, what it lacks of the reference is ~~struck out~~,
by the words, divided at spaces, that difflib leaves unmatched.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from ode_transformer.analysis.comparison.compare import numbers, parse_systems
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_writable, write_text
from ode_transformer.support.generate_log import Translation, read_generate_log
from ode_transformer.support.lines import read_lines

_HYPOTHESIS = re.compile(r"D-\d+\t[^\t]*\t")
SCORES = ("chrf", "per")  # that mean something for a single sentence


@dataclass(frozen=True)
class Outputs:
    """A test set and what the systems made of it, a line for each sentence everywhere.

    :param source: None where it is not known
    """

    source: Sequence[str] | None
    references: Sequence[str]
    systems: dict[str, Sequence[str]]


def read_system(path: Path) -> list[Translation]:
    """Of a log of fairseq-generate, or of a text with a line for each sentence.

    :raises UserError: it is neither
    """
    lines = read_lines(path)
    if any(_HYPOTHESIS.match(line) for line in lines):
        return read_generate_log(path)
    return [Translation(number, None, None, line) for number, line in enumerate(lines)]


def read_outputs(systems: dict[str, Path], source: Path | None, references: Path | None) -> Outputs:
    """The files of the command line; a log also gives the source and the references, unless they are given.

    :raises UserError: there are no references, or texts differ in their number of lines
    """
    found = {name: read_system(path) for name, path in systems.items()}

    def side(path: Path | None, name: str) -> list[str] | None:
        if path is not None:
            return read_lines(path)
        for translations in found.values():
            texts = [getattr(translation, name) for translation in translations]
            if None not in texts:
                return texts
        return None

    sources, right = side(source, "source"), side(references, "reference")
    if right is None:
        raise UserError("no system is a log of fairseq-generate with references (T-): give --references")
    if source is not None and sources is not None and len(sources) != len(right):
        raise UserError(f"{source}: {len(sources)} lines, but {len(right)} references")
    for name, translations in found.items():
        if len(translations) != len(right):
            raise UserError(f"{systems[name]}: {len(translations)} sentences, but {len(right)} references")
    return Outputs(sources, right, {name: [t.hypothesis for t in made] for name, made in found.items()})


def sentence_score(metric: str, hypothesis: str, reference: str) -> float | None:
    """Of a sentence by itself; None beside an empty reference."""
    if not reference.split():
        return None
    return METRICS[metric]([hypothesis], Settings(references=[reference]))[0].value


def most_different(outputs: Outputs, metric: str, count: int) -> list[int]:
    """The lines, from 1 on, with the largest differences between the first and the last system, largest first.

    Of equal ones the earlier.
    """
    first, *_, last = outputs.systems.values()

    def difference(number: int) -> float:
        one, other = (sentence_score(metric, made[number], outputs.references[number]) for made in (first, last))
        return 0.0 if one is None or other is None else abs(other - one)

    order = sorted(range(len(outputs.references)), key=lambda number: (-difference(number), number))
    return [number + 1 for number in order[:count]]


def marked(hypothesis: str, reference: str) -> str:
    """The hypothesis as Markdown: what is not in the reference bold, what it lacks of it struck out."""
    words, right = hypothesis.split(), reference.split()
    parts = []
    for kind, i, j, k, m in SequenceMatcher(None, right, words, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(escaped(" ".join(words[k:m])))
            continue
        if i < j:
            parts.append(f"~~{escaped(' '.join(right[i:j]))}~~")
        if k < m:
            parts.append(f"**{escaped(' '.join(words[k:m]))}**")
    return " ".join(parts)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    return re.sub(r"([\\`*_~\[\]<>|&#])", r"\\\1", text)


def markdown(outputs: Outputs, lines: Sequence[int], metric: str) -> str:
    """A table for each line."""
    parts = [f"Beside the reference: **added**, ~~missing~~. In brackets: {metric} of the sentence.\n"]
    for line in lines:
        at, rows = line - 1, []
        if outputs.source is not None:
            rows.append(("source", escaped(outputs.source[at])))
        reference = outputs.references[at]
        rows.append(("reference", escaped(reference)))
        for name, made in outputs.systems.items():
            score = sentence_score(metric, made[at], reference)
            shown = "" if score is None else f" ({score:.1f})"
            rows.append((escaped(name) + shown, marked(made[at], reference)))
        parts.append(f"### Line {line}\n\n| | |\n|---|---|\n" + "".join(f"| {a} | {b} |\n" for a, b in rows))
    return "\n".join(parts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer examples``."""
    parser.add_argument(
        "--system",
        action="append",
        required=True,
        metavar="NAME=FILE",
        help="once for each: what fairseq-generate printed, or a text with a line for each sentence",
    )
    parser.add_argument("--source", type=Path, metavar="FILE", help="by default a log's own S- lines")
    parser.add_argument("--references", type=Path, metavar="FILE", help="by default a log's own T- lines")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--lines", type=numbers, metavar="N,N,...", help="these sentences, from 1 on")
    chosen.add_argument(
        "--most-different", type=positive_int, metavar="N", help="N whose scores differ most, first and last system"
    )
    parser.add_argument(
        "--metric",
        choices=SCORES,
        default="chrf",
        help="of a sentence (default: chrf; per: errors per word or phoneme)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="write them there, too")


def run(args: argparse.Namespace) -> int:
    """Print the sentences as Markdown, and write them if asked to."""
    if args.output is not None:
        check_writable(args.output)
    outputs = read_outputs(parse_systems(args.system, "FILE"), args.source, args.references)
    total = len(outputs.references)
    if args.lines and args.lines[-1] > total:
        raise UserError(f"--lines {args.lines[-1]}: the sentences are 1 to {total}")
    if args.most_different and len(outputs.systems) < 2:
        raise UserError("--most-different compares systems: give --system more than once")
    text = markdown(outputs, args.lines or most_different(outputs, args.metric, args.most_different), args.metric)
    if args.output is not None:
        write_text(args.output, text)
    print(text, end="")
    return 0
