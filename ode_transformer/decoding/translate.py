"""``ode-transformer translate``: for each line of text one line of translation, in the same order.

The text is as it was before it was cut into pieces; ``--bpe`` cuts it and joins the translation again. Only a
line feed ends a line, and a last line without one counts. Other control characters, among them tabs and the line
ends of other conventions (U+0085, U+2028, U+2029), are read as spaces and never written, so that no reader
takes one line for two. A line with nothing to translate stays empty, without a search.

The whole text is checked before the first line is translated, and nothing is written before the last one is.
"""

import argparse
import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.support.arguments import length_penalty, positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_write, check_writable
from ode_transformer.support.lines import decode_lines, read_lines
from ode_transformer.support.subword_models import SUBWORD_MODELS

_AT_ONCE = 2000  # lines in one call of fairseq, which keeps all it found for them, attention included
_SPACES = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029), " ")


def plain(line: str) -> str:
    """``line`` with spaces for control characters, and without any at its ends."""
    return line.translate(_SPACES).strip()


def encode(hub: Any, lines: Sequence[str], name: str, max_tokens: int | None = None) -> dict[int, Any]:
    """Token numbers of the lines that have any, by position from 0 on, each with the end symbol.

    :param hub: fairseq's ``GeneratorHubInterface``
    :param name: what to call the text in an error
    :raises UserError: a line has more tokens than the model or ``max_tokens`` takes
    """
    longest = hub.max_positions[0]
    sources = {}
    for position, line in enumerate(lines):
        tokens = hub.encode(plain(line))
        described = f"{name}: line {position + 1} has {len(tokens)} tokens with the end symbol"
        if len(tokens) > longest:
            raise UserError(f"{described}, the model takes at most {longest}")
        if max_tokens is not None and len(tokens) > max_tokens:
            raise UserError(f"{described}, more than --max-tokens {max_tokens}")
        if len(tokens) > 1:
            sources[position] = tokens
    return sources


def translate(hub: Any, lines: Sequence[str], name: str, max_tokens: int | None = None, **search: Any) -> list[str]:
    """One translation for each line.

    :param search: options of fairseq's search: ``beam``, ``lenpen``, ``max_len_b``
    :raises UserError: as ``encode``
    """
    sources = encode(hub, lines, name, max_tokens)
    positions = list(sources)
    translations = [""] * len(lines)
    for position, tokens in zip(positions, best(hub, [sources[p] for p in positions], **search), strict=True):
        translations[position] = plain(hub.decode(tokens))
    return translations


def target_line(task: Any, tokens: Any, remove_bpe: str | None, escape_unk: bool = False) -> str:
    """Token numbers as a line of the target language, as fairseq-generate prints it.

    :param escape_unk: for references, in which an unknown token is to differ from one in a hypothesis
    """
    return plain(task.target_dictionary.string(tokens.int().cpu(), remove_bpe, escape_unk=escape_unk))


def best(hub: Any, sources: Sequence[Any], at_once: int | None = None, **search: Any) -> Iterator[Any]:
    """Token numbers of the best hypothesis for each source, in the same order.

    :param at_once: how many sources are sorted by length and translated before the first of them is there
    :param search: as for :func:`translate`
    """
    size = at_once or _AT_ONCE
    for start in range(0, len(sources), size):
        some = sources[start : start + size]
        found = hub.generate(some, **search)
        if len(found) != len(some):  # fairseq sorts by length, and leaves lines out under some settings
            raise RuntimeError(f"fairseq translated {len(found)} of {len(some)} lines")
        yield from (hypotheses[0]["tokens"] for hypotheses in found)


def build_bpe(name: str | None, file: Path | None, directory: Path) -> Any:
    """What cuts text into the model's pieces; None if the text is cut already.

    :param name: a key of ``SUBWORD_MODELS``, or none; by default the first whose file is in ``directory``
    :param file: its file; by default the one in ``directory``, that of the model
    :raises UserError: the name is unknown, or the file missing or broken
    """
    from fairseq.data import encoders

    if name not in (None, "none", *SUBWORD_MODELS):
        raise UserError(f"--bpe {name}: unknown; known are {', '.join(SUBWORD_MODELS)} and none")
    beside = {
        kind: directory / model.file_name
        for kind, model in SUBWORD_MODELS.items()
        if (directory / model.file_name).is_file()
    }
    name = name or ("none" if file else next(iter(beside), "none"))
    if name == "none":
        if file:
            raise UserError(f"--bpe-model {file}: say with --bpe what it is of, {' or '.join(SUBWORD_MODELS)}")
        return None
    model = SUBWORD_MODELS[name]
    if (file := file or beside.get(name)) is None:
        raise UserError(f"--bpe {name}: say its file with --bpe-model, there is no {directory / model.file_name}")
    said = io.StringIO()
    try:
        with open(file, "rb"), contextlib.redirect_stderr(said):  # subword_nmt prints what is wrong and exits
            return encoders.build_bpe(argparse.Namespace(bpe=name, **{model.fairseq_option: str(file)}))
    except (RuntimeError, ValueError, SystemExit) as error:
        raise UserError(f"{file}: not a file of {name}: {said.getvalue() or error}") from error


