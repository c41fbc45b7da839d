"""Recipes for a user's own text: sizes and settings of the training follow from the number of its characters.

docs/own_data.md has the rule.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from ode_transformer.lab.corpora.gec_corpus import edited_sentences
from ode_transformer.lab.corpora.raw_text import PairLocation, read_pairs, read_texts
from ode_transformer.lab.corpora.text_corpora import text_lines
from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.recipe import Flags, read_recipe, size_flags
from ode_transformer.lab.recipes.training import MAX_SENTENCE_TOKENS
from ode_transformer.support.errors import UserError, printable_line

CHARACTERS_PER_TOKEN = 4
LONG_LINE = CHARACTERS_PER_TOKEN * MAX_SENTENCE_TOKENS  # characters; longer ones have probably too many tokens
MAX_PIECES = 32_000
UPDATE_TOKENS = (512, 32_768)
SUMMARY_TOKENS = 4096  # at least, of an update of summaries
PASSES, MAX_UPDATES, MAX_WARMUP = 40, 50_000, 4_000


@dataclass(frozen=True)
class Scale:
    """Settings that go with the size of a corpus.

    :param tokens: of the training text, at most
    :param suffix: of the architecture's name
    """

    tokens: float
    suffix: str
    learning_rate: float
    dropout: float


SCALES = (
    Scale(1e6, "tiny", 0.003, 0.3),
    Scale(20e6, "iwslt_de_en", 0.001, 0.3),
    Scale(math.inf, "wmt_en_de", 0.002, 0.1),
)


@dataclass(frozen=True)
class TextCounts:
    """Counts of a text.

    :param lines: or pairs of lines
    :param characters: of each side
    :param letters: number of different characters
    :param long_lines: numbers of the lines that a model has probably too few positions for, by file
    """

    lines: int
    characters: tuple[int, ...]
    letters: int
    long_lines: Mapping[Path, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingPlan:
    """The numbers of a recipe that depend on its text."""

    pieces: int
    tokens_per_update: int
    updates: int
    warmup: int
    scale: Scale


def plan_training(kind: str, counts: TextCounts) -> TrainingPlan:
    """Choose sizes and settings by the rule of docs/own_data.md, given the counts of the training text."""
    pieces = 30 * sum(counts.characters) ** (1 / 3) + counts.letters
    tokens = max(counts.characters) / CHARACTERS_PER_TOKEN
    nearest = 2 ** round(math.log2(2 * math.sqrt(tokens)))
    least = SUMMARY_TOKENS if kind == "summaries" else UPDATE_TOKENS[0]
    update = min(max(nearest, least), UPDATE_TOKENS[1])
    updates = min(max(math.ceil(PASSES * tokens / update), PASSES), MAX_UPDATES)
    return TrainingPlan(
        pieces=min(round(pieces), MAX_PIECES),
        tokens_per_update=update,
        updates=updates,
        warmup=min(max(updates // 10, 1), MAX_WARMUP),
        scale=next(scale for scale in SCALES if tokens <= scale.tokens),
    )


def is_table(path: Path) -> bool:
    """Tell whether a text looks like a table of sentence pairs: its first lines have a tab each."""
    lines = list(islice(filter(None, read_texts(path)), 100))
    return bool(lines) and all("\t" in line for line in lines)


def count_text(kind: str, paths: Sequence[Path]) -> TextCounts:
    """Count the lines, or pairs of lines, of a split.

    :raises UserError: a file is missing, empty or not UTF-8; the sides have different numbers of lines
    """
    examples: Iterable[Sequence[str]]
    if kind == "text":
        examples = ((line,) for line in text_lines(paths))
    elif kind == "corrections":
        examples = edited_sentences(paths[0], None, "M2")
    else:
        files = dict(zip(("source", "target"), paths, strict=True))
        examples = read_pairs(files, PairLocation(source_file="source", target_file="target"))
    lines, totals, letters = 0, [0, 0], set[str]()
    long_lines: dict[Path, list[int]] = {}
    source_is_divided = kind in ("text", "summaries")  # or cut
    for example in examples:
        lines += 1
        for side, text in enumerate(example):
            totals[side] += len(text)
            letters.update(text)
            if len(text) >= LONG_LINE and not (side == 0 and source_is_divided):
                long_lines.setdefault(paths[min(side, len(paths) - 1)], []).append(lines)
    if not sum(totals):
        raise UserError(f"{', '.join(map(str, paths))}: no text")
    return TextCounts(lines, tuple(filter(None, totals)), len(letters), long_lines)


UNITS = {"translation": "pairs", "summaries": "pairs", "corrections": "corrected sentences", "text": "lines"}
SCORES: dict[str, list[dict[str, Any]]] = {
    "translation": [{"names": ["BLEU"], "metric": "bleu"}, {"names": ["chrF2"], "metric": "chrf"}],
    "summaries": [{"names": ["ROUGE-1", "ROUGE-2", "ROUGE-L"], "metric": "rouge"}],
    "corrections": [{"names": ["Precision", "Recall", "F0.5"], "metric": "m2", "against": "m2"}],
    "text": [{"names": ["Perplexity"], "metric": "perplexity", "options": {"pieces": True}}],
}


@dataclass(frozen=True)
class OwnRecipe:
    """A recipe for a user's own files.

    :param kind: one of ``UNITS``
    :param files: paths of the files of each split, source first; train, valid and, if there is one, test
    :param sides: suffixes of source and target, such as language codes
    :param arch: None for the one that fits the text
    """

    kind: str
    path: Path
    files: Mapping[str, Sequence[Path]]
    sides: tuple[str, str]
    plan: TrainingPlan
    arch: str | None = None

    @property
    def _default_arch(self) -> str:
        return "ode_transformer_lm_rk2" if self.kind == "text" else f"ode_transformer_rk2_{self.plan.scale.suffix}"

    @property
    def _scale(self) -> Scale:
        """The scale of the user's architecture, or of the text where its name does not say."""
        return next((scale for scale in SCALES if scale.suffix in (self.arch or "")), self.plan.scale)

    def text(self, comments: Sequence[str]) -> str:
        sections: dict[str, Any] = {
            "title": self.path.stem,
            "sources": self._sources(),
            "corpus": self._corpus(),
            "vocabulary": {"kind": "sentencepiece", "size": self.plan.pieces, "fewer": True},
            "arch": self.arch or self._default_arch,
            "tokens_per_update": self.plan.tokens_per_update,
            **({"threads": 1} if self._scale is SCALES[0] else {}),
            **(self._language_model() if self.kind == "text" else self._two_sided_model()),
            "score": SCORES[self.kind],
        }
        head = "".join(f"# {printable_line(comment)}\n" for comment in comments)  # a path may hold a line feed
        return head + yaml.safe_dump(sections, default_flow_style=None, sort_keys=False, allow_unicode=True, width=110)

    def _names(self, split: str) -> list[str]:
        """Return the names of a split's sources, one for each file."""
        return [f"{split}_{side}" for side in self.sides] if len(self.files[split]) == 2 else [split]

    def _sources(self) -> dict[str, str]:
        folder = os.path.realpath(self.path.parent)  # .. is followed from where a link leads
        named = (pair for split, files in self.files.items() for pair in zip(self._names(split), files, strict=True))
        return {name: os.path.relpath(os.path.abspath(file), folder) for name, file in named}

    def _corpus(self) -> dict[str, Any]:
        test = "test" if "test" in self.files else "valid"
        if self.kind == "text":
            splits: dict[str, Any] = {split: self._names(split) for split in ("train", "valid")}
            return {"kind": "text", **splits} | ({"test": {"test": ["test"]}} if "test" in self.files else {})
        if self.kind == "corrections":
            return {"kind": "m2", "train": "train", "valid": "valid", "test": {test: test}}
        source, target = self.sides

        def pair(split: str) -> list[dict[str, str]]:
            return [dict(zip(("source_file", "target_file"), self._names(split), strict=True))]

        splits = {"train": pair("train"), "valid": pair("valid"), "test": {test: pair(test)}, "text": {}}
        keep = {"keep": {"unit": "pieces", "max": 250}} if self.kind == "translation" else {}
        return {"kind": "parallel", "source": source, "target": target, **splits, **keep}

    def _size(self, size: Flags) -> Flags:
        """Return the flags of the default architecture's size that the architecture has."""
        return size if self.arch in (None, self._default_arch) else size_flags(size, self.arch)

    def _training(self) -> dict[str, Any]:
        return {
            "optimizer": "fused_adam",
            "adam-betas": "(0.9,0.98)",
            "clip-norm": 1.0,
            "lr-scheduler": "inverse_sqrt",
            "lr": self._scale.learning_rate,
            "warmup-updates": self.plan.warmup,
            "dropout": self._scale.dropout,
            "max-tokens": min(self.plan.tokens_per_update, 4096),
            "max-update": self.plan.updates,
            "patience": 10,
            "log-depth-interval": 100,
        }

    def _two_sided_model(self) -> dict[str, Any]:
        cut = {"truncate-source": True, "max-source-positions": 500} if self.kind == "summaries" else {}
        smoothing = {"criterion": "fused_label_smoothed_cross_entropy", "label-smoothing": 0.1}
        search = {"beam": 5, "max-tokens": 4000} | ({"max-len-b": 200, "no-repeat-ngram-size": 3} if cut else {})
        tiny_size = read_recipe(find_recipe("quickstart_text")).size
        return {
            **({"size": self._size(tiny_size)} if self._scale is SCALES[0] else {}),
            "average": {"last": 5, "compare": True},
            "train": {**cut, "share-all-embeddings": True, **smoothing, **self._training()},
            "generate": {**cut, **search},
        }

    def _language_model(self) -> dict[str, Any]:
        sample = {"sample-break-mode": "none", "tokens-per-sample": min(self.plan.tokens_per_update // 4, 512)}
        # In all language models trained here ahead of residual layers (docs/results/language_models.md)
        size: Flags = {"ode-coefficients": "ones"}
        if self._scale is SCALES[0]:
            size |= {f"decoder-{width}-dim": 128 for width in ("embed", "input", "output")}
            size |= {"decoder-ffn-embed-dim": 512, "decoder-attention-heads": 4, "decoder-layers": 2}
        flags = {"share-decoder-input-output-embed": True, **sample, "criterion": "fused_cross_entropy"}
        return {
            "task": "language_modeling",
            "size": self._size(size),
            "average": {"best": True},
            "train": {**flags, **self._training()},
            "generate": {**sample, "max-tokens": 4000},
            "score_valid": True,
        }
