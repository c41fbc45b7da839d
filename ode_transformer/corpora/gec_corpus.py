"""The corpus of grammatical error correction: pairs of a learner's sentence and its correction, from M2 files.

Training has the edited sentences of NUCLE, Lang-8, FCE and W&I+LOCNESS, as their first annotator corrected them;
validation a quarter of NUCLE's edited sentences; the test set is CoNLL-2014's (ODE Transformer, Li et al. 2022). NUCLE
is divided as by Chollampatt & Ng 2018, but for their random draw: here every fourth sentence is held out. Tokens stay
as the files have them. NUCLE and Lang-8 are given on request only; the other two alone make a corpus, too.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from ode_transformer.corpora.corpus import Splits, TwoSidedCorpus
from ode_transformer.corpora.raw_archives import open_texts, reading
from ode_transformer.metrics.m2_file import AnnotatedSentence, corrected, overlap, sentences_of
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory

Part = Literal["nucle", "lang8", "fce", "wi_locness"]  # names of raw files
ValidPart = Literal["nucle", "fce", "wi_locness"]
TEST = "conll14_test"

TRAIN_MEMBERS: dict[str, str] = {
    "nucle": "release3.3/bea2019/nucle.train.gold.bea19.m2",
    "lang8": "*lang8.train.auto.bea19.m2",
    "fce": "fce/m2/fce.train.gold.bea19.m2",
    "wi_locness": "wi+locness/m2/ABC.train.gold.bea19.m2",
}
VALID_MEMBERS = {"fce": "fce/m2/fce.dev.gold.bea19.m2", "wi_locness": "wi+locness/m2/ABCN.dev.gold.bea19.m2"}
TEST_MEMBER = "*/noalt/official-2014.combined.m2"


class GecCorpus(TwoSidedCorpus):
    """Choices of a recipe.

    :param train: parts to train on
    :param valid: where validation comes from: ``nucle`` takes every n-th edited sentence out of it, the others have a
        development set of their own
    :param valid_every: that n
    :param max_tokens: of each side of a training pair
    """

    kind: Literal["corrections"] = "corrections"
    train: Annotated[list[Part], Field(min_length=1)] = list(get_args(Part))
    valid: ValidPart = "nucle"
    valid_every: Annotated[int, Field(ge=2)] = 4
    max_tokens: Annotated[int, Field(ge=1)] = 80
    source: str = "err"
    target: str = "cor"

    @model_validator(mode="after")
    def _parts_once(self) -> GecCorpus:
        if len(set(self.train)) < len(self.train):
            raise ValueError("train names a part twice")
        return self

    @property
    def sources(self) -> list[str]:
        """The raw files that are needed, by their names in the catalogue."""
        return [*dict.fromkeys((*self.train, self.valid)), TEST]

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        return build(files, output, self, workers)


def build(files: Mapping[str, Path], output: Path, options: GecCorpus, workers: int = 1) -> dict[str, int]:
    """Makes the corpus folder, with ``test.m2`` for scoring; returns how many lines each split has.

    :param files: raw files by the names of ``options.sources``
    :param workers: not used: reading takes a minute
    :raises UserError: a raw file is not what it should be, or leaves a split empty
    """
    with atomic_directory(output) as folder, Splits(folder, options.languages) as splits:
        _copy_test(files, folder / "test.m2")
        parts = {
            "train": _train(files, options),
            "valid": _valid(files, options),
            "test": _test(folder / "test.m2", files[TEST]),
        }
        for split, pairs in parts.items():
            for pair in pairs:
                splits.add(split, pair)
            if not splits.counts[split]:
                named = ", ".join(str(files[name]) for name in options.sources)
                raise UserError(f"{named}: no sentence for the {split} split")
    return dict(splits.counts)


def _train(files: Mapping[str, Path], options: GecCorpus) -> Iterator[tuple[str, str]]:
    for part in options.train:
        counts: Counter[str] = Counter()
        for number, (before, after) in enumerate(_edited(files[part], TRAIN_MEMBERS[part], part), start=1):
            if part == options.valid == "nucle" and number % options.valid_every == 0:
                counts["for validation"] += 1
            elif 1 <= len(after) <= options.max_tokens and len(before) <= options.max_tokens:
                counts["for training"] += 1
                yield " ".join(before), " ".join(after)
            else:
                counts[f"empty or longer than {options.max_tokens}"] += 1
        print_progress(f"{part}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))


def _valid(files: Mapping[str, Path], options: GecCorpus) -> Iterator[tuple[str, str]]:
    own = VALID_MEMBERS.get(options.valid)
    edited = _edited(files[options.valid], own or TRAIN_MEMBERS[options.valid], f"{options.valid}, validation")
    for number, (before, after) in enumerate(edited, start=1):
        if after and (own or number % options.valid_every == 0):
            yield " ".join(before), " ".join(after)


def _edited(path: Path, member: str, what: str) -> Iterator[tuple[list[str], list[str]]]:
    """The sentences that their first annotator changed, and their corrections; without those whose edits overlap."""
    meter, overlapping = ProgressMeter(f"{what}: sentences read"), 0
    for number, sentence in enumerate(_sentences(path, member), start=1):
        meter.update(number)
        after = corrected(sentence)
        if overlap(sentence):
            overlapping += 1
        elif after != list(sentence.tokens):
            yield list(sentence.tokens), after
    if overlapping:
        print_progress(f"{what}: {overlapping:,} sentences left out, whose edits overlap")


def _sentences(path: Path, member: str) -> Iterator[AnnotatedSentence]:
    with reading(path):
        for name, text in open_texts(path, member):
            yield from sentences_of(text, name)


def _copy_test(files: Mapping[str, Path], output: Path) -> None:
    with reading(files[TEST]), open(output, "wb") as file:
        for _, text in open_texts(files[TEST], TEST_MEMBER):
            shutil.copyfileobj(text, file)


def _test(m2: Path, archive: Path) -> Iterator[tuple[str, str]]:
    """Every sentence of the test set, and its first annotator's correction."""
    with open(m2, "rb") as file:
        for sentence in sentences_of(file, f"{archive}: {TEST_MEMBER}"):
            yield " ".join(sentence.tokens), " ".join(corrected(sentence))
