"""A recipe's data, from raw files to what fairseq reads: obtain, corpus, pieces, binarise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ode_transformer.corpora.cleaning import Keep
from ode_transformer.corpora.corpus import SplitWriter, test_split_name
from ode_transformer.corpora.vocabulary import encode_text
from ode_transformer.recipes.recipe import Recipe
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory, lock_directory, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import iterate_lines

SPECIAL_SYMBOLS = 4  # of fairseq's dictionaries, which its files leave out


class Data:
    """A recipe's data in their folder.

    :param recipe: of one data set
    :param folder: for everything that is made
    """

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder
        self.corpus, self.pieces, self.binary = folder / "corpus", folder / "pieces", folder / "data-bin"
        self.languages = recipe.corpus.languages

    @property
    def parallel(self) -> bool:
        """Two sides, or plain text."""
        return len(self.languages) == 2

    @property
    def text(self) -> Path:
        """The folder with what fairseq-preprocess reads."""
        return self.corpus if self.recipe.vocabulary.model_file is None and self._keep is None else self.pieces

    @property
    def model_files(self) -> list[Path]:
        """What a model needs beside itself to read and write text."""
        dictionaries = sorted(self.binary.glob("dict*.txt"))
        pieces = self.recipe.vocabulary.model_file
        return dictionaries + ([self.pieces / pieces] if pieces else [])

    @property
    def _keep(self) -> Keep | None:
        """Which pairs of pieces are kept, if lengths count pieces."""
        keep = getattr(self.recipe.corpus, "keep", None)
        return keep if keep and keep.unit == "pieces" else None

    def prepare(self, raw: Path | None, downloads: Path, workers: int) -> Jobs:
        """Run all jobs; those that are done are skipped. Returns them, for those of a run to build on.

        :param raw: the user's folder with raw files; without it they are downloaded
        :param downloads: where to
        :param workers: processes for what is slow
        :raises UserError: a raw file is missing or wrong, or a command failed
        """
        if raw is None and (done := self._all_done()):
            return done  # even if the raw files are there no more
        files = self.recipe.corpus.obtain(raw, downloads)
        self.folder.mkdir(parents=True, exist_ok=True)
        described = self.recipe.corpus.describe(files, downloads)
        write_text(self._described, json.dumps(described))
        make = {
            "corpus": lambda: self._make_corpus(files, workers),
            "pieces": lambda: self._make_pieces(workers),
            "binarise": lambda: self._binarise(workers),
        }
        jobs = Jobs(self.folder)
        with lock_directory(self.folder, "preparing data"):
            for name, request, result in self._requests(described):
                jobs.run(name, request, result, make[name])
        return jobs

    def prepared(self) -> Jobs:
        """The steps as they have been done.

        :raises UserError: some have not, or for a recipe that says something else
        """
        jobs = Jobs(self.folder)
        described = json.loads(self._described.read_text()) if self._described.exists() else []
        for name, request, result in self._requests(described):
            if not result.exists():
                raise UserError(f"{result}: not there; scripts/prepare.sh makes it")
            if not jobs.is_done(name, request, result):
                raise UserError(
                    f"{result}: made for a recipe with another {name} than this one; prepare the data again"
                )
            jobs.skip(name, request)
        return jobs

    def _all_done(self) -> Jobs | None:
        try:
            done = self.prepared()
        except UserError:
            return None
        done.report(f"{self.folder}: prepared already")
        return done

    @property
    def _described(self) -> Path:
        return self.folder / "raw.json"

    def _requests(self, described: list) -> Iterator[tuple[str, object, Path]]:
        """Name of each step, what it is asked to do, and what it leaves."""
        recipe = self.recipe
        yield "corpus", [described, recipe.corpus.model_dump(exclude={"keep"} if self._keep else None)], self.corpus
        if self.text == self.pieces:
            yield "pieces", [recipe.vocabulary.model_dump(), self._keep and self._keep.model_dump()], self.pieces
        yield "binarise", [recipe.vocabulary.joined, recipe.vocabulary.min_count], self.binary

    def _make_corpus(self, files: Mapping[str, Path], workers: int) -> None:
        counts = self.recipe.corpus.build(files, self.corpus, workers)
        write_text(self.folder / "counts.json", json.dumps(counts))

    def _make_pieces(self, workers: int) -> None:
        vocabulary, keep = self.recipe.vocabulary, self._keep
        texts = [self.corpus / f"train.{language}" for language in self.languages]
        with atomic_directory(self.pieces) as folder, SplitWriter(folder, self.languages) as splits:
            vocabulary.learn(texts, folder, workers)
            for split in self.splits():
                sides = [self.corpus / f"{split}.{language}" for language in self.languages]
                for example in zip(*(encode_text(vocabulary, folder, side, workers) for side in sides), strict=True):
                    if keep is None or not self.recipe.corpus.filters(split) or keep(*example):
                        splits.add(split, example)
                    else:
                        splits.counts["left out"] += 1
        if keep:
            write_text(self.folder / "counts.json", json.dumps(splits.counts))

    def splits(self) -> list[str]:
        """train, valid, test, test1, ..., as far as they are there."""
        return [name for name in self.all_splits() if (self.corpus / f"{name}.{self.languages[0]}").exists()]

    def all_splits(self) -> list[str]:
        """Those that the recipe names."""
        return ["train", "valid", *(test_split_name(number) for number in range(len(self.recipe.corpus.tests)))]

    def _binarise(self, workers: int) -> None:
        shutil.rmtree(self.binary, ignore_errors=True)
        commands.run(self.preprocess_command(self.splits(), workers), self.folder / "preprocess.log")

    def preprocess_command(self, splits: Sequence[str], workers: int) -> list[str | Path]:
        """The command that binarises these splits."""
        # Of plain text fairseq-preprocess is told whole names, of two sides what comes before the language.
        suffix = "" if self.parallel else f".{self.languages[0]}"
        paths = {split: f"{self.text / split}{suffix}" for split in splits}
        tests = [path for split, path in paths.items() if split.startswith("test")]
        vocabulary = self.recipe.vocabulary
        options = {
            **self.language_flags(),
            "only-source": not self.parallel,
            "trainpref": paths["train"],
            "validpref": paths["valid"],
            "testpref": ",".join(tests) or None,
            "destdir": self.binary,
            "joined-dictionary": vocabulary.joined and self.parallel,
            "thresholdsrc": vocabulary.min_count,
            "thresholdtgt": vocabulary.min_count,
            "workers": workers,
        }
        return ["fairseq-preprocess", *commands.flags(options)]

    def language_flags(self) -> dict[str, str]:
        """Flags of fairseq's commands that name the languages."""
        return dict(zip(("source-lang", "target-lang"), self.languages, strict=True)) if self.parallel else {}

    def sizes(self) -> dict[str, int]:
        """Lines of each split that fairseq reads, lines left out, and the length of the dictionaries."""
        counts = json.loads((self.folder / "counts.json").read_text())
        lengths = {path.name: sum(1 for _ in iterate_lines(path)) for path in sorted(self.binary.glob("dict*.txt"))}
        if self.recipe.vocabulary.joined or len(lengths) == 1:
            lengths = {"dictionary": max(lengths.values())}
        return counts | {name: length + SPECIAL_SYMBOLS for name, length in lengths.items()}

    def report(self) -> str:
        """Sizes beside the published ones."""
        published = self.recipe.counts
        lines = []
        for name, count in self.sizes().items():
            beside = ""
            if name in published:
                beside = f"  published: {published[name]:,} ({100 * (count / published[name] - 1):+.1f} %)"
            lines.append(f"  {name:<12}{count:>12,}{beside}")
        return "\n".join([f"{self.folder}:", *lines])
