"""A language model from its text to a perplexity and to continuations, by fairseq's own commands."""

import json
import re
from pathlib import Path

import pytest
from commands_for_tests import USER_DIR, lines_of, run, succeed
from ptb_stand_in import SENTENCES, sentences

from ode_transformer.cli.command import main

pytestmark = pytest.mark.slow

SAMPLES = ("--sample-break-mode", "none", "--tokens-per-sample", 32, "--num-workers", 0)
PREFIX = 3  # words


def training(data: Path, save_dir: Path, updates: int) -> tuple[object, ...]:
    return (
        *(data, "--user-dir", USER_DIR, "--task", "language_modeling", "--arch", "ode_transformer_lm_rk2", *SAMPLES),
        *("--decoder-embed-dim", 32, "--decoder-ffn-embed-dim", 48, "--decoder-attention-heads", 2, "--cpu"),
        *("--share-decoder-input-output-embed", "--optimizer", "adam", "--lr", 0.005, "--seed", 1),
        *("--batch-size", 4, "--required-batch-size-multiple", 1, "--data-buffer-size", 0),
        *("--update-epoch-batch-itr", True, "--max-update", updates, "--save-dir", save_dir, "--log-format", "json"),
    )


def evaluated(data: Path, model: Path, log: Path, *options: object) -> float:
    """The perplexity that fairseq-eval-lm finds for the validation text."""
    common = (data, "--user-dir", USER_DIR, "--path", model, "--gen-subset", "valid", "--cpu", "--batch-size", 4)
    done = run("eval-lm", *common, *SAMPLES, "--required-batch-size-multiple", 1, *options)
    assert done.returncode == 0, done.stderr
    log.write_text(done.stdout + done.stderr)
    found = re.search(r"Perplexity: ([\d.]+)", log.read_text())
    assert found
    return float(found[1])


def test_from_text_to_perplexity_and_continuations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in SENTENCES:
        (tmp_path / split).write_text("".join(f"{line.strip()}\n" for line in sentences(split)))
    prefixes = [word for split in SENTENCES for word in (f"--{split}pref", tmp_path / split)]
    data, saved = tmp_path / "data", tmp_path / "saved"
    succeed("preprocess", "--only-source", *prefixes, "--destdir", data)

    log = succeed("train", *training(data, saved, 14))

    # The perplexity of a checkpoint that was written anew is that of the training's own validation.
    assert (
        main(["checkpoint", "average", str(saved / "checkpoint_last.pt"), "--output", str(tmp_path / "model.pt")]) == 0
    )
    validations = [json.loads(found) for found in re.findall(r"\{.*\"valid_ppl\".*\}", log)]
    perplexity = evaluated(data, tmp_path / "model.pt", tmp_path / "eval.log")
    assert perplexity == pytest.approx(float(validations[-1]["valid_ppl"]), abs=0.011)
    lines = SENTENCES["valid"]
    symbols = len((tmp_path / "valid").read_text().split()) + lines
    assert 1 < perplexity < len((data / "dict.txt").read_text().splitlines())
    # A literal <unk> is fairseq's own symbol, not a word of the dictionary; it is predicted and counted like one.
    assert "<unk>" in (tmp_path / "valid").read_text()
    assert "<unk>" not in (data / "dict.txt").read_text()
    scoring = ["score", "--metric", "perplexity", "--eval-lm-log", str(tmp_path / "eval.log")]
    for mode in ("none", "complete"):
        if mode != "none":
            evaluated(data, tmp_path / "model.pt", tmp_path / "eval.log", "--sample-break-mode", mode)
        capsys.readouterr()
        assert main([*scoring, "--references", str(tmp_path / "valid")]) == 0
        out = capsys.readouterr().out
        assert f" {symbols} words with the ends of sentence; {lines} lines; per:word|eos:counted" in out
        assert f"|sample-break-mode:{mode}|tokens-per-sample:32|context-window:0)" in out

    # Continuations begin as the text that they continue; decoding/test_continuation.py draws words.
    output = succeed(
        "generate",
        *(data, "--user-dir", USER_DIR, "--task", "language_modeling", "--path", tmp_path / "model.pt", "--cpu"),
        *("--gen-subset", "test", "--sample-break-mode", "complete", "--tokens-per-sample", 1, "--max-len-b", 20),
        *("--prefix-size", PREFIX, "--batch-size", 4, "--required-batch-size-multiple", 1, "--beam", 3),
    )
    texts, continued = lines_of(output, "S"), lines_of(output, "H")
    assert len(texts) == len(continued) == SENTENCES["test"]  # a sample of whole sentences has at least one
    for number, (text,) in texts.items():
        words = continued[number][1].split()
        assert words[:PREFIX] == text.split()[:PREFIX]
        assert len(words) > PREFIX
