"""Corpus for grammatical error correction from M2 files of one's own.

As in ``gec_corpus``, the training and validation sets have the sentences that their first annotator changed, and the
test set has all sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ode_transformer.corpora.cleaning import Keep
from ode_transformer.corpora.corpus import SplitWriter, TwoSidedCorpus, test_split_name
from ode_transformer.corpora.gec_corpus import annotated_pairs, copy_annotations, edited_sentences
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory


class M2Corpus(TwoSidedCorpus):
    """Sentences and corrections of M2 files.

    :param train: name of the source with the training text
    :param valid: of the validation text
    :param test: of the test sets, by name
    :param max_tokens: on each side of a training pair; longer pairs are left out
    """

    has_corrections: ClassVar[bool] = True
    kind: Literal["m2"]
    train: str
    valid: str
    test: Annotated[dict[str, str], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] = 80
    source: str = "err"
    target: str = "cor"

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys([self.train, self.valid, *self.test.values()]))

    @property
    def tests(self) -> list[str]:
        return list(self.test)

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        keep = Keep(unit="words", max=self.max_tokens)
        with atomic_directory(output) as folder, SplitWriter(folder, self.languages) as splits:
            for split, name in {"train": self.train, "valid": self.valid}.items():
                for sentence, correction in edited_sentences(files[name], None, name):
                    if split == "train" and not keep(sentence, correction):
                        splits.counts["left out"] += 1
                    elif correction:
                        splits.add(split, (sentence, correction))
                if not splits.counts[split]:
                    raise UserError(f"{files[name]}: no sentence that annotator 0 corrects, for the {split} split")
            for number, name in enumerate(self.test.values()):
                split = test_split_name(number)
                copy_annotations(files[name], None, folder / f"{split}.m2")
                is_corrected = False
                for source, target in annotated_pairs(folder / f"{split}.m2", str(files[name])):
                    splits.add(split, (source, target))
                    is_corrected = is_corrected or source != target
                if not is_corrected:
                    raise UserError(f"{files[name]}: no sentence that annotator 0 corrects, for the {split} split")
        return dict(splits.counts)
