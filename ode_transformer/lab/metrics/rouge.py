"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004) of summaries, a document a line, by the rouge-score package.

F1 of unigrams, of bigrams, and of the longest common subsequences of the summaries' sentences, as ROUGE-1.5.5
computes them with ``-m`` (Porter's stemmer) and ``-n 2``; the scores are means over the documents.

ROUGE-L depends on the division into sentences: a summary taken as one long sentence scores lower. A word is a sequence
of the letters a to z and digits after lower-casing; all other characters, also accented letters, separate words. Of
references in other scripts, whose scores would be 0, words are those of ``UnicodeWords``, without a stemmer.
"""

from importlib.metadata import version

import regex

from ode_transformer.lab.metrics.metric import Lines, Score, Settings, check_word_pairs, paired_references
from ode_transformer.lab.metrics.translation_scores import SCRIPTS, count_letters
from ode_transformer.support.console import track

# Functions that divide a document's line into lines of one sentence each
SENTENCES = {
    # as common pipelines around pyrouge do; also splits "u.s. "
    "period": lambda document: document.replace(". ", ".\n"),
    "none": lambda document: document,
}
MAX_PAIRS = 25 * 10**6  # of words in two lines: they take ten seconds
KINDS = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeLsum"}


_UNSPACED = "".join(SCRIPTS[name] for name in ("chinese", "kana", "other"))
_WORD = regex.compile(rf"[{_UNSPACED}]|[[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}]]+", regex.V1)


def is_latin(references: Lines) -> bool:
    """Tell whether most letters are a to z, with or without accents."""
    return 2 * count_letters(references, r"\p{Latin}") >= count_letters(references, r"\p{L}")


class UnicodeWords:
    """Tokenizer of rouge-score: words of letters, marks and digits; each character where no spaces divide words."""

    def tokenize(self, text: str) -> list[str]:
        return _WORD.findall(text.lower())


def rouge(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute the three F1 scores, in per cent."""
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    references, split = paired_references(hypotheses, settings), SENTENCES[settings.sentences]
    latin = is_latin(references)
    words = DefaultTokenizer(use_stemmer=True) if latin else UnicodeWords()
    scorer = RougeScorer(list(KINDS.values()), tokenizer=words)
    documents = []
    pairs = zip(track(hypotheses, "documents scored"), references, strict=True)
    for number, (hypothesis, reference) in enumerate(pairs, start=1):
        if len(hypothesis) * len(reference) > MAX_PAIRS:  # of letters, which are quickly counted
            counted = DefaultTokenizer() if latin else words  # a stemmer takes its time
            lengths = len(counted.tokenize(hypothesis)), len(counted.tokenize(reference))
            check_word_pairs(*lengths, limit=MAX_PAIRS, location=f"line {number} of the output")
        documents.append(scorer.score(split(reference), split(hypothesis)))
    tokenizer = "stemmer:porter|words:a-z0-9" if latin else "words:unicode"
    signature = f"F1|sentences:{settings.sentences}|{tokenizer}|rouge-score:{version('rouge-score')}"

    def mean(kind: str, value: str) -> float:
        return 100 * sum(getattr(document[kind], value) for document in documents) / len(documents)

    scores = []
    for name, kind in KINDS.items():
        detail = f"precision {mean(kind, 'precision'):.2f}, recall {mean(kind, 'recall'):.2f}"
        scores.append(Score(name, mean(kind, "fmeasure"), signature, detail, len(documents)))
    return scores
