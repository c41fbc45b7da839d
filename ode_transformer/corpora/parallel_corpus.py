"""Parallel text: read from its archives, cleaned and tokenised, divided into splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ode_transformer.corpora.cleaning import Keep, TextSteps, clean
from ode_transformer.corpora.corpus import Splits, TwoSidedCorpus, test_split
from ode_transformer.corpora.raw_text import PairPart, read_pairs
from ode_transformer.support.files import atomic_directory, write_text
from ode_transformer.support.parallel import map_chunks

Pairs = Iterator[tuple[str, str]]


class ParallelCorpus(TwoSidedCorpus):
    """Where the text of a translation data set is, and what becomes of it.

    :param train: parts of raw files, one after the other
    :param valid: likewise; or
    :param hold_out: every n-th pair of the training text is for validation instead
    :param test: name of a test set -> its parts
    :param references: name of a test set -> the same source with further references, a part each
    :param text: steps of preparation of every line
    :param keep: which pairs of the training text are kept; a validation or test set of its own stays whole
    :param test_text: steps of preparation of the test sets, where they are others
    """

    kind: Literal["parallel"]
    train: Annotated[list[PairPart], Field(min_length=1)]
    valid: list[PairPart] = []
    hold_out: Annotated[int, Field(ge=2)] | None = None
    test: Annotated[dict[str, list[PairPart]], Field(min_length=1)]
    references: dict[str, list[PairPart]] = {}
    text: TextSteps
    test_text: Annotated[TextSteps | None, Field(exclude_if=lambda steps: steps is None)] = None
    keep: Keep | None = None

    @model_validator(mode="after")
    def _one_validation_set(self) -> ParallelCorpus:
        if bool(self.valid) == (self.hold_out is not None):
            raise ValueError("say either valid: the parts of a validation set, or hold_out: N")
        return self

    @property
    def sources(self) -> list[str]:
        """The raw files that are needed, by their names in the catalogue."""
        parts = chain(self.train, self.valid, *self.test.values(), *self.references.values())
        return list(dict.fromkeys(name for part in parts for name in part.files))

    @property
    def tests(self) -> list[str]:
        return list(self.test)

    def cleans(self, split: str) -> bool:
        """Whether ``keep`` chooses from a split: from what is taken out of the training text."""
        return split == "train" or (split == "valid" and self.hold_out is not None)

    def further_references(self, test: str) -> int:
        return len(self.references.get(test, []))

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        """As of every kind; what was left out is counted, too."""
        with atomic_directory(output) as folder, Splits(folder, self.languages) as splits:
            for pair in self._kept(self._cleaned(files, self.train, self.text, workers, "training pairs"), splits):
                number = splits.counts["train"] + splits.counts["valid"] + 1
                splits.add("valid" if self.hold_out and number % self.hold_out == 0 else "train", pair)
            for pair in self._cleaned(files, self.valid, self.text, workers, "validation pairs"):
                splits.add("valid", pair)
            for number, (name, parts) in enumerate(self.test.items()):
                for pair in self._cleaned(files, parts, self.test_text or self.text, 1, f"pairs of {name}"):
                    splits.add(test_split(number), pair)
                for version, reference in enumerate([parts, *([part] for part in self.references.get(name, []))]):
                    published = [part.model_copy(update={"straight_apostrophes": False}) for part in reference]
                    texts = {f"raw{version or ''}": chain.from_iterable(read_pairs(files, part) for part in published)}
                    if version:
                        steps = self.test_text or self.text
                        texts[f"tokens{version}"] = self._cleaned(files, reference, steps, 1, f"references of {name}")
                    for kind, pairs in texts.items():
                        path = folder / f"{kind}.{test_split(number)}.{self.target}"
                        write_text(path, "".join(f"{target}\n" for _, target in pairs))
        return dict(splits.counts)

    def _cleaned(
        self, files: Mapping[str, Path], parts: list[PairPart], steps: TextSteps, workers: int, what: str
    ) -> Pairs:
        raw = chain.from_iterable(read_pairs(files, part) for part in parts)
        return map_chunks(partial(clean, steps, self.languages), raw, workers, f"{what} read")

    def _kept(self, pairs: Pairs, splits: Splits) -> Pairs:
        for pair in pairs:
            if self.keep is None or self.keep.unit == "pieces" or self.keep(*pair):
                yield pair
            else:
                splits.counts["left out"] += 1
