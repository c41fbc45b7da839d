"""Corpus for grammatical error correction: learners' sentences and their corrections, from M2 files and raw Lang-8.

docs/grammatical_error_correction.md has the data sets and the two ways to prepare them: that of the release, which
follows the scripts of Chollampatt & Ng (2018), and that of BEA 2019.

Tokens of M2 files stay as they are: spaCy 1.9's in BEA 2019, but NLTK's in NUCLE and in the test set.
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from ode_transformer.lab.corpora.cleaning import EditedPairs, Keep
from ode_transformer.lab.corpora.corpus import SplitWriter, Suffix, TwoSidedCorpus, fairseq_test_split
from ode_transformer.lab.corpora.lang8 import read_entries, tokenised_pairs
from ode_transformer.lab.corpora.raw_text import Files, open_texts
from ode_transformer.lab.metrics.m2_file import UNCORRECTED_TYPES, AnnotatedSentence, correct_tokens, iterate_sentences
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.lines import decode_stream
from ode_transformer.support.parallel import map_chunks

BeaDataSet = Literal["nucle", "lang8", "fce", "wi_locness"]  # names of raw files
DataSet = BeaDataSet | Literal["nucle_3_2", "lang8_raw"]
ValidationDataSet = Literal["nucle", "nucle_3_2", "fce", "wi_locness"]
TEST = "conll14_test"
SEED = 1234  # of get_num_lines.py
PUNKT = "nltk_punkt"  # NLTK's boundaries of sentences, for raw Lang-8

TRAIN_MEMBERS: dict[str, str] = {
    "nucle": "release3.3/bea2019/nucle.train.gold.bea19.m2",
    "nucle_3_2": "release3.2/data/conll14st-preprocessed.m2",
    "lang8": "*lang8.train.auto.bea19.m2",
    "fce": "fce/m2/fce.train.gold.bea19.m2",
    "wi_locness": "wi+locness/m2/ABC.train.gold.bea19.m2",
}
VALID_MEMBERS = {"fce": "fce/m2/fce.dev.gold.bea19.m2", "wi_locness": "wi+locness/m2/ABCN.dev.gold.bea19.m2"}
TEST_MEMBER = "*/noalt/official-2014.combined.m2"


class GecCorpus(TwoSidedCorpus):
    """Settings of the corpus for grammatical error correction.

    :param train: data sets for training
    :param valid: data set for validation: ``nucle`` holds out every n-th edited sentence, ``nucle_3_2`` an n-th of the
        annotated sentences, drawn as by the published scripts; the others have a development set
    :param valid_every: that n
    :param max_tokens: on each side of a training pair; longer pairs are left out
    :param max_ratio: of the longer side's tokens to the shorter side's; None for any
    :param unedited: keep unedited sentences, and edited ones with overlapping edits, until merges have been learned
    """

    kind: Literal["corrections"] = "corrections"
    train: Annotated[list[DataSet], Field(min_length=1)] = list(get_args(BeaDataSet))
    valid: ValidationDataSet = "nucle"
    valid_every: Annotated[int, Field(ge=2)] = 4
    max_tokens: Annotated[int, Field(ge=1)] = 80
    max_ratio: Annotated[float | None, Field(ge=1, exclude_if=lambda ratio: ratio is None)] = None
    unedited: Annotated[bool, Field(exclude_if=lambda unedited: not unedited)] = False
    source: Suffix = "err"
    target: Suffix = "cor"

    @model_validator(mode="after")
    def _check_no_leak(self) -> Self:
        versions = {"nucle", "nucle_3_2"}  # of the same text
        other_version = versions & set(self.train) - {self.valid}
        keeps_held_out = self.unedited and self.valid == "nucle" and "nucle" in self.train
        if self.valid in versions and (other_version or keeps_held_out):
            raise ValueError(f"valid: {self.valid}: train has its sentences; valid: nucle_3_2 or another set")
        return self

    @property
    def sources(self) -> list[str]:
        return [*dict.fromkeys((*self.train, self.valid)), *([PUNKT] if "lang8_raw" in self.train else []), TEST]

    @property
    def piece_filter(self) -> EditedPairs | None:
        return EditedPairs() if self.unedited else None

    def filters(self, split: str) -> bool:
        return self.unedited and split == "train"

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        for pair in self._training_pairs(files, workers):
            splits.add("train", pair)
        for pair in self._validation_pairs(files):
            splits.add("valid", pair)
        _write_test_set(files[TEST], TEST_MEMBER, splits, "test")
        splits.check_filled("train", "valid", "test", files=[files[name] for name in self.sources])

    def _training_pairs(self, files: Files, workers: int) -> Iterator[tuple[str, str]]:
        keep = Keep(unit="words", max=self.max_tokens, ratio=self.max_ratio)
        for data_set in self.train:
            counts: Counter[str] = Counter()
            for number, pair in enumerate(self._pairs(data_set, files, workers), start=1):
                if data_set == self.valid == "nucle" and number % self.valid_every == 0:
                    counts["for validation"] += 1
                elif pair[0] == pair[1] and not self.unedited:
                    counts["unedited"] += 1
                elif keep(*pair):
                    counts["for training"] += 1
                    yield pair
                else:
                    counts[f"empty, longer than {self.max_tokens} or of unequal lengths"] += 1
            print_progress(f"{data_set}: " + ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items()))

    def _pairs(self, data_set: str, files: Files, workers: int) -> Iterator[tuple[str, str]]:
        """Yield the pairs of a data set for training, as tokens with spaces between them."""
        path = files[data_set]
        if data_set == "lang8_raw":
            tokenise = partial(tokenised_pairs, files[PUNKT])
            yield from map_chunks(tokenise, read_entries(path), workers, "entries of lang8_raw read", chunk_size=500)
        elif data_set == "nucle_3_2" or self.unedited:
            sentences: Iterable[AnnotatedSentence] = _annotated_sentences(path, TRAIN_MEMBERS[data_set])
            if data_set == self.valid == "nucle_3_2":
                sentences, _ = hold_out_sentences(sentences, self.valid_every)
            yield from (_pair(sentence, apply_edits(sentence)) for sentence in sentences)
        else:
            yield from edited_sentences(path, TRAIN_MEMBERS[data_set], data_set)

    def _validation_pairs(self, files: Files) -> Iterator[tuple[str, str]]:
        path, every = files[self.valid], self.valid_every
        if self.valid == "nucle_3_2":
            _, sentences = hold_out_sentences(_annotated_sentences(path, TRAIN_MEMBERS[self.valid]), every)
            pairs = [_pair(sentence, apply_edits(sentence)) for sentence in sentences]
        elif self.valid == "nucle":
            edited = edited_sentences(path, TRAIN_MEMBERS[self.valid], "nucle, validation")
            pairs = list(islice(edited, every - 1, None, every))
        else:
            pairs = list(edited_sentences(path, VALID_MEMBERS[self.valid], f"{self.valid}, validation"))
        return (pair for pair in pairs if pair[1])


def _pair(sentence: AnnotatedSentence, correction: list[str]) -> tuple[str, str]:
    return " ".join(sentence.tokens), " ".join(correction)


def edited_sentences(path: Path, member: str | None, title: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences that their first annotator changed, each with its correction, unless edits overlap.

    :param member: of an archive; None if the path is the M2 file
    """
    meter, left_out = ProgressMeter(f"{title}: sentences read"), 0
    for number, sentence in enumerate(_annotated_sentences(path, member), start=1):
        meter.update(number)
        correction, overlapping = correct_tokens(sentence)
        if overlapping:
            left_out += 1
        elif correction != list(sentence.tokens):
            yield _pair(sentence, correction)
    if left_out:
        print_progress(f"{title}: {left_out:,} sentences left out because their edits overlap")


