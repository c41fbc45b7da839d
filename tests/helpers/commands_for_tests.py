"""Runs fairseq's own commands as a user does, on a text that is small enough for a test."""

import contextlib
import os
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from plain_models import PAIRS, train_pieces
from programs_here import run_here

import ode_transformer
from ode_transformer.checkpoints.reading import load_checkpoint

USER_DIR = Path(ode_transformer.__file__).parent

COMMANDS = Path(sysconfig.get_path("scripts"))

# PYTHONPATH is empty, because --user-dir alone has to suffice. With one thread sums are always formed in one order.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": ""}

# Two layers of width 32: a command takes little longer than importing torch.
SMALL = (
    *("--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 48, "--encoder-layers", 2, "--encoder-attention-heads", 2),
    *("--decoder-embed-dim", 32, "--decoder-ffn-embed-dim", 48, "--decoder-layers", 2, "--decoder-attention-heads", 2),
)
NO_DROPOUT = ("--dropout", 0, "--attention-dropout", 0, "--activation-dropout", 0)
TIMEOUT = 600  # seconds
BATCHES = 8  # in an epoch of the 40 training pairs


@dataclass(frozen=True)
class Text:
    """The pairs, cut into pieces and binarised, in a folder of ``prepare``."""

    folder: Path

    @property
    def data(self) -> Path:
        """The folder that fairseq reads."""
        return self.folder / "data"

    @property
    def pieces(self) -> Path:
        """The sentencepiece model of both languages."""
        return self.folder / "pieces.model"


def prepare(directory: Path) -> None:
    """Write 40 pairs to train on and 8 to validate and test on."""
    processor = train_pieces(directory / "pieces")
    for split, pairs in (("train", PAIRS[:-8]), ("valid", PAIRS[-8:])):
        for language, sentences in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            lines = [" ".join(processor.encode(sentence, out_type=str)) + "\n" for sentence in sentences]
            (directory / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")
    succeed(
        "preprocess",
        *("--source-lang", "en", "--target-lang", "de", "--joined-dictionary", "--destdir", directory / "data"),
        *("--trainpref", directory / "train", "--validpref", directory / "valid", "--testpref", directory / "valid"),
    )


def training(text: Text, save_dir: Path, arch: str, updates: int, *options: object) -> tuple[object, ...]:
    """Arguments of fairseq-train; a later option overrides an earlier one."""
    return (
        *(text.data, "--user-dir", USER_DIR, "--arch", arch, *SMALL, "--share-all-embeddings", "--cpu"),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", 1.0, "--seed", 1),
        *("--lr-scheduler", "inverse_sqrt", "--lr", 0.005, "--warmup-updates", 10),
        # No thread that loads ahead: when training stops within an epoch, it can abort the process at its end.
        *("--num-workers", 0, "--data-buffer-size", 0),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1),
        *("--batch-size", 5, "--required-batch-size-multiple", 1, "--max-update", updates, "--disable-validation"),
        *("--save-dir", save_dir, "--log-format", "json", "--log-interval", 1, *options),
    )


def train(text: Text, save_dir: Path, arch: str, updates: int, *options: object) -> Path:
    """Trains and returns the last checkpoint."""
    succeed("train", *training(text, save_dir, arch, updates, *options))
    return save_dir / "checkpoint_last.pt"


def parameters(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(checkpoint)["model"]


def run(command: str, *arguments: object, stdin: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """Run ``fairseq-<command>`` in this process, whatever its exit status.

    :param more: ``cwd`` and ``stderr`` as for ``subprocess.run``
    """
    with contextlib.chdir(more.get("cwd", ".")):
        return run_here([f"fairseq-{command}", *arguments], stdin, more.get("stderr") == subprocess.STDOUT)


def succeed(command: str, *arguments: object, **more: Any) -> str:
    """Runs ``fairseq-<command>``, which has to succeed, and returns its standard output."""
    done = run(command, *arguments, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(output: str, kind: str) -> dict[int, list[str]]:
    """What generate and interactive print: the tab-separated fields of lines like ``H-<number>``, by number."""
    fields = [line.split("\t") for line in output.splitlines() if line.startswith(f"{kind}-")]
    return {int(first.removeprefix(f"{kind}-")): rest for first, *rest in fields}
