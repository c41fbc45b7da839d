"""Moses' truecaser (train-truecaser.perl, truecase.perl): the first word of a sentence as it is written within one.

Text is tokenised, with Moses' escapes. The most frequent case of a word is counted within the sentences of the training
text; it replaces the case at their starts, and elsewhere a case that was never seen.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import regex

from ode_transformer.support.files import atomic_write
from ode_transformer.support.lines import iterate_lines

ENDS = frozenset(".:?!")
OPENINGS = frozenset({"(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"})  # the sentence starts behind them
LETTER = regex.compile(r"\p{L}")

Cases = dict[str, Counter[str]]  # word in lower case -> its cases within sentences


def count_cases(lines: Iterable[str]) -> Cases:
    """Count the cases of the words within sentences."""
    cases: Cases = defaultdict(Counter)
    for line in lines:
        is_first = True
        for word in line.split():
            if word in OPENINGS:
                continue
            if not is_first and word in ENDS:
                is_first = True
                continue
            if not is_first and LETTER.search(word):
                cases[word.lower()][word] += 1
            is_first = False
    return cases


def truecase(cases: Cases, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines in the counted cases."""
    best = {word: counts.most_common(1)[0][0] for word, counts in cases.items()}
    for line in lines:
        words, is_first = line.split(), True
        for position, word in enumerate(words):
            if is_first or word not in cases.get(word.lower(), ()):
                words[position] = best.get(word.lower(), word)
            is_first = word in ENDS or (is_first and word in OPENINGS)
        yield " ".join(words)


def truecase_files(training: Path, texts: Sequence[Path]) -> None:
    """Rewrite texts in the cases of the training text, which can be one of them."""
    cases = count_cases(iterate_lines(training))
    for text in texts:
        with atomic_write(text) as file:
            file.writelines(f"{line}\n".encode() for line in truecase(cases, iterate_lines(text)))
