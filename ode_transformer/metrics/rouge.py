"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004) of summaries, a document a line, by the rouge-score package.

F1 of unigrams, of bigrams, and of the longest common subsequences of the summaries' sentences, as ROUGE-1.5.5
computes them with ``-m`` (Porter's stemmer) and ``-n 2``; the scores are means over the documents.

ROUGE-L depends on the division into sentences: a summary taken as one long sentence scores lower. A word is a sequence
of the letters a to z and digits after lower-casing; all other characters, also accented letters, separate words.
"""

from __future__ import annotations

import re
from importlib.metadata import version

from ode_transformer.metrics.metric import Lines, Score, Settings, paired_references
from ode_transformer.support.errors import UserError

# Functions that divide a document's line into lines of one sentence each
SENTENCES = {
    "period": lambda document: document.replace(
        ". ", ".\n"
    ),  # as common pipelines around pyrouge do; also splits "u.s. "
    "none": lambda document: document,
}
MAX_PAIRS = 25_000_000  # of words that are compared: some 10 seconds and half a gigabyte
_WORD = re.compile("[a-z0-9]+")
KINDS = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeLsum"}


def rouge(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute the three F1 scores, in per cent.

    :raises UserError: two documents would take more than ``MAX_PAIRS``
    """
    from rouge_score.rouge_scorer import RougeScorer

    references, split = paired_references(hypotheses, settings), SENTENCES[settings.sentences]
    for number, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True), start=1):
        lengths = [len(_WORD.findall(document.lower())) for document in (hypothesis, reference)]
        if lengths[0] * lengths[1] > MAX_PAIRS:
            words = " and ".join(f"{length:,}" for length in lengths)
            raise UserError(f"line {number}: hypothesis and reference have {words} words, too many for ROUGE-L")
    scorer = RougeScorer(list(KINDS.values()), use_stemmer=True)
    documents = [scorer.score(split(r), split(h)) for h, r in zip(hypotheses, references, strict=True)]
    signature = f"F1|sentences:{settings.sentences}|stemmer:porter|words:a-z0-9|rouge-score:{version('rouge-score')}"

    def mean(kind: str, value: str) -> float:
        return 100 * sum(getattr(document[kind], value) for document in documents) / len(documents)

    return [
        Score(
            name,
            mean(kind, "fmeasure"),
            signature,
            f"precision {mean(kind, 'precision'):.2f}, recall {mean(kind, 'recall'):.2f}",
            len(documents),
        )
        for name, kind in KINDS.items()
    ]
