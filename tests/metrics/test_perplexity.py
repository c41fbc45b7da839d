"""Word perplexity from what fairseq-eval-lm prints; tests/system/test_language_model_run.py has a real run."""

import math
from pathlib import Path

import pytest

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


def test_perplexity_of_words_divided_into_pieces(tmp_path: Path) -> None:
    path = log(tmp_path, "2.0000", "4.00", tokens="12")
    (score,) = perplexity([], Settings(TEXT, eval_lm_log=path, pieces=True))
    assert score.value == 2 ** (2 * 12 / 8)
    assert score.signature.startswith("per:word|eos:counted|pieces|")
    with pytest.raises(UserError, match="--pieces needs --references"):
        perplexity([], Settings(eval_lm_log=path, pieces=True))
    with pytest.raises(UserError, match="7 tokens, fewer than the 8 words"):
        perplexity([], Settings(TEXT, eval_lm_log=log(tmp_path, "2.0000", "4.00", tokens="7"), pieces=True))


@pytest.mark.parametrize("setting", ["'post_process': '@@ '", "'add_bos_token': True"])
def test_pieces_need_a_loss_that_is_their_mean(tmp_path: Path, setting: str) -> None:
    """fairseq divides the loss of such a run by another number than that of the tokens which it prints."""
    path = log(tmp_path, "2.0000", "4.00", tokens="12")
    path.write_text(path.read_text().replace("'post_process': None", setting))
    flag = setting.split("'")[1].replace("_", "-")
    with pytest.raises(UserError, match=f"--{flag} .*: its loss is no mean over pieces"):
        perplexity([], Settings(TEXT, eval_lm_log=path, pieces=True))


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
        (("nan", "nan"), "the loss is nan: the model's training diverged"),
        (("inf", "inf"), "the loss is inf: the model's training diverged"),
        (("9" * 300, "1.0"), "is a perplexity of inf, not 1.0"),
        (("9" * 400, "1.0"), "the loss is inf"),
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
