"""``ode-transformer compare``: translations of several systems, side by side (Reformer, Li et al. 2020, Figures 3-5).

    Figure 3    length of the translations / length of the references; BLEU by the length of the source
    Figure 4    accuracy of single tokens, by target position and by frequency in the training data
    Figure 5    attention maps

Into one folder: ``tables.md`` with all tables, ``results.json`` with all numbers, a CSV file and a plot for each
table, and ``attention`` with a plot and the weights of each map.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path

from ode_transformer.analysis.comparison.compare_tables import Results, TestSet, tables
from ode_transformer.analysis.comparison.system_results import ShownMap, System
from ode_transformer.analysis.plots import new_figure, plain_label, save_figure
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.translation_scores import TOKENIZERS, bleu
from ode_transformer.support.arguments import add_search_arguments, positive_int
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text

LENGTHS = (10, 20, 30, 40, 50)  # ends of the buckets of source lengths and target positions


def draw_map(shown: ShownMap, system: str, path: Path) -> None:
    """Weights as shades, a token for each line and column."""
    lines, columns = shown.tokens
    figure = new_figure(1.8 + 0.32 * len(columns), 1.5 + 0.28 * len(lines))
    axes = figure.subplots()
    image = axes.imshow(shown.weights.numpy(), cmap="Greys", vmin=0, aspect="auto")
    axes.set_xticks(range(len(columns)), [plain_label(token) for token in columns], rotation=90)
    axes.set_yticks(range(len(lines)), [plain_label(token) for token in lines])
    axes.set_xlabel(shown.axes[1])
    axes.set_ylabel(shown.axes[0])
    of = "" if shown.query is None else f" of {shown.query}"
    axes.set_title(plain_label(f"{system}: {shown.title}{of}"), fontsize="medium")
    figure.colorbar(image)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a script that the font lacks
        save_figure(figure, path)


def write_maps(maps: Sequence[ShownMap], system: str, folder: Path) -> None:
    """A plot and the weights of each map."""
    folder.mkdir(exist_ok=True)
    for shown in maps:
        place = folder / f"{system}-{shown.line}-{re.sub(r'[^a-z0-9]+', '_', shown.title.lower())}"
        draw_map(shown, system, place.with_name(f"{place.name}.png"))
        values = {**vars(shown), "weights": shown.weights.tolist()}
        write_text(place.with_name(f"{place.name}.json"), json.dumps(values, ensure_ascii=False) + "\n")


def parse_systems(words: Sequence[str], what: str = "CHECKPOINT") -> dict[str, Path]:
    """``NAME=CHECKPOINT``, or of another ``what``, as a name and a path.

    :raises UserError: one is not of this form, is named twice or is no file
    """
    systems: dict[str, Path] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or not re.fullmatch(r"[^\W_][\w.+-]*", name):
            raise UserError(f"--system {word}: expected NAME={what}, the name of letters, digits and . _ + -")
        if name in systems:
            raise UserError(f"--system {word}: there is another system of this name")
        if not Path(path).is_file():
            raise UserError(f"--system {word}: {path} is not a file")
        systems[name] = Path(path)
    return systems


def numbers(text: str) -> list[int]:
    """Rising whole numbers from 1 on, divided by commas."""
    words = text.split(",")
    found = [int(word) if word.isdecimal() else 0 for word in words]
    if found[0] < 1 or any(left >= right for left, right in zip(found, found[1:], strict=False)):
        raise argparse.ArgumentTypeError(f"{text}: expected rising whole numbers from 1 on, divided by commas")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer compare``."""
    parser.add_argument("data", type=Path, help="directory that fairseq-preprocess wrote")
    parser.add_argument(
        "--system", action="append", required=True, metavar="NAME=CHECKPOINT", help="once for each system"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where results are kept, to go on")
    parser.add_argument("--split", default="test", help="part of the data (default: test)")
    parser.add_argument("--sentences", type=positive_int, metavar="N", help="its first N alone (default: all)")
    parser.add_argument(
        "--maps", type=numbers, default=[], metavar="N,N,...", help="attention maps of these sentences, from 1 on"
    )
    parser.add_argument(
        "--lengths",
        type=numbers,
        default=list(LENGTHS),
        metavar="N,N,...",
        help="last length or position of each bucket but the open one (default: 10,20,30,40,50)",
    )
    parser.add_argument("--tokenize", choices=TOKENIZERS, default="13a", help="BLEU's flavour (default: 13a)")
    parser.add_argument("--lowercase", action="store_true", help="BLEU ignores case")
    add_search_arguments(parser)
    parser.add_argument(
        "--max-tokens", type=positive_int, default=4096, help="of a batch where the target is given (default: 4096)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the tables; write them, the numbers and the plots into ``args.output``."""
    logging.disable(logging.INFO)  # fairseq tells how it loads; asked for are the tables
    warnings.filterwarnings("ignore", message="'pin_memory'")  # which fairseq asks for with or without a GPU
    systems = parse_systems(args.system)
    new_figure(1, 1)  # if there is no matplotlib, it should be known now

    results: dict[str, Results] = {}
    contents: dict[str, str] = {}
    test: TestSet | None = None
    for name, path in systems.items():
        print_progress(f"{name}: {path}")
        system = System(args, name, path)
        test = test or TestSet(args.split, system.references(), system.source_lengths(), system.frequencies())
        results[name], contents[name] = Results(system.hypotheses(), system.accuracy()), system.content
        maps = system.maps()
        if args.maps and not maps:
            print_progress(f"  {name} shows no attention")
        write_maps(maps, name, args.output / "attention")
    assert test is not None  # argparse asks for one system at least
    if test.frequencies is None:
        print_progress(f"{args.data}: no training data in it, so no accuracy by frequency")
    made = tables(results, test, args.lengths, args.tokenize, args.lowercase)
    for table in made:
        write_text(args.output / f"{table.name}.csv", table.csv())
        if table.name != "summary":
            table.draw(args.output / f"{table.name}.png")
    settings = Settings(test.references, tokenize=args.tokenize, lowercase=args.lowercase)
    record = {
        "command": shlex.join(["ode-transformer", *args.words]),
        "signature": bleu(test.references, settings)[0].signature,
        "systems": {name: {"path": str(path), "content": contents[name]} for name, path in systems.items()},
        "tables": {table.name: vars(table) for table in made},
    }
    write_text(args.output / "results.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    text = "\n".join(table.markdown() for table in made)
    write_text(args.output / "tables.md", text)
    print(text, end="")
    return 0
