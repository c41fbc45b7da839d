"""Word perplexity from what fairseq-eval-lm prints; tests/system/test_language_model_run.py has a real run."""

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
    with pytest.raises(UserError, match="7 tokens, but --references has 8 words"):
        perplexity([], Settings(TEXT, eval_lm_log=log(tmp_path, "2.0000", "4.00", tokens="7"), pieces=True))


@pytest.mark.parametrize("setting", ["'post_process': '@@ '", "'add_bos_token': True"])
def test_pieces_need_a_loss_that_is_their_mean(tmp_path: Path, setting: str) -> None:
    """fairseq divides the loss of such a run by another number than that of the tokens which it prints."""
    path = log(tmp_path, "2.0000", "4.00", tokens="12")
    path.write_text(path.read_text().replace("'post_process': None", setting))
    flag = setting.split("'")[1].replace("_", "-")
    with pytest.raises(UserError, match=f"--{flag} .*: its loss is no mean over pieces"):
        perplexity([], Settings(TEXT, eval_lm_log=path, pieces=True))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nan", "nan"), "not the complete log of one fairseq-eval-lm with a finite loss"),
        (("7.0000", "128.00", "1,009"), "1,009 tokens, but --references has 8 words and ends of sentence"),
        (("7.0000", "128.00", "8", "Loss (base 2): 6.0000, Perplexity: 64.00\n"), "not the complete log of one"),
    ],
)
def test_logs_that_are_refused(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        perplexity([], Settings(TEXT, eval_lm_log=log(tmp_path, *words)))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(log(tmp_path, "7.0000", "128.00"))
    assert main(["score", "--metric", "perplexity", "--eval-lm-log", path]) == 0
    assert capsys.readouterr().out.startswith("perplexity 128.00 (7.0000 bits a token, 8 tokens; per:token|")
    assert main(["score", "--metric", "perplexity", "--eval-lm-log", path, "--references", path]) == 2
    assert "8 tokens, but --references has " in capsys.readouterr().err
