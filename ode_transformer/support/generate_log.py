"""Logs of ``fairseq-generate`` and ``fairseq-interactive``, read back into the order of the input.

fairseq prints batch by batch, so sentences are out of order. Each line begins with its kind and the number N of its
sentence, from 0 on: ``S-N`` source, ``T-N`` target (reference), ``H-N`` score and hypothesis, ``D-N`` score and
detokenised hypothesis. ``T`` is detokenised like ``D``, so these two are compared. With ``--nbest`` the best hypothesis
comes first.
"""

import os
import re
from dataclasses import dataclass

from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import read_lines
from ode_transformer.support.subword_models import join_pieces, output_pieces

UNKNOWN_REFERENCE = "<<unk>>"  # for a word of the reference that the dictionary lacks
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
    changed, last_line = set(), ("", -1)
    for line in read_lines(path):
        match = _LINE.fullmatch(line)
        if not match:
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
        first = ", ".join(map(str, sorted(changed)[:5]))
        raise UserError(
            f"{path}: a log of several runs, which differ in sentence {first}"
            f"{' …' if len(changed) > 5 else ''}: decode into a new file"
        )
    numbers = sorted(texts["S"].keys() | texts["T"].keys() | texts["D"].keys())
    if not numbers:
        raise UserError(f"{path}: no output of fairseq-generate in this file")
    for expected, number in enumerate(numbers):
        if number != expected or number not in texts["D"]:
            # Without this plugin fairseq leaves out a last batch whose size 8 does not divide.
            hint = "decode to the end with --required-batch-size-multiple 1 and without skipping sentences"
            raise UserError(f"{path}: sentence {expected} has no hypothesis (D-{expected}): {hint}")
    kind = output_pieces(list(texts["D"].values()), remove_bpe, os.fspath(path))
    texts = {side: {n: join_pieces(line, kind) for n, line in lines.items()} for side, lines in texts.items()}
    return [Translation(n, texts["S"].get(n), texts["T"].get(n), texts["D"][n]) for n in numbers]
