"""Subword models that fairseq can apply: their files beside a trained model, their pieces, and the marks of these."""

import contextlib
import io
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError

SENTENCEPIECE_FILE = "sentencepiece.bpe.model"
SUBWORD_NMT_FILE = "bpecodes"
CACHED_WORDS = 100_000  # in each process, which keeps the pieces of words that it has divided: about 30 MB


@dataclass(frozen=True)
class SubwordModel:
    """Names that fairseq gives to a kind of subword model.

    :param fairseq_option: option of fairseq's ``--bpe`` that takes the file
    :param file_name: name under which fairseq's ``from_pretrained`` looks for the file beside a model
    :param other_names: pattern of the names that such a file often has
    :param marks_piece: tells whether a symbol has the mark of these pieces
    """

    fairseq_option: str
    file_name: str
    other_names: str
    marks_piece: Callable[[str], bool]


SUBWORD_MODELS = {
    "sentencepiece": SubwordModel(
        "sentencepiece_model", SENTENCEPIECE_FILE, "*.model", lambda symbol: symbol.startswith("▁")
    ),
    "subword_nmt": SubwordModel("bpe_codes", SUBWORD_NMT_FILE, "*codes*", lambda symbol: symbol.endswith("@@")),
}


def find_subword_model(folder: Path, kinds: Collection[str] = tuple(SUBWORD_MODELS)) -> tuple[str, Path] | None:
    """Return the kind and the file of the subword model in a folder; None if it has none.

    :param kinds: those that are looked for
    :raises UserError: none of its files has the name that fairseq expects, and several could be the subword model
    """
    for names in ("file_name", "other_names"):
        patterns = {kind: getattr(SUBWORD_MODELS[kind], names) for kind in kinds}
        files = [(kind, file) for kind, pattern in patterns.items() for file in sorted(folder.glob(pattern))]
        files = [(kind, file) for kind, file in files if file.is_file()]
        if len(files) > 1 and names == "other_names":
            listed = ", ".join(file.name for _, file in files)
            raise UserError(f"{folder}: which is the subword model, {listed}? Name it with --bpe and --bpe-model")
        if files:
            return files[0]
    return None


def choose_subword_model(
    name: str | None, file: Path | None, directory: Path, data: Path | None = None
) -> tuple[str, Path] | None:
    """Return the kind and the file of a model's subword model; None if the text is divided into subwords already.

    :param name: a key of ``SUBWORD_MODELS``, or none; by default that of the file in ``directory``
    :param file: file of the subword model; by default the one in ``directory``
    :param data: second folder to look in, if any
    :raises UserError: the file is missing; several files could be the subword model
    """
    if file and name in (None, "none"):
        raise UserError(f"--bpe-model {file}: name its kind with --bpe {' or '.join(SUBWORD_MODELS)}")
    if name == "none":
        return None
    if name is not None and file:
        return name, file
    kinds = tuple(SUBWORD_MODELS) if name is None else [name]
    model = find_subword_model(directory, kinds) or (find_subword_model(data, kinds) if data else None)
    if model is not None and model[1].name != SUBWORD_MODELS[model[0]].file_name:
        print_progress(f"subword model: {model[1]} ({model[0]})")
    if model is None and name is not None:
        raise UserError(f"--bpe {name}: name its file with --bpe-model, there is none in {directory}")
    return model


def files_beside_model(folder: Path) -> list[Path]:
    """Return the files of a folder that a model in it may need: dictionaries, and what could be its subword model."""
    patterns = ("dict*.txt", "*.model", SUBWORD_NMT_FILE)
    return [file for pattern in patterns for file in folder.glob(pattern)]


def kind_of_pieces(texts: Sequence[str], fraction: float) -> str | None:
    """Return the kind of subword model whose pieces more than a fraction of texts have; None for whole words."""
    counts = {
        kind: sum(any(map(model.marks_piece, text.split(" "))) for text in texts)
        for kind, model in SUBWORD_MODELS.items()
    }
    kind = max(counts, key=lambda name: counts[name])
    return kind if counts[kind] > fraction * len(texts) else None


def kind_of_symbols(symbols: Sequence[str]) -> str | None:
    """Return the kind of subword model whose pieces a dictionary holds; None for whole words."""
    return kind_of_pieces(symbols, 0.01)  # plain text has next to none of these marks


def output_pieces(lines: Sequence[str], remove_bpe: str | None, name: str) -> str | None:
    """Return the kind of pieces that a system's output is to be rid of; None to leave it as it is.

    :param remove_bpe: a key of ``SUBWORD_MODELS``, or none; by default what the lines show, which is reported
    :param name: names the output in the report
    """
    if remove_bpe is not None:
        return None if remove_bpe == "none" else remove_bpe
    kind = kind_of_pieces(lines, 0.1)
    if kind:
        print_progress(f"{name}: its pieces ({kind}) are joined to words; --remove-bpe none leaves them")
    return kind


def join_output(lines: Sequence[str], remove_bpe: str | None, name: str) -> list[str]:
    """Return a system's output with the pieces of :func:`output_pieces` joined to words."""
    kind = output_pieces(lines, remove_bpe, name)
    return [join_pieces(line, kind) for line in lines]


def join_references(lines: Sequence[str], remove_bpe: str | None, name: str) -> list[str]:
    """Return references without pieces, if they are made of any: the output's kind of pieces need not be theirs."""
    return join_output(lines, "none" if remove_bpe == "none" else None, name)


def join_pieces(line: str, kind: str | None) -> str:
    """Return a line with its pieces joined to words; unchanged for a kind of None."""
    if kind == "sentencepiece":
        return line.replace(" ", "").replace("▁", " ").strip()
    return f"{line} ".replace("@@ ", "").rstrip(" ") if kind == "subword_nmt" else line


class SubwordEncoder:
    """Divides lines into pieces and joins pieces to lines, with the methods of fairseq's encoders, without fairseq.

    :param kind: a key of ``SUBWORD_MODELS``
    :ivar encode: returns the pieces of a line, divided by spaces
    """

    def __init__(self, kind: str, file: Path) -> None:
        self.kind = kind
        message = io.StringIO()
        try:
            with contextlib.redirect_stderr(message):  # subword_nmt prints its errors and exits
                self.encode = _DIVIDERS[kind](file)
        except (RuntimeError, ValueError, SystemExit) as error:
            raise UserError(f"{file}: not a file of {kind}: {message.getvalue() or error}") from error

    def decode(self, pieces: str) -> str:
        return join_pieces(pieces, self.kind)


def _sentencepiece_divider(file: Path) -> Callable[[str], str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return lambda line: " ".join(processor.encode(line, out_type=str))


def _subword_nmt_divider(file: Path) -> Callable[[str], str]:
    from subword_nmt.apply_bpe import BPE

    with open(file, encoding="utf-8") as codes:
        bpe = BPE(codes)

    def divide(line: str) -> str:
        if len(bpe.cache) > CACHED_WORDS:
            bpe.cache.clear()
        return str(bpe.process_line(line))

    return divide


_DIVIDERS = {"sentencepiece": _sentencepiece_divider, "subword_nmt": _subword_nmt_divider}
