"""NUCLE 3.2 and other M2 files, divided and corrected as by the scripts of Chollampatt & Ng (2018).

The ODE Transformer's preprocess_gec.sh calls them. A quarter of the annotated sentences of NUCLE is for validation:
the sentences are sorted (sort_m2.py), shuffled by Python 2 with a fixed seed, and the first quarter is taken
(get_num_lines.py). All edits are applied in their order (convert_m2_to_parallel.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from ode_transformer.metrics.m2_file import UNCORRECTED_TYPES, AnnotatedSentence

SEED = 1234  # of get_num_lines.py


def hold_out_sentences(
    sentences: Iterable[AnnotatedSentence], parts: int
) -> tuple[list[AnnotatedSentence], list[AnnotatedSentence]]:
    """Return the training and the validation sentences of NUCLE.

    :param parts: validation has the first of so many parts of the annotated sentences
    """
    by_annotation: dict[bool, list[AnnotatedSentence]] = {True: [], False: []}
    for sentence in sentences:
        by_annotation[_edit_count(sentence) > 0].append(sentence)
    annotated = sorted(by_annotation[True], key=lambda sentence: (_edit_count(sentence), -len(sentence.tokens)))
    _shuffle_as_python_2(annotated)
    size = len(annotated) // parts
    return annotated[size:] + by_annotation[False], annotated[:size]


def _edit_count(sentence: AnnotatedSentence) -> int:
    return sum(map(len, sentence.edits.values()))


def _shuffle_as_python_2(sentences: list[AnnotatedSentence]) -> None:
    """Shuffle in the order of ``random.seed(1234); random.shuffle(sentences)`` in Python 2, which drew otherwise."""
    chance = random.Random(SEED)
    for last in range(len(sentences) - 1, 0, -1):
        other = int(chance.random() * (last + 1))
        sentences[last], sentences[other] = sentences[other], sentences[last]


def apply_edits(sentence: AnnotatedSentence) -> list[str]:
    """Return the tokens after all edits of the first annotator.

    Of overlapping edits each leaves its words, where ``m2_file.correct_tokens`` leaves out the later ones.
    """
    slots = ["", *sentence.tokens]
    for edit in sentence.edits.get(0, ()):
        if edit.kind in UNCORRECTED_TYPES:
            continue
        correction = " ".join(edit.corrections[0])
        if edit.start == edit.end:
            slots[edit.start] += f" {correction}"
        else:
            slots[edit.start + 1 : edit.end + 1] = [correction, *[""] * (edit.end - edit.start - 1)]
    return " ".join(slots).split()
