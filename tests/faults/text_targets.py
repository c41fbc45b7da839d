"""Fuzz targets of ``support``, ``metrics`` and ``cli``: YAML, M2, logs of fairseq, command lines, texts to score."""

import contextlib
import importlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from ode_transformer.cli import command, main
from ode_transformer.corpora.sources import read_sources
from ode_transformer.metrics.m2_file import correct_tokens, read_m2
from ode_transformer.metrics.max_match import max_match
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.perplexity import perplexity
from ode_transformer.recipes.recipe import read_recipe
from ode_transformer.studies.study import read_study
from ode_transformer.support.generate_log import read_generate_log
from ode_transformer.support.yaml_file import CONFIGS

Target = tuple[list[bytes], Callable[[bytes], object]]

_FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-")


def file_target(seeds: list[bytes], read: Callable[[Path], object], name: str = "input") -> Target:
    """Return a target whose function writes its input to a file and reads that file."""
    path = Path(_FOLDER.name) / name

    def function(data: bytes) -> object:
        path.write_bytes(data)
        with contextlib.redirect_stderr(io.StringIO()):
            return read(path)

    return seeds, function


def score_m2(path: Path) -> object:
    """Score the corrections of the first annotator against all annotators."""
    sentences = read_m2(path)
    return max_match([" ".join(correct_tokens(sentence)) for sentence in sentences], sentences)


def parse_command_line(data: bytes) -> None:
    """Parse a command line, one argument per line, by the subcommand's own parser; run nothing."""

    def import_parser(name: str) -> SimpleNamespace:
        module = importlib.import_module(name)
        return SimpleNamespace(add_arguments=module.add_arguments, run=lambda args: 0)

    words = data.decode(errors="replace").split("\n")
    with (
        mock.patch.object(command, "importlib", SimpleNamespace(import_module=import_parser)),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),  # argparse
    ):
        main(words)


def score_text(data: bytes) -> None:
    """Run ``ode-transformer score``: the first line has the options, then hypotheses and references in turn."""
    options, *lines = data.split(b"\n")
    files = {"hypotheses": lines[::2], "references": lines[1::2]}
    words = options.decode(errors="replace").split()
    for option, texts in files.items():
        path = Path(_FOLDER.name) / option
        path.write_bytes(b"".join(text + b"\n" for text in texts))
        words += [f"--{option}", str(path)]
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),  # argparse
    ):
        main(["score", *words])


def _configs(pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(CONFIGS.glob(pattern))]


M2 = b"""S This are a sentence .
A 1 2|||SVA|||is||was|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

S My hat .
A 1 2|||Nn|||hats|||REQUIRED|||-NONE-|||0
A 2 2|||M:PUNCT|||,|||REQUIRED|||-NONE-|||0
"""
# Gold edits that are long and overlap, of many annotators
LONG_EDITS = "\n".join(
    [
        f"S {' '.join('ab' * 60)}",
        *(f"A {i} {i + 80}|||x|||{' '.join('ba' * 40)}||c|||REQUIRED|||-NONE-|||{i % 7}" for i in range(0, 40, 2)),
        *["A 9 9|||x|||a||b|||REQUIRED|||-NONE-|||1"] * 20,
    ]
).encode()
GENERATE_LOG = (
    b"S-1\tone\nT-1\tein\nH-1\t-0.5\te in\nD-1\t-0.5\tein\nP-1\t-0.1 -0.4\nS-0\ttwo\nT-0\tzwei\nD-0\t-1\tzwei\n"
)
EVAL_LM_LOG = b"""{'task': {'sample_break_mode': 'none', 'tokens_per_sample': 64, 'context_window': 0}}
Evaluated 1,024 tokens in 0.5s (2048.00 tokens/s)
Loss (base 2): 7.0000, Perplexity: 128.00
"""
COMMAND_LINES = [
    b"average\nfolder\n--last\n5\n--output\naverage.pt",
    b"convert\nreleased.pt\n--output\nours.pt",
    b"translate\n--path\nmodel.pt\n--beam\n5\n--lenpen\n0.6\n--batch-size\n32\n--cpu",
    b"score\n--metric\nbleu\nchrf\n--hypotheses\na\nb\n--references\nc\n--bootstrap-samples\n100\n--seed\n3",
    b"train\nptb\n--seed\n1\n--gpus\n0\n--\n--lr\n0.1",
    b"study\nsmall\n--seeds\n1,2,3\n--output\nfolder",
    b"scale\n--gradients\n0.1\n0.2\n--arch\ntransformer",
    b"curves\nlog\n--output\nplot.png",
]
SCORED_TEXTS = [
    b"--metric bleu chrf --tokenize none --compound-split\na well-known text\na well-known text\nb\nb c",
    b"--metric per wer rouge\nK AE T\nK AE D\n\nD AO G",
    b"--metric bleu --detokenize en --lowercase\nA cat 's hat .\nA cat's hat.",
]

TARGETS: dict[str, Target] = {
    "YAML, recipe": file_target(_configs("*_??_??.yaml")[:4], read_recipe, "recipe.yaml"),
    "YAML, study": file_target(_configs("studies/*.yaml")[:4], read_study, "study.yaml"),
    "YAML, sources": file_target(_configs("sources.yaml"), read_sources, "sources.yaml"),
    "M2": file_target([M2, LONG_EDITS], score_m2),
    "log of fairseq-generate": file_target([GENERATE_LOG], read_generate_log),
    "log of fairseq-eval-lm": file_target([EVAL_LM_LOG], lambda path: perplexity([], Settings(eval_lm_log=path))),
    "command line": (COMMAND_LINES, parse_command_line),
    "texts to score": (SCORED_TEXTS, score_text),
}
