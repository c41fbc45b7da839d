"""Command-line arguments of ``ode-transformer export``: quick to import, without PyTorch."""

import argparse
from pathlib import Path

from ode_transformer.support.arguments import add_language_arguments
from ode_transformer.support.subword_models import SUBWORD_MODELS

FORMATS = {
    "ctranslate2": "ode_transformer.export.ctranslate2_folder",
    "huggingface": "ode_transformer.export.huggingface_folder",
}
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")


def export(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("data", nargs="?", type=Path, help="folder with the dictionaries (default: the model's)")
    add("--to", required=True, choices=tuple(FORMATS), help="library that reads the folder")
    add("--path", required=True, type=Path, metavar="FILE", help="checkpoint of the model")
    add("--output", required=True, type=Path, metavar="FOLDER", help="new folder")
    add("--quantization", choices=QUANTIZATIONS, help="numbers of the weights, for ctranslate2 (default: float32)")
    add("--bpe", choices=(*SUBWORD_MODELS, "none"), help="kind of subwords (default: by the model's folder)")
    add("--bpe-model", type=Path, metavar="FILE", help="file of --bpe (default: by the model's folder)")
    add_language_arguments(parser)
