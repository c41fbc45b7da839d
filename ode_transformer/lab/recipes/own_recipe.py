"""Recipes for a user's own text: sizes and settings of the training follow from the number of its characters.

With c characters in the training text, of which l are different, and t = c' / 4 tokens (c' characters on the longer
side; a piece has about four letters):

    pieces             30 ∛c + l, at most 32,000
    tokens_per_update  the power of 2 nearest to 2 √t, from 512 to 32,768
    max-update         as many as 40 passes over the text take, at most 50,000
    warmup-updates     a tenth of them, at most 4,000
    threads            1 for the size tiny on a CPU
    size               tiny below one million tokens, with the layers of the quickstart; iwslt_de_en below 20 million,
                       wmt_en_de above
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ode_transformer.lab.corpora.gec_corpus import edited_sentences
from ode_transformer.lab.corpora.raw_text import PairLocation, read_pairs
from ode_transformer.lab.corpora.text_corpora import text_lines
from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.recipe import Flags, read_recipe, size_flags
from ode_transformer.lab.recipes.training import MAX_SENTENCE_TOKENS
from ode_transformer.support.errors import UserError, printable_line

CHARACTERS_PER_TOKEN = 4
LONG_LINE = CHARACTERS_PER_TOKEN * MAX_SENTENCE_TOKENS  # characters; longer ones have probably too many tokens
MAX_PIECES = 32_000
UPDATE_TOKENS = (512, 32_768)
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


def plan_training(counts: TextCounts, least_update: int = UPDATE_TOKENS[0]) -> TrainingPlan:
    """Choose sizes and settings by the rule of this module.

    :param least_update: smallest number of tokens per update
    """
    pieces = 30 * sum(counts.characters) ** (1 / 3) + counts.letters
    tokens = max(counts.characters) / CHARACTERS_PER_TOKEN
    nearest = 2 ** round(math.log2(2 * math.sqrt(tokens)))
    update = min(max(nearest, least_update), UPDATE_TOKENS[1])
    updates = min(max(math.ceil(PASSES * tokens / update), PASSES), MAX_UPDATES)
    return TrainingPlan(
        pieces=min(round(pieces), MAX_PIECES),
        tokens_per_update=update,
        updates=updates,
        warmup=min(max(updates // 10, 1), MAX_WARMUP),
        scale=next(scale for scale in SCALES if tokens <= scale.tokens),
    )


def count_text(kind: str, paths: Sequence[Path]) -> TextCounts:
    """Count the lines, or pairs of lines, of a split.

    :param kind: one of ``UNITS``
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
    arch: str | None = None

    def plan(self, train: TextCounts) -> TrainingPlan:
        """Return the numbers that fit the training text."""
        return plan_training(train, 4096 if self.kind == "summaries" else UPDATE_TOKENS[0])

    def architecture(self, plan: TrainingPlan) -> str:
        """Return the user's architecture, or the one that fits the text."""
        return self.arch or self._default_architecture(plan)

    def _default_architecture(self, plan: TrainingPlan) -> str:
        return "ode_transformer_lm_rk2" if self.kind == "text" else f"ode_transformer_rk2_{plan.scale.suffix}"

    def _size(self, size: Flags, plan: TrainingPlan) -> Flags:
        """Return the flags of the default architecture's size that the architecture has."""
        arch = self.architecture(plan)
        return size if arch == self._default_architecture(plan) else size_flags(size, arch)

    def text(self, comments: Sequence[str], plan: TrainingPlan) -> str:
        """Return the recipe as YAML."""
        sections: dict[str, Any] = {
            "title": self.path.stem,
            "sources": self._sources(),
            "corpus": self._corpus(),
            "vocabulary": {"kind": "sentencepiece", "size": plan.pieces, "fewer": True},
            "arch": self.architecture(plan),
            "tokens_per_update": plan.tokens_per_update,
            **(self._language_model(plan) if self.kind == "text" else self._two_sided_model(plan)),
            "score": SCORES[self.kind],
        }
        head = "".join(f"# {printable_line(comment)}\n" for comment in comments)  # a path may hold a line feed
        return head + yaml.safe_dump(sections, default_flow_style=None, sort_keys=False, allow_unicode=True, width=110)

    def _names(self, split: str) -> list[str]:
        """Return the names of a split's sources, one for each file."""
        return [f"{split}_{side}" for side in self.sides] if len(self.files[split]) == 2 else [split]

    def _sources(self) -> dict[str, str]:
        folder = os.path.realpath(self.path.parent)  # .. is followed from where a link leads
        return {
            name: os.path.relpath(os.path.abspath(file), folder)
            for split, files in self.files.items()
            for name, file in zip(self._names(split), files, strict=True)
        }

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

    def _scale(self, plan: TrainingPlan) -> Scale:
        """Return the scale of the architecture, or of the text where its name does not say."""
        arch = self.architecture(plan)
        return next((scale for scale in SCALES if scale.suffix in arch), plan.scale)

    def _training(self, plan: TrainingPlan) -> dict[str, Any]:
        """Return the flags of fairseq-train that all kinds share."""
        return {
            "optimizer": "fused_adam",
            "adam-betas": "(0.9,0.98)",
            "clip-norm": 1.0,
            "lr-scheduler": "inverse_sqrt",
            "lr": self._scale(plan).learning_rate,
            "warmup-updates": plan.warmup,
            "dropout": self._scale(plan).dropout,
            "max-tokens": min(plan.tokens_per_update, 4096),
            "max-update": plan.updates,
            "patience": 10,
            "log-depth-interval": 100,
        }

    def _two_sided_model(self, plan: TrainingPlan) -> dict[str, Any]:
        cut = {"truncate-source": True, "max-source-positions": 500} if self.kind == "summaries" else {}
        smoothing = {"criterion": "fused_label_smoothed_cross_entropy", "label-smoothing": 0.1}
        search = {"beam": 5, "max-tokens": 4000} | ({"max-len-b": 200, "no-repeat-ngram-size": 3} if cut else {})
        is_tiny = self._scale(plan) is SCALES[0]
        return {
            **({"size": self._size(read_recipe(find_recipe("quickstart_text")).size, plan)} if is_tiny else {}),
            **({"threads": 1} if is_tiny else {}),
            "average": {"last": 5, "compare": True},
            "train": {**cut, "share-all-embeddings": True, **smoothing, **self._training(plan)},
            "generate": {**cut, **search},
        }

    def _language_model(self, plan: TrainingPlan) -> dict[str, Any]:
        sample = {"sample-break-mode": "none", "tokens-per-sample": min(plan.tokens_per_update // 4, 512)}
        narrow = {f"decoder-{width}-dim": 128 for width in ("embed", "input", "output")}
        narrow |= {"decoder-ffn-embed-dim": 512, "decoder-attention-heads": 4, "decoder-layers": 2}
        # In all language models trained here ahead of residual layers (docs/results/language_models.md)
        is_tiny, size = plan.scale is SCALES[0], Flags({"ode-coefficients": "ones"})
        flags = {"share-decoder-input-output-embed": True, **sample, "criterion": "fused_cross_entropy"}
        return {
            "task": "language_modeling",
            "size": self._size(size | narrow if is_tiny else size, plan),
            **({"threads": 1} if is_tiny else {}),
            "average": {"best": True},
            "train": {**flags, **self._training(plan)},
            "generate": {**sample, "max-tokens": 4000},
            "score_valid": True,
        }
