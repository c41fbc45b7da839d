"""``ode-transformer pretraining-text``: plain text → documents → two splits → pieces → binary data for masked_lm.

    ode-transformer pretraining-text FILE ... --output DIR --pieces 32000

Blank lines separate documents; in a file without blank lines every line is a document. Whole documents are held out
for validation, one in 200 as in Macaron Net (Lu et al. 2019, B.2). The pieces' own normalisation lower-cases the text,
so that every later use of the pieces does the same. Files are streamed: they may be larger than memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from ode_transformer.corpora.text_corpora import SPLITS, write_splits
from ode_transformer.corpora.vocabulary import PieceVocabulary, encode_text, train_pieces_of_long_text
from ode_transformer.support import commands
from ode_transformer.support.arguments import positive_int, share
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory, file_stamp, find_within, lock_directory, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE

VALID_FRACTION = 1 / 200
RECORD = "pretraining-text.json"  # of the texts that have been prepared
JOBS = ("text", "pieces", "binarise")
BYTES_PER_WORKER = 10_000_000  # of text, for each further process that divides it into pieces


def prepare(
    texts: Sequence[Path], output: Path, pieces: int, valid_fraction: float = VALID_FRACTION, cased: bool = False
) -> Path:
    """Divide, encode and binarise texts; finished jobs are skipped.

    :param pieces: size of the vocabulary
    :returns: the folder for fairseq: ``dict.txt``, the binary splits and the model of the pieces
    :raises UserError: a text is missing, or a folder of the results is not of an earlier preparation
    """
    for path in texts:
        if not path.is_file():
            raise UserError(f"{path}: missing")
    text, encoded, binary = output / "text", output / "pieces", output / "data-bin"
    processors = commands.available_processors()

    def divide_texts() -> None:
        with atomic_directory(text) as folder:
            write_splits(texts, valid_fraction, folder)

    def encode_splits() -> None:
        with atomic_directory(encoded) as folder:
            train_pieces_of_long_text([text / "train"], pieces, cased, folder)
            vocabulary = PieceVocabulary(kind="sentencepiece", size=pieces)
            for split in SPLITS:
                # Processes take a second to start.
                workers = min(processors, 1 + (text / split).stat().st_size // BYTES_PER_WORKER)
                with open(folder / split, "w", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in encode_text(vocabulary, folder, text / split, workers))

    def binarise() -> None:
        shutil.rmtree(binary, ignore_errors=True)
        options = {"only-source": True, "trainpref": encoded / "train", "validpref": encoded / "valid"}
        options |= {"destdir": binary, "workers": processors}
        commands.run(["fairseq-preprocess", *commands.flags(options)], output / "preprocess.log")
        shutil.copy(encoded / SENTENCEPIECE_FILE, binary)

    jobs, record = Jobs(output), output / RECORD
    check_folders(texts, (text, encoded, binary), output)
    files = [[str(path), *file_stamp(path)] for path in texts]
    with lock_directory(output, "preparing data"):
        write_text(record, json.dumps(files) + "\n")
        jobs.run("text", [files, valid_fraction], text, divide_texts)
        jobs.run("pieces", [pieces, cased], encoded, encode_splits)
        jobs.run("binarise", None, binary, binarise)
    return binary


def check_folders(texts: Sequence[Path], results: Sequence[Path], output: Path) -> None:
    """Check that nothing of the user is lost when the folders of the results are replaced.

    :raises UserError: a text lies in such a folder, or a folder was made by something else
    """
    if path := find_within(texts, results):
        raise UserError(f"{path}: a text in a folder that is replaced; move it elsewhere, or choose another --output")
    check_replaced(results, output)


def check_replaced(results: Sequence[Path], output: Path) -> None:
    """Check that what a preparation replaces comes from an earlier preparation in ``output``.

    :raises UserError: something else has made it
    """
    existing = [result for result in results if result.exists()]
    if existing and not any((output / name).exists() for name in (RECORD, *(f"{job}.done" for job in JOBS))):
        raise UserError(
            f"{existing[0]}: no preparation has made it, and this one would replace it; choose another --output"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer pretraining-text``."""
    parser.epilog = "After an interruption the same command continues with the first unfinished job."
    parser.add_argument(
        "texts",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="UTF-8 text, one sentence a line; blank lines separate documents, without them every line is a document",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="folder for everything; fairseq reads DIR/data-bin"
    )
    parser.add_argument(
        "--pieces", type=positive_int, default=32000, metavar="N", help="size of the vocabulary (default: 32000)"
    )
    parser.add_argument(
        "--valid-fraction", type=share, default=VALID_FRACTION, metavar="S", help="documents held out (default: 1/200)"
    )
    parser.add_argument("--cased", action="store_true", help="keep upper case")


def run(args: argparse.Namespace) -> int:
    """Prepare the text; return the exit status."""
    binary = prepare(args.texts, args.output, args.pieces, args.valid_fraction, args.cased)
    print(f"\nfor fairseq-train: {binary}")
    return 0
