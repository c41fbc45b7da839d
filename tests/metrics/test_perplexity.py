"""Word perplexity from what fairseq-eval-lm prints, first made up, then by a real run."""

import math
from pathlib import Path

import pytest
from commands_for_tests import PAIRS, run, succeed

from ode_transformer.cli.command import main
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.perplexity import perplexity
from ode_transformer.support.errors import UserError

TEXT = ["a b c", "", "d <unk>"]  # 5 words and 3 ends
CONFIGURATION = (
    "INFO:{'post_process': None, 'context_window': 4}, 'task': {'sample_break_mode': 'none', 'tokens_per_sample': 64}"
)


def log(tmp_path: Path, loss: str, value: str, tokens: str = "8", more: str = "") -> Path:
    path = tmp_path / "eval.log"
    path.write_text(
        f"{CONFIGURATION}\n2026-01-01 | INFO | Evaluated {tokens} tokens in 0.5s (2.90 tokens/s)\n"
        f"2026-01-01 | INFO | Loss (base 2): {loss}, Perplexity: {value}\n{more}"
    )
    return path


def test_perplexity_of_words_and_ends(tmp_path: Path) -> None:
    path = log(tmp_path, "7.0000", "128.00")
    (score,) = perplexity([], Settings(TEXT, eval_lm_log=path))
    assert score.value == 128
    assert score.detail == "7.0000 bits a word, 8 words with the ends of sentence"
    assert score.signature == "per:word|eos:counted|sample-break-mode:none|tokens-per-sample:64|context-window:4"
    assert score.sentences == 3
    (score,) = perplexity([], Settings(eval_lm_log=path))
    assert score.signature.startswith("per:token|sample-break-mode:")
    assert score.detail == "7.0000 bits a token, 8 tokens"


@pytest.mark.parametrize("value", [1.0, 2.718, 119.4649, 128.48499, 98765.4321])
def test_rounding_is_no_contradiction(tmp_path: Path, value: float) -> None:
    path = log(tmp_path, f"{math.log2(value):.4f}", f"{value:.2f}")
    (score,) = perplexity([], Settings(eval_lm_log=path))
    assert score.value == pytest.approx(value, abs=0.005)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("7.0000", "129.00"), "a loss of 7.0 bits is a perplexity of 128.00, not 129.0"),
        (("7.0010", "128.00"), "is a perplexity of 128.09, not 128.0"),
        (("nan", "nan"), "not nan"),
        (("inf", "inf"), "not inf"),
        (("9" * 400, "1.0"), "is a perplexity of inf, not 1.0"),
        (("7.0000", "128.00", "9" * 5000), "no perplexity found"),
        (("7.0000", "128.00", "1,009"), "1,009 tokens, but --references has 8 words and ends of sentence"),
        (("7.0000", "128.00", "8", "Loss (base 2): 6.0000, Perplexity: 64.00\n"), "2 perplexities: is it the log of"),
        (("", ""), "no perplexity found"),
    ],
)
def test_logs_that_are_refused(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        perplexity([], Settings(TEXT, eval_lm_log=log(tmp_path, *words)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--metric perplexity needs --eval-lm-log"),
        (["--eval-lm-log", "{log}", "--hypotheses", "{log}"], "--hypotheses goes with --metric bleu or "),
        (["--eval-lm-log", "-", "--references", "-"], "- is standard input, which is read once"),
        (["--eval-lm-log", "{log}", "--references", "{log}"], "8 tokens, but --references has "),
    ],
)
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    path = log(tmp_path, "7.0000", "128.00")
    assert main(["score", "--metric", "perplexity", *(word.format(log=path) for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_real_run_counts_each_word_and_each_end_of_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = [pair[0].replace(" the ", " <unk> ") for pair in PAIRS]
    for split, lines in (("train", text), ("valid", text[:11])):
        (tmp_path / split).write_text("".join(f"{line}\n" for line in lines))
    prefixes = ("--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid")
    succeed("preprocess", "--only-source", *prefixes, "--destdir", tmp_path / "data")
    # The literal <unk> is fairseq's own symbol, not a word of the dictionary ...
    assert "<unk>" not in (tmp_path / "data" / "dict.txt").read_text()
    size = ("--decoder-layers", 1, "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16)
    succeed(
        "train",
        *(tmp_path / "data", "--task", "language_modeling", "--arch", "transformer_lm", *size),
        *("--decoder-attention-heads", 2, "--tokens-per-sample", 20, "--sample-break-mode", "none", "--batch-size", 4),
        *("--optimizer", "adam", "--lr", 0.001, "--max-update", 3, "--save-dir", tmp_path, "--cpu"),
        *("--num-workers", 0, "--data-buffer-size", 0, "--disable-validation"),
    )
    for mode in ("none", "complete"):
        done = run(
            "eval-lm",
            *(tmp_path / "data", "--path", tmp_path / "checkpoint_last.pt", "--gen-subset", "valid", "--cpu"),
            *("--sample-break-mode", mode, "--tokens-per-sample", 20, "--batch-size", 4, "--num-workers", 0),
        )
        assert done.returncode == 0, done.stderr
        (tmp_path / "eval.log").write_text(done.stdout + done.stderr)
        options = ["--eval-lm-log", str(tmp_path / "eval.log"), "--references", str(tmp_path / "valid")]
        assert main(["score", "--metric", "perplexity", *options]) == 0
        out = capsys.readouterr().out
        # ... and yet it is predicted and counted like one.
        words = sum(len(line.split()) for line in text[:11])
        assert f" {words + 11} words with the ends of sentence; 11 lines; per:word|eos:counted" in out
        assert f"|sample-break-mode:{mode}|tokens-per-sample:20|context-window:0)" in out
