"""``ode-transformer translate``: translate a text line by line, keeping the order; language models continue each line.

The input is text that is not divided into subwords; ``--bpe`` divides it and joins the translation again. Only a line
feed ends a line, and a last line without one counts. Other control characters, among them tabs and further line ends
(U+0085, U+2028, U+2029), are read as spaces and never written, so that no reader takes one line for two. So are other
kinds of spaces, which are none to subword-nmt. A line without
text stays empty, without a search; so does one of more tokens than the model takes, with a warning that names it.

The whole text is checked before the first line is translated. Lines are written in their order, as soon as they and all
before them are translated: those of a command that is stopped stay. At a terminal each line is answered at once.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ode_transformer.support.arguments import (
    add_beam_arguments,
    add_language_arguments,
    flag_name,
    non_negative_int,
    positive_float,
    positive_int,
)
from ode_transformer.support.commands import available_processors
from ode_transformer.support.console import ProgressMeter, print_progress, print_text
from ode_transformer.support.errors import UserError, list_numbers
from ode_transformer.support.files import check_writable, growing_file, part_path
from ode_transformer.support.lines import SPACES, decode_lines, read_lines
from ode_transformer.support.subword_models import SUBWORD_MODELS, SubwordEncoder, choose_subword_model

BATCHES_PER_PROCESS = 2  # from which on a process more is faster than one with more threads
MODEL = "model.pt"  # the checkpoint of a model's folder
CHUNK_SIZE = 2000  # lines in one call of fairseq, which keeps all their hypotheses with attention in memory
_SPACES = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), *map(ord, SPACES)), " ")


def normalize_spaces(line: str) -> str:
    """Replace control characters and all that fairseq takes for a space by spaces, and strip the line."""
    return line.translate(_SPACES).strip()


def encode(
    hub: Any, lines: Sequence[str], name: str, max_tokens: int | None = None, refuse_long: bool = True
) -> tuple[dict[int, Any], list[str]]:
    """Return the token numbers of the lines that have any, with the end symbol, by line index from 0 on.

    :param hub: :class:`TranslationHub` or :class:`ExportedModel`
    :param name: names the text in an error or warning
    :param refuse_long: refuse a line of more tokens than the model or ``max_tokens`` allows, instead of leaving it out
    :returns: also warnings of lines that were left out, and if at least half of the tokens are unknown
    :raises UserError: a line is refused
    """
    model_limit = hub.max_positions if hub.continues else hub.max_positions[0]
    limit = min(model_limit, max_tokens or model_limit)
    reason = f"the model takes at most {limit}" if limit == model_limit else f"more than --max-tokens {limit}"
    sources, too_long = {}, []
    read = unknown = 0
    for position, line in enumerate(lines):
        tokens = hub.encode(normalize_spaces(line))
        if len(tokens) > limit:
            if refuse_long:
                raise UserError(f"{name}: line {position + 1} has {len(tokens)} tokens with the end symbol, {reason}")
            too_long.append(position + 1)
        elif len(tokens) > 1:
            sources[position] = tokens
            read += len(tokens) - 1
            unknown += int((tokens == hub.src_dict.unk()).sum())
    warnings = []
    if too_long:
        text = f"too many tokens in line {list_numbers(too_long)}, {reason} with the end symbol"
        warnings.append(f"{name}: {text}: empty output")
    # Half: a word whose letters are all unknown is the mark of its beginning, which is known, and one unknown piece.
    if unknown and 2 * unknown >= read:
        cause = "is this the model's language?" if hub.bpe else "no subword model divides it (--bpe, --bpe-model)"
        warnings.append(f"{unknown:,} of {read:,} tokens of {name} are unknown to the model: {cause}")
    return sources, warnings


def translate(
    hub: Any, lines: Sequence[str], name: str, max_tokens: int | None = None, processes: int = 1, **search: Any
) -> Iterator[str]:
    """Yield one translation for each line, an empty one with a warning for a line that is too long.

    :param processes: processes that share the lines
    :param search: options of the search: ``beam``, ``lenpen``, ``max_len_a``, ``max_len_b``
    :raises UserError: a process was killed
    """
    sources, warnings = encode(hub, lines, name, max_tokens, refuse_long=False)
    for warning in warnings:
        print_progress(f"warning: {warning}")
    best: Iterator[Any]
    if processes > 1:
        from ode_transformer.decoding.search_processes import search_in_processes

        progress = ProgressMeter("lines translated", len(sources)).add
        best = search_in_processes(hub, list(sources.values()), processes, CHUNK_SIZE, progress, **search)
    else:
        results = search_all(hub, list(sources.values()), "lines translated", **search)
        best = (hypotheses[0]["tokens"] for hypotheses in results)
    for position in range(len(lines)):
        yield normalize_spaces(hub.decode(next(best))) if position in sources else ""


def search_all(
    hub: Any, sources: Sequence[Any], label: str, chunk_size: int | None = None, **search: Any
) -> Iterator[Any]:
    """Yield the hypotheses for each source, the best one first, in the order of the sources, and print progress.

    :param label: names the sources in the lines of progress
    :param chunk_size: number of sources that are sorted by length and translated together
    """
    size, progress = chunk_size or CHUNK_SIZE, ProgressMeter(label, len(sources)).add
    for start in range(0, len(sources), size):
        yield from hub.generate(sources[start : start + size], progress=progress, **search)


def load_from_arguments(args: argparse.Namespace, path: Path, scheme: str | None = None) -> Any:
    """Load a model with the options of :func:`add_model_arguments`, and its subword encoder.

    :param path: checkpoint, or folder with ``model.pt``
    """
    import torch

    from ode_transformer.decoding.binarised import joined_pieces
    from ode_transformer.decoding.trained_model import load_hub

    torch.manual_seed(args.seed)
    path = path / MODEL if (path / MODEL).is_file() else path
    hub = load_hub(args, path, language_model=True, scheme=scheme)
    for flag, device in (("fp16", "cuda"), ("int8", "cpu")):
        if getattr(args, flag) and hub.device.type != device:
            raise UserError(f"{flag_name(flag)} needs {'a GPU' if device == 'cuda' else '--cpu'}")
    if args.int8:
        from ode_transformer.nn.int8 import convert_to_int8

        convert_to_int8(hub.models[0])
    if subword_model := choose_subword_model(args.bpe, args.bpe_model, path.parent, args.data):
        hub.bpe = SubwordEncoder(*subword_model)
    elif args.bpe is None and (marks := joined_pieces(hub.tgt_dict, None)):
        folder = args.data or path.parent
        text = f"the dictionary has pieces ({marks.strip()}), and {folder} no subword model to divide the text"
        print_progress(f"warning: {text}: --bpe and --bpe-model name one, --bpe none says that it is divided")
    return hub.half() if args.fp16 else hub


def checkpoint_paths(text: str) -> list[Path]:
    """Return the paths that colons divide, as in fairseq-generate; a path that exists is one, with its colons."""
    return [Path(text)] if os.path.exists(text) else [Path(path) for path in text.split(os.pathsep)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer translate``."""
    add = parser.add_argument
    path = (
        "checkpoint of the model, its folder with model.pt, or one of ode-transformer export --to ctranslate2; several "
        "checkpoints, divided by colons, are an ensemble"
    )
    add("--path", required=True, type=checkpoint_paths, metavar="FILE[:FILE…]", help=path)
    engine = "library that decodes (default: ctranslate2 for a folder, pytorch for a checkpoint)"
    add("--engine", choices=("pytorch", "ctranslate2"), help=engine)
    processes = (
        "processes that share the lines, with PyTorch on a CPU (default: one for each processor, from two batches for "
        "each on)"
    )
    add("--processes", type=positive_int, metavar="N", help=processes)
    add("--input", type=Path, metavar="FILE", help="text, one line per sentence (default: stdin)")
    add("--output", type=Path, metavar="FILE", help="translation (default: stdout; follows a link)")
    add("data", nargs="?", type=Path, help="folder with the dictionaries (default: the model's)")
    add_model_arguments(parser)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of loading a model and of its search."""
    add, file_names = parser.add_argument, " or ".join(model.file_name for model in SUBWORD_MODELS.values())
    kind = "kind of subwords (default: by the file beside the model)"
    add("--bpe", choices=(*SUBWORD_MODELS, "none"), help=kind)
    subword_model = f"file of --bpe (default: {file_names} beside the model, else the only *.model or *codes* there)"
    names_of_fairseq = "--sentencepiece-model", "--bpe-codes"
    add("--bpe-model", *names_of_fairseq, type=Path, metavar="FILE", help=subword_model)
    add_beam_arguments(parser)
    add("--sampling", action="store_true", help="draw words of one hypothesis, without a search")
    add("--sampling-topk", type=positive_int, default=-1, metavar="K", help="among the K most probable")
    add("--temperature", type=positive_float, default=1.0, help="of the probabilities (default: 1)")
    add("--seed", type=non_negative_int, default=1, help="of what is drawn (default: 1)")
    add("--max-tokens", type=positive_int, help="tokens of a batch (default: any number)")
    add_language_arguments(parser)
    add("--fp16", action="store_true", help="half precision, on a GPU")
    anew = "on a GPU, compute every step of a search anew instead of replaying recorded ones"
    add("--no-cuda-graphs", dest="cuda_graphs", action="store_false", help=anew)
    add("--int8", action="store_true", help="linear maps in int8, on the CPU (docs/export.md)")


def run(args: argparse.Namespace) -> None:
    """Translate ``args.input`` into ``args.output``."""
    search = {"beam": args.beam, **search_options(args)}
    if args.sampling:
        search["beam"] = 1  # a drawn text, not the most probable of several
    if args.input is None and args.output is None and sys.stdin.isatty():
        converse(load_engine(args), args.max_tokens, **search)
        return
    if args.output is not None:
        check_writable(args.output)
        check_not_begun(args)
    name = "standard input" if args.input is None else str(args.input)
    lines = decode_lines(sys.stdin.buffer.read(), name) if args.input is None else read_lines(args.input)
    hub = load_engine(args)
    if (args.processes or 1) > 1 and not hub.shares_lines:
        raise UserError(f"--processes {args.processes}: only on Linux, with PyTorch on a CPU (--cpu)")
    # One for each processor is fastest, if all have enough batches.
    useful = min(available_processors(), len(lines) // (BATCHES_PER_PROCESS * args.batch_size))
    processes = args.processes or (max(1, useful) if hub.shares_lines and not args.sampling else 1)
    translations = translate(hub, lines, name, args.max_tokens, processes, **search)
    with nullcontext(sys.stdout.buffer) if args.output is None else growing_file(args.output) as file:
        for translation in translations:
            file.write(f"{translation}\n".encode())  # bytes, because the locale's encoding may lack some characters
            file.flush()


def check_not_begun(args: argparse.Namespace) -> None:
    """Refuse to begin anew what a stopped command has written in part; say how to go on.

    :raises UserError: there are such lines
    """
    part = part_path(args.output)
    if not part.exists() or not part.stat().st_size:
        return
    with open(part, "rb") as file:
        complete = [len(line) for line in file if line.endswith(b"\n")]
    lines, size = len(complete), sum(complete)
    cut = f"truncate -s {size} {shlex.quote(str(part))} && " if size < part.stat().st_size else ""  # a line's beginning
    words, files = ["ode-transformer", *args.words], {"--input": args.input, "--output": args.output}
    for flag, path in files.items():
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
        words = [word for word in words if word != f"{flag}={path}"]
    source = shlex.quote(str(args.input)) if args.input else "TEXT"
    rest = f"{cut}tail -n +{lines + 1} {source} | {shlex.join(words)} >> {shlex.quote(str(part))}"
    move = shlex.join(["mv", str(part), str(args.output)])
    raise UserError(f"{part}: a stopped translation, {lines:,} lines. To go on: {rest} && {move}; or remove it")


def search_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a search, without its beam, among those of :func:`add_model_arguments`.

    :raises UserError: options of drawn words without ``--sampling``
    """
    names = ["lenpen", "max_len_a", "max_len_b"]
    if args.sampling:
        names += ["sampling", "sampling_topk", "temperature"]
    elif args.sampling_topk > 0 or args.temperature != 1:
        raise UserError("--sampling-topk and --temperature go with --sampling")
    return {name: getattr(args, name) for name in names}


