"""Preparation of a recipe's data, from raw files to fairseq's binary files: corpus, pieces, binarise."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from ode_transformer.lab.corpora.corpus import SplitWriter, fairseq_test_split
from ode_transformer.lab.corpora.download import file_identity
from ode_transformer.lab.corpora.vocabulary import encode_text
from ode_transformer.lab.recipes.recipe import Recipe
from ode_transformer.lab.recipes.training import MAX_SENTENCE_TOKENS
from ode_transformer.support import commands
from ode_transformer.support.console import ProgressMeter, report_silence
from ode_transformer.support.errors import UserError, list_numbers, one_line
from ode_transformer.support.files import atomic_directory, content_digest, lock_directory, read_json, write_text
from ode_transformer.support.jobs import Jobs, Manifest
from ode_transformer.support.lines import iterate_lines

LONG_LINE_OUTCOMES = {"valid": "left out of validation", "test": "the output is empty"}
SPECIAL_SYMBOLS = 4  # in fairseq's dictionaries, but not in their files


class RecipeData:
    """The prepared data of a recipe in a folder.

    :param folder: for all files of the data set
    :param owner: names the recipe, for other recipes of the same folder; None: it is not recorded
    """

    def __init__(self, recipe: Recipe, folder: Path, owner: str | None = None) -> None:
        self.recipe, self.folder, self.owner = recipe, folder, owner
        self.corpus, self.pieces, self.binary = folder / "corpus", folder / "pieces", folder / "data-bin"
        self.languages = recipe.corpus.languages
        self.manifest = Manifest(folder)

    @property
    def parallel(self) -> bool:
        """True for two languages, false for plain text."""
        return len(self.languages) == 2

    @property
    def text(self) -> Path:
        """The input folder of fairseq-preprocess."""
        is_divided = self.recipe.vocabulary.model_file is not None
        return self.pieces if is_divided or self.recipe.corpus.piece_filter is not None else self.corpus

    @property
    def model_files(self) -> list[Path]:
        """The files that a model needs beside its checkpoint to read and write text."""
        dictionaries = sorted(self.binary.glob("dict*.txt"))
        pieces = self.recipe.vocabulary.model_file
        return dictionaries + ([self.pieces / pieces] if pieces else [])

    def prepare(self, raw: Path | None, downloads: Path, workers: int) -> None:
        """Run the jobs of preparation; completed ones are skipped.

        :param raw: the user's folder with raw files; None to download them
        :raises UserError: a raw file is missing or wrong, a command failed, or the folder has other data
        """
        jobs = Jobs(self.folder)
        if raw is None and not self._own_files_changed() and self.is_prepared():
            jobs.report(f"{self.folder}: prepared already")
            return  # even if the raw files no longer exist
        self._check_folder()  # before anything is downloaded
        sources = self.recipe.source_list()
        files = self.recipe.corpus.obtain(sources, raw, downloads)
        description = self.recipe.corpus.describe(files, sources, downloads)
        work_of_jobs = {
            "corpus": lambda: self._build_corpus(files, workers),
            "pieces": lambda: self._encode_pieces(workers),
            "binarise": lambda: self._binarise(workers),
        }
        with lock_directory(self.folder, "preparing data"):
            self._check_folder()
            results = {result.resolve() for _, _, result in self._requests([])}
            if within := [file for file in files.values() if not results.isdisjoint(file.resolve().parents)]:
                raise UserError(f"{within[0]}: a raw file in a folder that the preparation replaces; move it elsewhere")
            self.manifest.record(recipe=self.owner, raw=description)
            for name, request, result in self._requests(description):
                jobs.run(name, request, result, work_of_jobs[name])

    def _check_folder(self) -> None:
        """Refuse to replace the data of another recipe, or what no preparation has made."""
        results = [result for _, _, result in self._requests([]) if result.exists()]
        record, advice = self.manifest.entries(), "choose another folder by --output, or another name for the recipe"
        if results and "raw" not in record:
            raise UserError(f"{results[0]}: no preparation has made it, and this one would replace it; {advice}")
        owner = record.get("recipe")
        has_moved = self.is_prepared() and not self._own_files_changed()  # rather than being another one
        if results and owner and self.owner and owner != self.owner and not has_moved:
            raise UserError(f"{self.folder}: has the data of another recipe, {one_line(owner)}; {advice}")

    def prepared_jobs(self) -> Jobs:
        """Return the completed jobs of preparation.

        :raises UserError: a job is not complete, or was run for a recipe with other values
        """
        jobs = Jobs(self.folder)
        for name, request, result in self._requests(self.manifest.entries().get("raw", [])):
            if not jobs.is_done(name, request, result):
                problem = f"made for a recipe with another {name} than this one" if result.exists() else "not there"
                raise UserError(f"{result}: {problem}; run ode-transformer prepare with this --arch and --variant")
            jobs.skip(name, request)
        return jobs

    def training_jobs(self) -> Jobs:
        """Return the jobs that a training builds on: all of them, but other test text is no other training."""
        data = self.prepared_jobs()
        return Jobs(self.folder, self.manifest.entries().get("trained on", data.digest))

    def is_prepared(self) -> bool:
        try:
            self.prepared_jobs()
        except UserError:
            return False
        return True

    def _own_files_changed(self) -> bool:
        """Return whether a file of the user, which is read where it is, is another one than at the last preparation."""
        described = {name: identity for name, *identity in self.manifest.entries().get("raw", [])}
        return any(
            name in described and path.is_file() and described[name] != file_identity(path, path, self.folder)
            for name, path in self.recipe.own_files.items()
        )

    def _requests(self, description: list) -> Iterator[tuple[str, object, Path]]:
        """Yield the name, request and result of each job."""
        recipe, keep = self.recipe, self.recipe.corpus.piece_filter
        yield "corpus", [description, recipe.corpus.model_dump(exclude={"keep"} if keep else None)], self.corpus
        if self.text == self.pieces:
            yield "pieces", [recipe.vocabulary.model_dump(), keep and keep.model_dump()], self.pieces
        yield "binarise", [recipe.vocabulary.joined, recipe.vocabulary.min_count], self.binary

    def _build_corpus(self, files: Mapping[str, Path], workers: int) -> None:
        counts = self.recipe.corpus.build(files, self.corpus, workers)
        write_text(self.folder / "counts.json", json.dumps(counts))

    def _encode_pieces(self, workers: int) -> None:
        corpus, vocabulary, keep = self.recipe.corpus, self.recipe.vocabulary, self.recipe.corpus.piece_filter
        texts = [self.corpus / f"train.{language}" for language in self.languages]
        with atomic_directory(self.pieces, replaces=True) as folder, SplitWriter(folder, self.languages) as splits:
            with report_silence("learning pieces"):
                vocabulary.learn(texts, folder)
            for split in self.splits():
                sides = [self.corpus / f"{split}.{language}" for language in self.languages]
                pieces = [encode_text(vocabulary, folder, side, workers, n > 0) for n, side in enumerate(sides)]
                for example in zip(*pieces, strict=True):
                    if keep is None or not corpus.filters(split) or keep(*example):
                        splits.add(split, example)
                    else:
                        splits.counts["left out"] += 1
            splits.check_filled("train", "valid")
        if keep:
            write_text(self.folder / "counts.json", json.dumps(splits.counts))

    def splits(self) -> list[str]:
        """Return the splits that exist, of train, valid, test, test1, ..."""
        return [name for name in self.all_splits() if (self.corpus / f"{name}.{self.languages[0]}").exists()]

    def all_splits(self) -> list[str]:
        """Return the splits that the recipe names."""
        return ["train", "valid", *(fairseq_test_split(number) for number in range(len(self.recipe.corpus.tests)))]

    def _binarise(self, workers: int) -> None:
        shutil.rmtree(self.binary, ignore_errors=True)
        splits = self.splits()
        counts = read_json(self.folder / "counts.json")
        meter = ProgressMeter("lines binarised", len(self.languages) * sum(counts[split] for split in splits))

        def read(line: str) -> None:
            if match := re.search(r": (\d+) sents, ", line):
                meter.add(int(match[1]))

        with TemporaryDirectory() as folder:
            text = None
            if "," in str(self.text):  # where fairseq-preprocess divides several texts
                text = Path(folder, "text")
                text.symlink_to(self.text.resolve())
            commands.run(self.preprocess_command(splits, workers, text), self.folder / "preprocess.log", read)
        files = {path for name in ("dict", "train", "valid") for path in self.binary.glob(f"{name}.*")}
        self.manifest.record(**{"trained on": content_digest(sorted(files))})

    def preprocess_command(self, splits: Sequence[str], workers: int, text: Path | None = None) -> list[str | Path]:
        """Return the command that binarises some splits."""
        # fairseq-preprocess takes whole file names for plain text, and names without the language for two sides.
        suffix = "" if self.parallel else f".{self.languages[0]}"
        paths = {split: f"{(text or self.text) / split}{suffix}" for split in splits}
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
        return dict(zip(("source-lang", "target-lang"), self.languages, strict=True)) if self.parallel else {}

    def sizes(self) -> dict[str, int]:
        """Return the number of lines of each split, of lines left out, and of entries in the dictionaries."""
        counts = read_json(self.folder / "counts.json")
        lengths = {path.name: sum(1 for _ in iterate_lines(path)) for path in sorted(self.binary.glob("dict*.txt"))}
        if self.recipe.vocabulary.joined or len(lengths) == 1:
            lengths = {"dictionary": max(lengths.values())}
        return counts | {name: length + SPECIAL_SYMBOLS for name, length in lengths.items()}

    def dictionary_sizes(self) -> list[int]:
        """Return the number of entries of each language's dictionary, as a model has them."""
        names = [f"dict.{language}.txt" for language in self.languages] if self.parallel else ["dict.txt"]
        special = SPECIAL_SYMBOLS + (self.recipe.task == "masked_lm")  # which adds <mask>
        return [special + sum(1 for _ in iterate_lines(self.binary / name)) for name in names]

    def report(self) -> str:
        """Return the sizes beside the published ones, as text."""
        lines = [f"{self.folder}:"]
        for name, count in self.sizes().items():
            lines.append(f"  {name:<12}{count:>12,}")
            if published := self.recipe.counts.get(name):
                lines[-1] += f"  published: {published:,} ({100 * (count / published - 1):+.1f} %)"
        return "\n".join([*lines, *self._long_lines()])

    def _long_lines(self) -> Iterator[str]:
        """Yield a text for each file of validation and test that has longer lines than a model has positions."""
        sides = zip(("source", "target"), self.languages, strict=True) if self.parallel else ()
        for split, (side, language) in product(self.splits()[1:], sides):
            limit = int(self.recipe.train.get(f"max-{side}-positions", MAX_SENTENCE_TOKENS))
            if side == "source" and self.recipe.train.get("truncate-source"):
                continue
            path = self.text / f"{split}.{language}"
            lengths = enumerate((len(line.split()) for line in iterate_lines(path)), start=1)
            if numbers := [number for number, length in lengths if length >= limit]:  # and the end symbol
                text = f"  {path}: more than {limit - 1:,} tokens in line {list_numbers(numbers)}"
                yield f"{text}: {LONG_LINE_OUTCOMES.get(split, LONG_LINE_OUTCOMES['test'])}"
