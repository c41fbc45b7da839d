"""``ode-transformer export``: write a trained translation model as the folder of another library.

A format is a module with ``refusal(model)``, why the library cannot express a model, ``write(model, folder,
quantization)`` and ``scores(model, folder, sources, targets)``, and one line in ``FORMATS``. The folder appears
complete or not at all, and only if it scores some sentences as the model does.
"""

import argparse
import importlib
import shutil
from pathlib import Path
from typing import Any

import torch

from ode_transformer.decoding.teacher_forcing import log_probabilities
from ode_transformer.decoding.trained_model import TrainedModel, load_trained_model
from ode_transformer.export.arguments import FORMATS
from ode_transformer.support.console import ProgressMeter
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory, write_digests
from ode_transformer.support.subword_models import SUBWORD_MODELS, SubwordEncoder, choose_subword_model

BATCH_LENGTHS = (4, 10, 30)  # tokens of the sentences on which a folder is compared with its model
MAX_DIFFERENCE = 0.02  # of log p, mean of a sentence's words: far more than rounding, unless a model is untrained


def run(args: argparse.Namespace) -> None:
    if args.quantization and args.to != "ctranslate2":
        raise UserError("--quantization: only with --to ctranslate2")
    if args.output.exists() or args.output.is_symlink():
        raise UserError(f"{args.output}: exists already; remove it, or choose another folder")
    folder = args.path.parent
    subword_model = choose_subword_model(args.bpe, args.bpe_model, folder, args.data)
    if subword_model is not None:
        SubwordEncoder(*subword_model)  # refuses a broken file
    model = load_trained_model(args.path, args.data or folder, args.source_lang, args.target_lang)
    library_format = importlib.import_module(FORMATS[args.to])
    if reason := library_format.refusal(model):
        raise UserError(f"{model.path}: {reason}")
    progress = ProgressMeter("steps of the export", 3 if args.quantization else 2)
    with atomic_directory(args.output) as folder:
        library_format.write(model, folder, None)
        progress.add(1)
        check_scores(model, folder, args.to)
        progress.add(1)
        if args.quantization:
            library_format.write(model, folder, args.quantization)
            progress.add(1)
        if subword_model is not None:
            kind, file = subword_model
            shutil.copyfile(file, folder / SUBWORD_MODELS[kind].file_name)  # by which it is recognised there
        if args.to == "ctranslate2":
            write_digests(folder)  # for translate
    size = sum(file.stat().st_size for file in args.output.rglob("*"))
    print(f"{args.output}: {args.to}, {size / 2**20:,.1f} MiB")


@torch.no_grad()
def check_scores(model: TrainedModel, folder: Path, to: str) -> None:
    """Compare a folder, in float32, with its model on a batch of random words.

    :raises UserError: the folder gives other probabilities
    """
    generator = torch.Generator().manual_seed(1)
    lengths = [min(length, *model.max_positions) - 1 for length in BATCH_LENGTHS]

    def sentence(dictionary: Any, length: int) -> torch.Tensor:
        numbers = torch.randint(dictionary.nspecial, len(dictionary), (length,), generator=generator)
        return torch.cat([numbers, torch.tensor([dictionary.eos()])])

    sources = [sentence(model.source_dictionary, length) for length in lengths]
    targets = [sentence(model.target_dictionary, length) for length in reversed(lengths)]
    exported_scores = importlib.import_module(FORMATS[to]).scores(model, folder, sources, targets)
    for source, target, scores in zip(sources, targets, exported_scores, strict=True):
        inputs = {"src_tokens": source[None], "src_lengths": torch.tensor([len(source)])}
        log_probs = log_probabilities(model.model, inputs | {"prev_output_tokens": target.roll(1)[None]})[0]  # [T, V]
        difference = (log_probs.gather(1, target[:, None])[:, 0] - torch.tensor(scores)).abs().mean().item()
        if not difference <= MAX_DIFFERENCE:  # NaN is refused, too
            raise UserError(
                f"{model.path}: --to {to} would write another model: log-probabilities differ by {difference:.3g}"
            )
