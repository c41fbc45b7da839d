"""Parallel corpus: text is read from archives, cleaned, tokenised and divided into splits."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ode_transformer.lab.corpora.cleaning import Keep, TextPreparation, truecase_files
from ode_transformer.lab.corpora.corpus import SplitWriter, TwoSidedCorpus, fairseq_test_split
from ode_transformer.lab.corpora.raw_text import Files, PairLocation, read_pairs
from ode_transformer.support.files import write_text
from ode_transformer.support.parallel import map_chunks

Pairs = Iterator[tuple[str, str]]


class ParallelCorpus(TwoSidedCorpus):
    """Raw files of a translation data set and their preparation.

    :param train: training text, in this order
    :param valid: validation set; or
    :param hold_out: n, if every n-th pair of the training text is for validation instead
    :param test: test sets by name
    :param references: further references by name of the test set, each with the same source
    :param text: preparation of every line
    :param keep: which pairs of the training text are kept; separate validation and test sets stay complete
    :param test_text: preparation of the test sets, if different
    :param truecase: write the first words of sentences as the training text has them within sentences
    """

    kind: Literal["parallel"]
    train: Annotated[list[PairLocation], Field(min_length=1)]
    valid: list[PairLocation] = []
    hold_out: Annotated[int, Field(ge=2)] | None = None
    test: Annotated[dict[str, list[PairLocation]], Field(min_length=1)]
    references: dict[str, list[PairLocation]] = {}
    text: TextPreparation
    test_text: Annotated[TextPreparation | None, Field(exclude_if=lambda preparation: preparation is None)] = None
    keep: Keep | None = None
    truecase: Annotated[bool, Field(exclude_if=lambda truecase: not truecase)] = False

    @model_validator(mode="after")
    def _check_sets(self) -> Self:
        if bool(self.valid) == (self.hold_out is not None) or not self.references.keys() <= self.test.keys():
            raise ValueError("say either valid: the parts of a validation set, or hold_out: N; references of test sets")
        return self

    @property
    def sources(self) -> list[str]:
        locations = chain(self.train, self.valid, *self.test.values(), *self.references.values())
        return list(dict.fromkeys(name for location in locations for name in location.files))

    @property
    def tests(self) -> list[str]:
        return list(self.test)

    @property
    def piece_filter(self) -> Keep | None:
        return self.keep if self.keep and self.keep.unit == "pieces" else None

    def filters(self, split: str) -> bool:
        return split == "train" or (split == "valid" and self.hold_out is not None)

    def further_references(self, test: str) -> int:
        return len(self.references.get(test, []))

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        for pair in self._prepared(files, self.train, self.text, "training pairs", workers):
            if self.keep is not None and not self.piece_filter and not self.keep(*pair):
                splits.counts["left out"] += 1
                continue
            number = splits.counts["train"] + splits.counts["valid"] + 1
            splits.add("valid" if self.hold_out and number % self.hold_out == 0 else "train", pair)
        for pair in self._prepared(files, self.valid, self.text, "validation pairs", workers):
            splits.add("valid", pair)
        for number, (name, locations) in enumerate(self.test.items()):
            for pair in self._prepared(files, locations, self.test_text or self.text, f"pairs of {name}"):
                splits.add(fairseq_test_split(number), pair)
            self._write_references(files, name, splits.folder, fairseq_test_split(number))
        splits.check_filled("train", "valid", *map(fairseq_test_split, range(len(self.test))))
        splits.close()
        for language in self.languages if self.truecase else ():
            texts = [text for text in sorted(splits.folder.glob(f"*.{language}")) if not text.name.startswith("raw")]
            truecase_files(splits.folder / f"train.{language}", texts)

    def _write_references(self, files: Files, name: str, folder: Path, split: str) -> None:
        """Write all references of a test set as published, and those after the first also prepared."""
        further_references = [[location] for location in self.references.get(name, [])]
        for version, locations in enumerate([self.test[name], *further_references]):
            published = [location.model_copy(update={"straight_apostrophes": False}) for location in locations]
            texts: dict[str, Pairs] = {f"raw{version or ''}": _raw_pairs(files, published)}
            if version:
                text = self.test_text or self.text
                texts[f"tokens{version}"] = self._prepared(files, locations, text, f"references of {name}")
            for prefix, pairs in texts.items():
                path = folder / f"{prefix}.{split}.{self.target}"
                write_text(path, "".join(f"{target}\n" for _, target in pairs))

    def _prepared(
        self, files: Files, locations: list[PairLocation], text: TextPreparation, title: str, workers: int = 1
    ) -> Pairs:
        prepare = partial(text.prepare_pairs, self.languages)
        return map_chunks(prepare, _raw_pairs(files, locations), workers, f"{title} read")


def _raw_pairs(files: Files, locations: list[PairLocation]) -> Pairs:
    return chain.from_iterable(read_pairs(files, location) for location in locations)