def load_engine(args: argparse.Namespace) -> Any:
    """Load the model of ``ode-transformer translate`` for the library of ``--engine``.

    :raises UserError: an option belongs to the other engine
    """
    first, *others = args.path
    is_exported = first.is_dir() and not (first / MODEL).is_file()
    if args.engine == "pytorch" or (args.engine is None and not is_exported):
        hub = load_from_arguments(args, first)
        for path in others:
            hub.join(load_from_arguments(args, path), f"{path} and {first}")
        return hub
    if others:
        raise UserError(f"{first}: an ensemble is of checkpoints, not of folders of --engine ctranslate2")
    from ode_transformer.decoding.ctranslate2_engine import ExportedModel

    for option in ("data", "source_lang", "target_lang", "fp16", "int8", "sampling"):
        if getattr(args, option):
            name = "DATA" if option == "data" else flag_name(option)
            raise UserError(f"{name}: not with --engine ctranslate2, whose folder is complete; ode-transformer export")
    subword_model = choose_subword_model(args.bpe, args.bpe_model, first)
    bpe = SubwordEncoder(*subword_model) if subword_model else None
    return ExportedModel(first, bpe, args.batch_size, args.max_tokens, args.cpu)


def converse(hub: Any, max_tokens: int | None = None, **search: Any) -> None:
    """Translate what is typed at a terminal, line by line, until Ctrl-D; a refused line does not end it."""
    source, target = hub.languages
    prompt = f"{source}> "
    request = "a text to continue" if hub.continues else f"{source} to {target}, one sentence"
    print_progress(f"{request} per line; Ctrl-D ends")
    while True:
        print_text(prompt, end="", file=sys.stderr)
        if not (typed := sys.stdin.buffer.readline()):
            print_progress("")
            return
        try:
            (line,) = decode_lines(typed, "your line")
            (translation,) = translate(hub, [line], "your line", max_tokens, **search)
        except UserError as error:
            print_progress(f"  {error}")
            continue
        sys.stdout.buffer.write(f"{translation}\n".encode())
        sys.stdout.flush()