def load_hub(
    path: Path,
    data: Path,
    source: str | None,
    target: str | None,
    batch_size: int,
    max_tokens: int | None = None,
    cpu: bool = False,
) -> Any:
    """fairseq's ``GeneratorHubInterface`` for the model, on the GPU if there is one; it knows no pieces.

    :param batch_size: lines in a batch
    :param max_tokens: tokens in a batch; None for any number
    :param cpu: use no GPU
    :raises UserError: as ``load_trained_model``, and if a parameter is not a finite number
    """
    import torch
    from fairseq.hub_utils import GeneratorHubInterface

    model, options, task = load_trained_model(path, data, source, target)
    for parameter, values in model.named_parameters():
        if not values.isfinite().all():  # fairseq's search would fail without a word about it
            raise UserError(f"{path}: the parameter {parameter!r} has a value that is infinite or not a number")
    # As in fairseq-interactive, what the training was told of pieces and batches does not matter here.
    options.bpe = options.tokenizer = None
    options.dataset.batch_size, options.dataset.max_tokens = batch_size, max_tokens
    hub = GeneratorHubInterface(options, task, [model])
    return hub.cuda() if torch.cuda.is_available() and not cpu else hub


def load(args: argparse.Namespace) -> Any:
    """The hub that the options ask for, with its pieces."""
    directory = args.path.parent
    bpe = build_bpe(args.bpe, args.bpe_model, directory)
    languages = args.source_lang, args.target_lang
    hub = load_hub(args.path, args.data or directory, *languages, args.batch_size, args.max_tokens, args.cpu)
    if args.fp16 and hub.device.type == "cpu":
        raise UserError("--fp16 needs a GPU")
    hub.bpe = bpe
    return hub.half() if args.fp16 else hub


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer translate``."""
    parser.add_argument("data", nargs="?", type=Path, help="folder with the dictionaries (default: the model's)")
    parser.add_argument("--path", required=True, type=Path, metavar="FILE", help="checkpoint of the model")
    parser.add_argument("--input", type=Path, metavar="FILE", help="text, a sentence a line (default: standard input)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="its translation (default: standard output)")
    kinds, file_names = ", ".join(SUBWORD_MODELS), " or ".join(model.file_name for model in SUBWORD_MODELS.values())
    parser.add_argument(
        "--bpe", metavar="NAME", help=f"pieces: {kinds} or none (default: by the file beside the model)"
    )
    parser.add_argument(
        "--bpe-model",
        "--sentencepiece-model",  # these two are fairseq's
        "--bpe-codes",
        type=Path,
        metavar="FILE",
        help=f"file of --bpe (default: {file_names} beside the model)",
    )
    parser.add_argument("--beam", type=positive_int, default=5, help="width of the search (default: 5)")
    parser.add_argument(
        "--lenpen", type=length_penalty, default=1.0, help="above 1 favours long translations (default: 1)"
    )
    parser.add_argument("--max-len-b", type=positive_int, default=200, help="tokens in a translation (default: 200)")
    parser.add_argument("--batch-size", type=positive_int, default=32, help="lines in a batch (default: 32)")
    parser.add_argument("--max-tokens", type=positive_int, help="tokens in a batch (default: any number)")
    parser.add_argument("--source-lang", metavar="LANG", help="where neither checkpoint nor DATA names it")
    parser.add_argument("--target-lang", metavar="LANG", help="likewise")
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    parser.add_argument("--fp16", action="store_true", help="half precision, on a GPU")


def run(args: argparse.Namespace) -> int:
    """Translate ``args.input`` into ``args.output``."""
    logging.disable(logging.INFO)  # fairseq tells how it loads; asked for are the translations
    warnings.filterwarnings("ignore", message="'pin_memory'")  # which fairseq asks for with or without a GPU
    if args.output is not None:
        check_writable(args.output)
    name = "standard input" if args.input is None else str(args.input)
    lines = decode_lines(sys.stdin.buffer.read(), name) if args.input is None else read_lines(args.input)
    search = {"beam": args.beam, "lenpen": args.lenpen, "max_len_b": args.max_len_b}
    translations = translate(load(args), lines, name, args.max_tokens, **search)
    # Bytes, because the locale's encoding may lack some of the characters.
    written = "".join(f"{translation}\n" for translation in translations).encode()
    if args.output is None:
        sys.stdout.buffer.write(written)
        sys.stdout.flush()
    else:
        with atomic_write(args.output) as file:
            file.write(written)
    return 0
