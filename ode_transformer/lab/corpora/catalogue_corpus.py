"""Parallel corpus of English and another language, from the gettext catalogues of Python packages.

``configs/quickstart_catalogues.txt`` names a set of wheels. ``clean_message`` selects good training data: phrases of at
least two words without placeholders, markup, paths or code. English text that occurs several times is used once, with
the translation of most packages.
"""

import math
import re
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal

from ode_transformer.lab.corpora.catalogue_files import read_wheel
from ode_transformer.lab.corpora.cleaning import ROMANIAN_LETTERS
from ode_transformer.lab.corpora.corpus import SplitWriter
from ode_transformer.lab.corpora.raw_text import Files
from ode_transformer.lab.corpora.wheel_corpus import Pair, WheelCorpus, normalise, write_pairs
from ode_transformer.support.errors import UserError

HELD_OUT = 0.025, 0.035  # of the pairs, for validation and for the test
MAX_WORDS = 80
# A translation this many times longer or shorter, in characters, than the median of all is taken for a wrong one.
MAX_STRETCH = 2.0
# Languages in the error for a missing language: those of most packages.
MAX_LISTED = 40

_WORD = re.compile(r"[^\W\d_]+")
_TYPOGRAPHY = str.maketrans(
    {"…": "...", "’": "'", "‘": "'", "‚": "'", "“": '"', "”": '"', "„": '"', "\u00ad": None, "\u200b": None}
)
_NO_PROSE = re.compile(
    r"""[{}<>\[\]|\\`_\#@^~=$§]                  # placeholders, markup, code
    |(?<!\w)\*|\*(?!\w)                          # emphasis; between letters it is a gender star: Nutzer*innen
    |(?<!\d)(?<!\d\s)%|%(?=[\w(])                # a per cent sign is fine after a number: 50 %
    |&\w                                         # entities and what is left of mnemonics
    |://|\bwww\.|\S/\S*/|//                      # addresses and paths
    |(?:^|[\s("'])([./]+\w|-[A-Za-z]\b|--\w)     # more paths, and command-line options
    |\w\.[A-Za-z]{2,}|\w;\w                      # file names, dotted names, lists of keywords
    |\w\(                                        # calls, and plurals in brackets: file(s)
    """,
    re.VERBOSE,
)
_RESPELLED = {"ro": ROMANIAN_LETTERS}  # catalogues mix both spellings
_UNDERSCORE_MNEMONIC = re.compile(r"_(?=[^\W\d_])")
_AMPERSAND_MNEMONIC = re.compile(r"&(?=[^\W\d_])(?!\w+;)")
_APPENDED_MNEMONIC = re.compile(r"\s*\([_&]\w\)")


def plain_typography(text: str) -> str:
    """Return a text in one line, with single spaces and plain quotation marks, which packages write differently."""
    return " ".join(unicodedata.normalize("NFC", text).translate(_TYPOGRAPHY).split())


def strip_mnemonics(message: Pair) -> Pair:
    """Remove the marks of a shortcut key, as in ``_File`` or ``&File``, if the English text has exactly one.

    A mark inside a word stays if the translation has none, or the same word: it belongs to a name (``MAX_SIZE``).
    """
    for mark in (_UNDERSCORE_MNEMONIC, _AMPERSAND_MNEMONIC):
        target_marks, source_marks = mark.findall(message.target), list(mark.finditer(message.source))
        if len(source_marks) != 1 or len(target_marks) > 1:
            continue
        is_inside_word = message.source[: source_marks[0].start()][-1:].isalnum()
        shared_words = set(message.source.split()) & set(message.target.split())
        if not is_inside_word or (target_marks and not any(mark.search(word) for word in shared_words)):
            target = mark.sub("", _APPENDED_MNEMONIC.sub("", message.target))
            message = Pair(mark.sub("", message.source), target)
    return message


def is_prose(text: str) -> bool:
    """Return whether a text consists of words, numbers and the punctuation of prose."""
    if _NO_PROSE.search(text):
        return False
    categories = {unicodedata.category(c) for c in text if c not in "+° \u200c\u200d"}
    return all(category[0] in "LMNP" or category == "Sc" for category in categories)


def clean_message(message: Pair) -> Pair | None:
    """Return the pair for training that a message gives, or None if it is unfit."""
    if "\n" in message.source.strip() or "\n" in message.target.strip():
        return None
    message = strip_mnemonics(message)
    source, target = plain_typography(message.source), plain_typography(message.target)
    if len(source.split()) < 2 or len(_WORD.findall(source)) < 2:
        return None
    if not _WORD.search(target) or not (is_prose(source) and is_prose(target)):
        return None
    if max(len(source.split()), len(target.split())) > MAX_WORDS:
        return None
    source_words, target_words = set(normalise(source).split()), set(normalise(target).split())
    return None if target_words <= source_words else Pair(source, target)


def choose_translations(candidates: Iterable[tuple[str, Pair]]) -> dict[Pair, set[str]]:
    """Choose a translation for every normalised source: that of most packages.

    If packages tie, the translation of most messages wins, then the first in code-point order. Translations that differ
    in case and punctuation only count as the same.

    :param candidates: package and pair, in any order and with repetitions
    """
    by_source: dict[str, dict[str, list[tuple[str, Pair]]]] = defaultdict(lambda: defaultdict(list))
    for package, pair in candidates:
        by_source[normalise(pair.source)][normalise(pair.target)].append((package, pair))
    chosen: dict[Pair, set[str]] = {}
    for key in sorted(by_source):
        votes = by_source[key]
        winner = min(votes, key=lambda t: (-len({package for package, _ in votes[t]}), -len(votes[t]), t))
        forms = [pair for _, pair in votes[winner]]
        pair = min(forms, key=lambda p: (-forms.count(p), p.source, p.target))
        chosen[pair] = {package for package, _ in votes[winner]}
    return chosen


class CatalogueCorpus(WheelCorpus):
    """Corpus of English and another language.

    :param target: code of that language
    """

    kind: Literal["catalogues"]
    target: str

    @property
    def languages(self) -> tuple[str, str]:
        return "en", self.target

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        contents = [read_wheel(path, self.target) for path in sorted(files["wheels"].glob("*.whl"))]
        if not any(wheel.messages for wheel in contents):
            languages = Counter(code for wheel in contents for code in wheel.languages).most_common(MAX_LISTED)
            listed = ", ".join(f"{code} ({count})" for code, count in sorted(languages)) or "none at all"
            raise UserError(f"no catalogues of --target {self.target}; languages of most packages: {listed}")
        spelling = _RESPELLED.get(self.target, {})
        pairs = ((wheel.package, clean_message(message)) for wheel in contents for message in wheel.messages)
        respelled = ((package, Pair(pair.source, pair.target.translate(spelling))) for package, pair in pairs if pair)
        chosen = choose_translations(respelled)
        # Eight characters are added on both sides because ratios of short phrases vary more.
        ratio = {pair: math.log((len(pair.target) + 8) / (len(pair.source) + 8)) for pair in chosen}
        middle = statistics.median(ratio.values())
        chosen = {pair: chosen[pair] for pair in chosen if abs(ratio[pair] - middle) <= math.log(MAX_STRETCH)}
        origins = []
        for wheel in contents:
            names = [packages for packages in chosen.values() if wheel.package in packages]
            if names:
                alone = sum(len(packages) == 1 for packages in names)
                origins.append((wheel.package, wheel.version, wheel.licence, len(names), alone))
        title = f"English to {self.target}: translation catalogues of Python packages"
        write_pairs(splits, chosen, HELD_OUT, title, origins)
