"""Raw Lang-8 (lang-8-20111007-L1-v2.dat): learners' journals with corrections (Tajiri et al. 2012), as NLTK's tokens.

A line is a list in JSON: numbers of the entry and of its writer, the learned and the native language, the sentences,
and for each sentence a list of corrections, which is empty where nobody corrected it.

It is prepared as by the scripts of Chollampatt & Ng (2018), which the ODE Transformer's preprocess_gec.sh calls:
entries in English with at least one correction; of them the sentences and the corrections that langid takes for
English, each correction a pair with its sentence, a sentence without one a pair with itself. Marks of the website are
removed. Punctuation is made plain by Moses' scripts, and NLTK divides text into sentences and words.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from sacremoses import MosesPunctNormalizer

from ode_transformer.lab.corpora.cleaning import replace_control_characters
from ode_transformer.lab.corpora.raw_text import open_texts, read_texts
from ode_transformer.support.console import print_progress

LANGUAGE = "English"
PUNKT_FOLDER = "punkt_tab/english"

# Text between [sline] and [/sline] is struck out, [f-red] and the like are colours. The last is a known defect.
_MARKS = re.compile(r"\[sline\].*?\[/sline\]|\[/sline\]|\[/?f-[a-zA-Z]*\]|rŠëyËb¢\{", re.DOTALL)


def read_entries(path: Path) -> Iterator[str]:
    """Yield the lines of the file; those that are not UTF-8 are left out and counted."""
    broken = 0
    for _, text in open_texts(path, None):
        for line in text:
            try:
                yield line.decode()
            except UnicodeDecodeError:
                broken += 1
    if broken:
        print_progress(f"{path}: entries left out because they are not UTF-8: {broken:,}")


def entry_pairs(line: str) -> list[tuple[str, str]]:
    """Return the pairs of an entry; none if it is broken, not in English or without corrections."""
    import langid  # slow to load

    try:
        _, _, language, _, sentences, corrections = json.loads(line, strict=False)[:6]
        if language != LANGUAGE or len(sentences) != len(corrections) or not any(corrections):
            return []
        pairs = [
            (_MARKS.sub("", sentence).strip(), _MARKS.sub("", text).strip())
            for sentence, texts in zip(sentences, corrections, strict=True)
            for text in (texts if any(texts) else [sentence])
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    return [pair for pair in pairs if all(langid.classify(text)[0] == "en" for text in dict.fromkeys(pair))]


@cache  # slow to make
def word_tokenizer(punkt: Path) -> Callable[[str], str]:
    """Return NLTK's ``word_tokenize`` for English, after Moses' scripts for plain punctuation.

    :param punkt: archive of NLTK's boundaries of sentences
    """
    from nltk.tokenize import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    def rows(table: str) -> list[list[str]]:
        return [line.split("\t") for line in read_texts(punkt, f"{PUNKT_FOLDER}/{table}")]

    parameters = PunktParameters()  # nltk itself reads only files below its own folders
    parameters.collocations = {(first, second) for first, second in rows("collocations.tab")}
    parameters.sent_starters = {word for (word,) in rows("sent_starters.txt")}
    parameters.abbrev_types = {word for (word,) in rows("abbrev_types.txt")}
    parameters.ortho_context.update({word: int(context) for word, context in rows("ortho_context.tab")})
    normalizer, sentences, words = MosesPunctNormalizer("en"), PunktSentenceTokenizer(parameters), NLTKWordTokenizer()

    def tokenize(text: str) -> str:
        text = normalizer.normalize(replace_control_characters(normalizer.replace_unicode_punct(text)))
        return " ".join(word for sentence in sentences.tokenize(text) for word in words.tokenize(sentence))

    return tokenize


def tokenised_pairs(punkt: Path, lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of entries, as tokens with spaces between them."""
    tokenize = word_tokenizer(punkt)
    # Moses' clean-corpus-n takes out bars, which its format reserves.
    pairs = (pair for line in lines for pair in entry_pairs(line))
    return [(tokenize(text).replace("|", ""), tokenize(correction).replace("|", "")) for text, correction in pairs]
