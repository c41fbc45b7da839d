"""Plain text as fairseq's task masked_lm reads it: documents → two splits → pieces → binary.

    python -m ode_transformer.glue.pretraining_text FILE … --output DIR --pieces 32000

Blank lines divide documents; a file without any is taken for one document a line. Whole documents are held out for
validation, one in 200 as in Macaron Net (Lu et al. 2019, B.2). Text is lower-cased by the pieces themselves, so that
whoever encodes with them later does the same. Files are streamed: they may be larger than memory.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import sentencepiece

from ode_transformer.corpora.parallel_text import digest
from ode_transformer.corpora.vocabulary import MODEL, learn
from ode_transformer.support import commands
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.jobs import Jobs

VALID_SHARE = 1 / 200
SPLITS = ("train", "valid")
# Pieces are learned from so many lines at most, drawn at random.
LEARN_FROM = 5_000_000


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, stripped.

    :raises UserError: a line is not UTF-8
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.decode().strip()
            except UnicodeDecodeError as error:
                raise UserError(f"{path}, line {number}: not UTF-8") from error


def documents(paths: Sequence[Path]) -> Iterator[list[str]]:
    """The lines of each document; a file that has no blank line between others is a document a line."""
    for path in paths:
        divided = _blank_within(path)
        document: list[str] = []
        for line in lines_of(path):
            if line:
                document.append(line)
            if document and not (line and divided):
                yield document
                document = []
        if document:
            yield document


def _blank_within(path: Path) -> bool:
    """Whether a blank line stands between two that are not."""
    begun = blank = False
    for line in lines_of(path):
        if line and blank:
            return True
        begun = begun or bool(line)
        blank = begun and not line
    return False


def divide(paths: Sequence[Path], valid_share: float, output: Path) -> None:
    """Writes ``train`` and ``valid`` into a folder, with a blank line between documents of several lines.

    :raises UserError: a split has no document
    """
    counts = dict.fromkeys(SPLITS, 0)
    files = {split: open(output / split, "w", encoding="utf-8") for split in SPLITS}  # noqa: SIM115
    try:
        for document in documents(paths):
            # Not the hash of the text alone: by that one, the corpora of this package have been divided already.
            held_out = digest("pre-training " + "\n".join(document)) < valid_share * 2**64
            split = "valid" if held_out else "train"
            counts[split] += 1
            files[split].write("\n".join(document) + ("\n" if len(document) == 1 else "\n\n"))
    finally:
        for file in files.values():
            file.close()
    print(", ".join(f"{count:,} documents to {name}" for name, count in counts.items()))
    for split, count in counts.items():
        if not count:
            share = f" with --valid-share {valid_share:g}" if split == "valid" else ""
            raise UserError(f"{', '.join(map(str, paths))}: no document for the {split} split{share}")


def learn_pieces(text: Path, size: int, cased: bool, output: Path) -> None:
    """Learns the pieces of a text and leaves their model in a folder.

    :raises UserError: the text is too small for so many pieces
    """
    rule = "nmt_nfkc" if cased else "nmt_nfkc_cf"
    options = {"normalization_rule_name": rule, "input_sentence_size": LEARN_FROM, "shuffle_input_sentence": True}
    learn([text], size, output / "unfinished", **options).rename(output / MODEL)


def encoder(model: Path) -> Callable[[str], str]:
    """What turns a line into pieces with spaces between them.

    :raises UserError: the file is missing or no model of sentencepiece
    """
    if not model.is_file():
        raise UserError(f"{model}: missing")
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except RuntimeError as error:
        raise UserError(f"{model}: no model of sentencepiece") from error
    return lambda line: " ".join(processor.encode(line, out_type=str))


def prepare(
    texts: Sequence[Path], output: Path, pieces: int, valid_share: float = VALID_SHARE, cased: bool = False
) -> Path:
    """Run all jobs; those that are done are skipped.

    :returns: the folder for fairseq: ``dict.txt``, the binary splits and the model of the pieces
    """
    for path in texts:
        if not path.is_file():
            raise UserError(f"{path}: missing")
    text, encoded, binary = output / "text", output / "pieces", output / "data-bin"
    output.mkdir(parents=True, exist_ok=True)

    def make_text() -> None:
        with _Whole(text) as folder:
            divide(texts, valid_share, folder)

    def make_pieces() -> None:
        with _Whole(encoded) as folder:
            learn_pieces(text / "train", pieces, cased, folder)
            encode = encoder(folder / MODEL)
            for split in SPLITS:
                with open(folder / split, "w", encoding="utf-8") as file:
                    file.writelines(f"{encode(line)}\n" for line in _plain_lines(text / split))

    def binarise() -> None:
        shutil.rmtree(binary, ignore_errors=True)
        options = {"only-source": True, "trainpref": encoded / "train", "validpref": encoded / "valid"}
        options |= {"destdir": binary, "workers": len(os.sched_getaffinity(0))}
        commands.run(["fairseq-preprocess", *commands.flags(options)], output / "preprocess.log")
        shutil.copy(encoded / MODEL, binary)

    jobs = Jobs(output)
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in texts]
    jobs.run("text", [files, valid_share], text, make_text)
    jobs.run("pieces", [pieces, cased], encoded, make_pieces)
    jobs.run("binarise", None, binary, binarise)
    return binary


class _Whole:
    """A folder that is there with all that is written into it, or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.partial = folder.with_name(f".{folder.name}.partial")

    def __enter__(self) -> Path:
        shutil.rmtree(self.partial, ignore_errors=True)
        self.partial.mkdir(parents=True)
        return self.partial

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.replace(self.partial, self.folder)
        else:
            shutil.rmtree(self.partial, ignore_errors=True)


def _plain_lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def share(text: str) -> float:
    """A number between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number between 0 and 1")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="pretraining_text", description="Prepares plain text for masked_lm.")
    parser.add_argument("texts", type=Path, nargs="+", metavar="FILE", help="UTF-8 text; blank lines divide documents")
    parser.add_argument("--output", type=Path, required=True, help="folder for everything")
    parser.add_argument("--pieces", type=positive_int, default=32000, help="size of the vocabulary (default: 32000)")
    parser.add_argument("--valid-share", type=share, default=VALID_SHARE, help="documents held out (default: 1/200)")
    parser.add_argument("--cased", action="store_true", help="keep upper case")
    args = parser.parse_args(argv)

    def work() -> None:
        binary = prepare(args.texts, args.output, args.pieces, args.valid_share, args.cased)
        print(f"\nfor fairseq-train: {binary}")

    return commands.status_of(parser.prog, work)


if __name__ == "__main__":
    sys.exit(main())
