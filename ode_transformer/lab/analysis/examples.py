"""``ode-transformer analyse examples``: translations of chosen sentences by several systems, side by side.

ODE Transformer (2022), Table 11. The sentences are named, or they are those whose scores differ most between the first
and the last system. Words that the reference lacks are **bold**, words that only the reference has are ~~struck out~~;
words are separated by spaces and aligned by difflib.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from ode_transformer.lab.metrics.metric import Settings
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.support.arguments import check_within, named_systems
from ode_transformer.support.console import print_text
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text
from ode_transformer.support.generate_log import UNKNOWN_REFERENCE, Translation, read_generate_log
from ode_transformer.support.lines import read_lines
from ode_transformer.support.subword_models import join_output, join_references
from ode_transformer.support.tables import markdown_table

_HYPOTHESIS = re.compile(r"D-\d+\t[^\t]*\t")
MARKS = {"equal": "", "missing": "~~", "added": "**"}  # of Markdown: added words in bold, missing ones struck out


@dataclass(frozen=True)
class SystemOutputs:
    """A test set and its translations by several systems, a line for each sentence."""

    source: Sequence[str] | None
    references: Sequence[str]
    systems: Mapping[str, Sequence[str]]


def read_system(path: Path, remove_bpe: str | None = None) -> list[Translation]:
    """Read a log of fairseq-generate, or a text with a line for each sentence.

    :param remove_bpe: kind of pieces to join to words; None for the kind that the output shows
    :raises UserError: the file is neither
    """
    lines = read_lines(path)
    if any(_HYPOTHESIS.match(line) for line in lines):
        return read_generate_log(path, remove_bpe)
    lines = join_output(lines, remove_bpe, str(path))
    return [Translation(number, None, None, line) for number, line in enumerate(lines)]


def read_outputs(
    systems: dict[str, Path], source: Path | None, references: Path | None, remove_bpe: str | None = None
) -> SystemOutputs:
    """Read the files of the command line; sources and references without a file are taken from a log."""
    translations = {name: read_system(path, remove_bpe) for name, path in systems.items()}

    def side_lines(path: Path | None, side: str) -> list[str] | None:
        if path is not None:
            return join_references(read_lines(path), remove_bpe, str(path))
        for sentences in translations.values():
            texts = [getattr(sentence, side) for sentence in sentences]
            if None not in texts:
                return texts
        return None

    source_lines, reference_lines = side_lines(source, "source"), side_lines(references, "reference")
    if reference_lines is None:
        raise UserError("no system is a log of fairseq-generate with references (T-): give --references")
    for name, sentences in translations.items():
        own_lines = reference_lines if references else [sentence.reference for sentence in sentences]
        differ = any(
            line is not None and line != shared and UNKNOWN_REFERENCE not in line + shared  # which one dictionary lacks
            for line, shared in zip(own_lines, reference_lines, strict=False)
        )
        if differ or len(sentences) != len(reference_lines):
            raise UserError(f"{systems[name]}: not the {len(reference_lines)} sentences of the references")
    hypotheses = {name: [sentence.hypothesis for sentence in sentences] for name, sentences in translations.items()}
    return SystemOutputs(source_lines, reference_lines, hypotheses)


def sentence_score(metric: str, hypothesis: str, reference: str) -> float | None:
    """Score a single sentence; return None for an empty reference."""
    if not reference.split():
        return None
    return METRICS[metric]([hypothesis], Settings(references=[reference]))[0].value


def most_different(outputs: SystemOutputs, metric: str, count: int) -> list[int]:
    """Return the lines, from 1 on, whose scores differ most between the first and the last system, largest first."""
    systems = list(outputs.systems.values())

    def difference(number: int) -> float:
        reference = outputs.references[number]
        first, last = (sentence_score(metric, lines[number], reference) for lines in (systems[0], systems[-1]))
        return 0.0 if first is None or last is None else abs(last - first)

    order = sorted(range(len(outputs.references)), key=lambda number: (-difference(number), number))
    return [number + 1 for number in order[:count]]


def differences(hypothesis: str, reference: str) -> Iterator[tuple[str, str]]:
    """Yield the words of both texts in order, each piece with its kind: ``equal``, ``missing`` or ``added``."""
    hypothesis_words, reference_words = hypothesis.split(), reference.split()
    for kind, i, j, k, m in SequenceMatcher(None, reference_words, hypothesis_words, autojunk=False).get_opcodes():
        added, missing = " ".join(hypothesis_words[k:m]), " ".join(reference_words[i:j])
        pieces = [("equal", added)] if kind == "equal" else [("missing", missing), ("added", added)]
        yield from ((kind, words) for kind, words in pieces if words)


def escape(text: str) -> str:
    """Escape the characters that Markdown would interpret, in a table too."""
    return re.sub(r"([\\`*_~\[\]<>|&#])", r"\\\1", text)


def compare_sentences(outputs: SystemOutputs, numbers: Sequence[int], metric: str) -> list[dict[str, Any]]:
    """Return sentences by number, each with a line for each system: its name, its score as text and its words.

    The words are the pieces of :func:`differences` from the reference.
    """
    sentences = []
    for number in numbers:
        reference, lines = outputs.references[number - 1], []
        for name, hypotheses in outputs.systems.items():
            score = sentence_score(metric, hypotheses[number - 1], reference)
            pieces = list(differences(hypotheses[number - 1], reference))
            lines.append({"name": name, "score": "" if score is None else f"{score:.1f}", "pieces": pieces})
        source = None if outputs.source is None else outputs.source[number - 1]
        sentences.append({"number": number, "source": source, "reference": reference, "lines": lines})
    return sentences


def examples_text(outputs: SystemOutputs, numbers: Sequence[int], metric: str) -> str:
    """Return a Markdown text with a table for each sentence."""
    sections = [f"Beside the reference: **added**, ~~missing~~. In brackets: {metric} of the sentence.\n"]
    for sentence in compare_sentences(outputs, numbers, metric):
        rows = [(side, escape(sentence[side])) for side in ("source", "reference") if sentence[side] is not None]
        for line in sentence["lines"]:
            bracket = f" ({line['score']})" if line["score"] else ""
            marked = " ".join(f"{MARKS[kind]}{escape(words)}{MARKS[kind]}" for kind, words in line["pieces"])
            rows.append((escape(line["name"]) + bracket, marked))
        sections.append(f"### Line {sentence['number']}\n\n{markdown_table(['', ''], rows, 'll')}\n")
    return "\n".join(sections)


def run(args: argparse.Namespace) -> None:
    """Print the sentences as Markdown; with ``--output`` also write them."""
    outputs = read_outputs(named_systems(args), args.source, args.references, args.remove_bpe)
    check_within("--lines", args.lines or (), len(outputs.references))
    lines = args.lines or most_different(outputs, args.metric, args.most_different)
    text = examples_text(outputs, lines, args.metric)
    if args.output is not None:
        write_text(args.output, text)
    print_text(text, end="")
