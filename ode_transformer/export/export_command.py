"""``ode-transformer export``: write a trained translation model as the folder of another library.

A format is a module with ``check(model, args)``, which refuses what the library cannot express, and
``write(model, folder, args)``, and one line in ``FORMATS``. The folder appears complete or not at all.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
from pathlib import Path

from ode_transformer.export.translation_model import load_translation_model
from ode_transformer.support.arguments import add_language_arguments, flag_name
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory
from ode_transformer.support.subword_models import SUBWORD_MODELS

# name: (module, the options of this format alone)
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ctranslate2": ("ode_transformer.export.ctranslate2_folder", ("quantization",)),
    "huggingface": ("ode_transformer.export.huggingface_folder", ()),
}
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer export``."""
    parser.add_argument("data", nargs="?", type=Path, help="folder with the dictionaries (default: the model's)")
    parser.add_argument("--to", required=True, choices=tuple(FORMATS), help="library that reads the folder")
    parser.add_argument("--path", required=True, type=Path, metavar="FILE", help="checkpoint of the model")
    parser.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="new folder")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="numbers of the weights, for ctranslate2 (default: float32)",
    )
    parser.add_argument(
        "--bpe", metavar="NAME", help=f"subwords: {', '.join(SUBWORD_MODELS)} or none (default: by the model's folder)"
    )
    parser.add_argument("--bpe-model", type=Path, metavar="FILE", help="file of --bpe (default: by the model's folder)")
    add_language_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Export one checkpoint."""
    for name, (_, options) in FORMATS.items():
        for option in options:
            if name != args.to and getattr(args, option) is not None:
                raise UserError(f"{flag_name(option)}: only with --to {name}")
    if args.output.exists() or args.output.is_symlink():
        raise UserError(f"{args.output}: exists already; remove it, or choose another folder")
    if not args.output.absolute().parent.is_dir():
        raise UserError(f"{args.output}: not in an existing directory")
    library_format = importlib.import_module(FORMATS[args.to][0])
    languages = args.source_lang, args.target_lang
    model = load_translation_model(args.path, args.data, *languages, args.bpe, args.bpe_model)
    library_format.check(model, args)
    with atomic_directory(args.output) as folder:
        library_format.write(model, folder, args)
        if model.subword_model is not None:
            shutil.copyfile(model.subword_model[1], folder / str(model.subword_file_name))
    size = sum(file.stat().st_size for file in args.output.rglob("*"))
    print(f"{args.output}: {args.to}, {size / 2**20:,.1f} MiB")
    return 0
