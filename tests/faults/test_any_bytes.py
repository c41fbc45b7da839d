"""Every reader accepts valid bytes, and ends in an exception that takes one line, soon, with any others."""

import bz2
import gzip
import io
import lzma
import os
import random
import signal
import tarfile
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.cli.command import error_message
from ode_transformer.lab.corpora.raw_text import PairLocation, open_texts, read_pairs
from ode_transformer.lab.metrics.m2_file import correct_tokens, read_m2
from ode_transformer.lab.metrics.max_match import max_match
from ode_transformer.lab.metrics.metric import Settings
from ode_transformer.lab.metrics.perplexity import perplexity
from ode_transformer.lab.recipes.recipe import read_recipe
from ode_transformer.support.generate_log import read_generate_log
from ode_transformer.support.lines import decode_stream
from ode_transformer.support.yaml_file import CONFIGS

INPUTS = 30  # changed ones for each reader
LIMIT = 20  # seconds for one of them, on a busy machine
NUMBERS = [b"0", b"-1", b"65536", b"2147483648", b"18446744073709551616", b"9" * 5000, b"1e999", b"nan"]
SNIPPETS = [b"\0", b"\n", b"\r", b'"', b"\\", b"<", b"&", b"%", b"{}", b"|||", b"../", b"\xff\xfe", b"\xed\xa0\x80"]

SEGMENTS = b'<doc>\n<hl><seg id="1">A &amp; B &#8211; C</seg></hl>\n<seg id="2">two\nlines</seg> <seg>x</seg>\n</doc>\n'
TMX = b"""<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><body>
<tu><tuv xml:lang="en"><seg>Good &amp; bad</seg></tuv><tuv xml:lang="de"><seg>Gut<hi>e</hi></seg></tuv></tu>
</body></tmx>
"""
M2 = b"""S This are a sentence .
A 1 2|||SVA|||is||was|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1
"""
GENERATE_LOG = b"S-1\tone\nT-1\tein\nH-1\t-0.5\te in\nD-1\t-0.5\tein\nS-0\ttwo\nT-0\tzwei\nD-0\t-1\tzwei\n"
EVAL_LM_LOG = b"""{'task': {'sample_break_mode': 'none', 'tokens_per_sample': 64, 'context_window': 0}}
Evaluated 1,024 tokens in 0.5s (2048.00 tokens/s)
Loss (base 2): 7.0000, Perplexity: 128.00
"""


def checkpoint(zipped: bool) -> bytes:
    """Return a small checkpoint in torch's format since version 1.6, or before."""
    buffer = io.BytesIO()
    state = {
        "args": Namespace(arch="ode_transformer_rk2_tiny", lr=[0.1], encoder_layers=2),
        "cfg": {"task": {"_name": "translation"}},
        "model": {"a": torch.ones(3), "b": torch.ones(2, 2).half()},
    }
    torch.save(state, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def archives() -> list[bytes]:
    """Return an archive of each kind."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        entry = tarfile.TarInfo("text" + "ä" * 120)
        entry.size = 9
        archive.addfile(entry, io.BytesIO(b"one line\n"))
    tar, zipped = data.getvalue(), []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", method) as archive:
            archive.writestr("text", b"one line\n")
        zipped.append(data.getvalue())
    return [*zipped, tar, gzip.compress(tar), bz2.compress(tar), lzma.compress(tar)]


def read_archive(path: Path) -> None:
    for name, stream in open_texts(path, "*"):
        list(decode_stream(stream, name))


def pairs_reader(**location: object) -> Callable[[Path], object]:
    return lambda path: list(read_pairs({"a": path}, PairLocation.model_validate({"file": "a", **location})))


def side_reader(kind: str) -> Callable[[Path], object]:
    sides = {"source_file": "a", "target_file": "a", "format": kind}
    return lambda path: list(read_pairs({"a": path}, PairLocation.model_validate(sides)))


def score_m2(path: Path) -> None:
    sentences = read_m2(path)
    max_match([" ".join(correct_tokens(sentence)[0]) for sentence in sentences], sentences)


READERS: dict[str, tuple[Sequence[bytes], Callable[[Path], object]]] = {
    "checkpoint": ([checkpoint(True), checkpoint(False)], load_checkpoint),
    "archive": (archives(), read_archive),
    "segments": ([SEGMENTS], side_reader("segments")),
    "tagged lines": ([b"<url>x</url>\n<title>A title</title>\nA sentence.\n"], side_reader("tagged")),
    "columns": ([b"id\t0.1\teins\tone\nid\t0.2\tzwei\ttwo\n"], pairs_reader(format="tsv", columns=[4, 3])),
    "TMX": ([TMX], pairs_reader(format="tmx", languages=["en", "de"])),
    "recipe": ([(CONFIGS / "multi30k_en_de.yaml").read_bytes()], read_recipe),
    "M2": ([M2], score_m2),
    "log of fairseq-generate": ([GENERATE_LOG], read_generate_log),
    "log of fairseq-eval-lm": ([EVAL_LM_LOG], lambda path: perplexity([], Settings(eval_lm_log=path))),
}


def changed(generator: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return a seed after one to four random changes."""
    data = bytearray(generator.choice(seeds))
    for _ in range(generator.choice((1, 1, 2, 4))):
        start = generator.randrange(len(data) + 1)
        end = min(len(data), start + generator.choice((1, 1, 4, 64)))
        match generator.randrange(6):
            case 0:
                data[start:end] = bytes(byte ^ (1 << generator.randrange(8)) for byte in data[start:end])
            case 1:
                data[start:end] = generator.randbytes(end - start)
            case 2:
                data[start:end] = b""
            case 3:
                data[start:start] = data[start:end] * generator.choice((1, 100))
            case 4:
                data[start:start] = generator.choice(SNIPPETS + NUMBERS)
            case 5:
                del data[start:]
    return bytes(data)


@pytest.fixture
def stopped_in_time() -> Iterator[Callable[[], object]]:
    """Returns what restarts the clock; when it has run down, the tests end."""
    yield lambda: signal.alarm(LIMIT)
    signal.alarm(0)


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_end_in_one_line(name: str, tmp_path: Path, stopped_in_time: Callable[[], object]) -> None:
    seeds, read = READERS[name]
    path, generator = tmp_path / "input.pt", random.Random(name)
    for data in seeds:
        path.write_bytes(data)
        read(path)
    for _ in range(int(os.environ.get("ODE_FUZZED_INPUTS", INPUTS))):
        path.write_bytes(data := changed(generator, seeds))
        stopped_in_time()
        try:
            read(path)
        except Exception as error:
            message = error_message(error)
            assert str(path) in message, data
            assert len(message) < 2000, data
            assert message.isprintable(), data