def _annotated_sentences(path: Path, member: str | None) -> Iterator[AnnotatedSentence]:
    for name, text in open_texts(path, member):
        yield from iterate_sentences(decode_stream(text, name), name)


def _write_test_set(path: Path, member: str | None, splits: SplitWriter, split: str) -> None:
    """Write every sentence of an M2 file with its first annotator's correction, and a copy of the file."""
    for sentence in _annotated_sentences(path, member):
        splits.add(split, _pair(sentence, correct_tokens(sentence)[0]))
    with open(splits.folder / f"{split}.m2", "wb") as file:
        for _, text in open_texts(path, member):
            shutil.copyfileobj(text, file)


def hold_out_sentences(
    sentences: Iterable[AnnotatedSentence], parts: int
) -> tuple[list[AnnotatedSentence], list[AnnotatedSentence]]:
    """Return the training and the validation sentences of NUCLE, as the scripts of Chollampatt & Ng (2018) do.

    The annotated sentences are sorted (sort_m2.py) and shuffled by Python 2 with a fixed seed (get_num_lines.py).

    :param parts: validation has the first of so many parts of the annotated sentences
    """
    by_annotation: dict[bool, list[AnnotatedSentence]] = {True: [], False: []}
    for sentence in sentences:
        by_annotation[_edit_count(sentence) > 0].append(sentence)
    annotated = sorted(by_annotation[True], key=lambda sentence: (_edit_count(sentence), -len(sentence.tokens)))
    chance = random.Random(SEED)
    for last in range(len(annotated) - 1, 0, -1):  # random.shuffle of Python 2, which drew otherwise
        swapped = int(chance.random() * (last + 1))
        annotated[last], annotated[swapped] = annotated[swapped], annotated[last]
    size = len(annotated) // parts
    return annotated[size:] + by_annotation[False], annotated[:size]


