"""Logs of ``fairseq-generate`` and ``fairseq-interactive``, read back into the order of the input.

fairseq prints batch by batch, so sentences are out of order. Each line begins with its kind and the number N of its
sentence, from 0 on: ``S-N`` source, ``T-N`` target (reference), ``H-N`` score and hypothesis, ``D-N`` score and
detokenised hypothesis. ``T`` is detokenised like ``D``, so these two are compared. With ``--nbest`` the best hypothesis
comes first. A sentence that is longer than the model's positions, skipped by ``--skip-invalid-size-inputs-valid-test``,
has no line at all: it is read as one without words.
"""

import os
import re
from dataclasses import dataclass
from itertools import islice

from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError, list_numbers
from ode_transformer.support.lines import read_lines
from ode_transformer.support.subword_models import join_pieces, output_pieces

UNKNOWN_REFERENCE = "<<unk>>"  # for a word of the reference that the dictionary lacks
# fairseq's own form of a warning, or Python's where a library has used its log before fairseq-generate chooses a form
_SKIPPED = re.compile(
    r"(?: \| WARNING \| .* \| |WARNING:[\w.]+:)([\d,]+) samples have invalid sizes and will be skipped"
)
MAX_SKIPPED = 10**6  # sentences that a log may say were skipped: each becomes an empty output
_LINE = re.compile(r"([STD])-(\d{1,18})\t(.*)", re.DOTALL)


@dataclass(frozen=True)
class Translation:
    """A sentence of the log; ``source`` and ``reference`` are None if the log has none."""

    number: int
    source: str | None
    reference: str | None
    hypothesis: str


def read_generate_log(path: str | os.PathLike[str], remove_bpe: str | None = None) -> list[Translation]:
    """Read all sentences of a log, from number 0 on.

    :param remove_bpe: kind of pieces to join to words; None for the kind that the hypotheses show
    :raises UserError: there is no sentence, a sentence is missing or has no hypothesis, or the log is of several runs
    """
    texts: dict[str, dict[int, str]] = {"S": {}, "T": {}, "D": {}}
    changed, last_line, skipped = set(), ("", -1), 0
    for line in read_lines(path):
        match = _LINE.fullmatch(line)
        if not match:
            if is_skipped := _SKIPPED.search(line):
                skipped = int(is_skipped[1].replace(",", ""))
            continue
        kind, number, text = match[1], int(match[2]), match[3]
        if kind == "D":
            _, tab, text = text.partition("\t")
            if not tab or last_line == (kind, number):  # not the best one
                continue
        last_line = kind, number
        if texts[kind].setdefault(number, text) != text:
            changed.add(number)
    if changed:
        first = list_numbers(sorted(changed))
        raise UserError(f"{path}: a log of several runs, which differ in sentence {first}: decode into a new file")
    numbers = sorted(texts["S"].keys() | texts["T"].keys() | texts["D"].keys())
    if not numbers:
        raise UserError(f"{path}: no output of fairseq-generate in this file")
    if skipped > MAX_SKIPPED:
        raise UserError(f"{path}: more than {MAX_SKIPPED:,} sentences were skipped")
    length = len(numbers) + skipped
    # One more than were skipped tells enough: the greatest number is what a line says, and may be any.
    absent = (number for number in range(max(length, numbers[-1] + 1)) if number not in texts["D"])
    missing = list(islice(absent, skipped + 1))
    if len(missing) > skipped:
        # Without this plugin fairseq leaves out a last batch whose size 8 does not divide.
        hint = "decode to the end with --required-batch-size-multiple 1"
        raise UserError(f"{path}: sentence {missing[0]} has no hypothesis (D-{missing[0]}): {hint}")
    if skipped:
        print_progress(f"  {path}: {skipped:,} of {length:,} sentences are too long for the model: empty outputs")
        texts = {side: lines | dict.fromkeys(missing, "") for side, lines in texts.items()}
    kind = output_pieces(list(texts["D"].values()), remove_bpe, os.fspath(path))
    texts = {side: {n: join_pieces(line, kind) for n, line in lines.items()} for side, lines in texts.items()}
    return [Translation(n, texts["S"].get(n), texts["T"].get(n), texts["D"][n]) for n in range(length)]