def _edit_count(sentence: AnnotatedSentence) -> int:
    return sum(map(len, sentence.edits.values()))


def apply_edits(sentence: AnnotatedSentence) -> list[str]:
    """Return the tokens after all edits of the first annotator, in their order (convert_m2_to_parallel.py).

    Of overlapping edits each leaves its words, where ``m2_file.correct_tokens`` leaves out the later ones.
    """
    slots = ["", *sentence.tokens]
    for edit in sentence.edits.get(0, ()):
        if edit.kind in UNCORRECTED_TYPES:
            continue
        correction = " ".join(edit.corrections[0])
        if edit.start == edit.end:
            slots[edit.start] += f" {correction}"
        else:
            slots[edit.start + 1 : edit.end + 1] = [correction, *[""] * (edit.end - edit.start - 1)]
    return " ".join(slots).split()


class M2Corpus(TwoSidedCorpus):
    """Sentences and corrections of M2 files of one's own: edited ones for training and validation, all for the test.

    :param train: name of the source with the training text
    :param valid: of the validation text
    :param test: of the test sets, by name
    :param max_tokens: on each side of a training pair; longer pairs are left out
    """

    kind: Literal["m2"]
    train: str
    valid: str
    test: Annotated[dict[str, str], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] = 80
    source: Suffix = "err"
    target: Suffix = "cor"

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys([self.train, self.valid, *self.test.values()]))

    @property
    def tests(self) -> list[str]:
        return list(self.test)

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        keep = Keep(unit="words", max=self.max_tokens)
        for split, name in {"train": self.train, "valid": self.valid}.items():
            for sentence, correction in edited_sentences(files[name], None, name):
                if split == "train" and not keep(sentence, correction):
                    splits.counts["left out"] += 1
                elif correction:
                    splits.add(split, (sentence, correction))
            splits.check_filled(split, files=[files[name]])
        for number, name in enumerate(self.test.values()):
            split = fairseq_test_split(number)
            _write_test_set(files[name], None, splits, split)
            splits.check_filled(split, files=[files[name]])
