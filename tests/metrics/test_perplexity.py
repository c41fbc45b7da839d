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


def log(tmp_path: Path, loss: str, value: str, tokens: str = "8") -> Path:
    path = tmp_path / "eval.log"
    path.write_text(
        f"{CONFIGURATION}\n2026-01-01 | INFO | Evaluated {tokens} tokens in 0.5s (2.90 tokens/s)\n"
        f"2026-01-01 | INFO | Loss (base 2): {loss}, Perplexity: {value}\n"
    )
    return path


def test_perplexity_of_words_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, "7.0000", "128.00")
    (score,) = perplexity([], Settings(TEXT, eval_lm_log=path))
    assert score.value == 128
    assert score.detail == "7.0000 bits a word, 8 words with the ends of sentence"
    assert score.signature == "per:word|eos:counted|sample-break-mode:none|tokens-per-sample:64|context-window:4"
    assert score.sentences == 3
    assert main(["score", "--metric", "perplexity", "--eval-lm-log", str(path)]) == 0
    assert capsys.readouterr().out.startswith("perplexity 128.00 (7.0000 bits a token, 8 tokens; per:token|")


def test_perplexity_of_words_divided_into_pieces(tmp_path: Path) -> None:
    path = log(tmp_path, "2.0000", "4.00", tokens="12")
    (score,) = perplexity([], Settings(TEXT, eval_lm_log=path, pieces=True))
    assert score.value == 2 ** (2 * 12 / 8)
    assert score.signature.startswith("per:word|eos:counted|pieces|")
    # fairseq divides the loss of such a run by another number than that of the tokens which it prints.
    path.write_text(path.read_text().replace("'post_process': None", "'add_bos_token': True"))
    with pytest.raises(UserError, match="--add-bos-token .*: its loss is no mean over pieces"):
        perplexity([], Settings(TEXT, eval_lm_log=path, pieces=True))


@pytest.mark.parametrize(
    ("words", "pieces", "message"),
    [
        (("nan", "nan"), False, "not the complete log of one fairseq-eval-lm with a finite loss"),
        (("7.0000", "128.00", "1,009"), False, "1,009 tokens, but --references has 8 words and ends of sentence"),
        (("7.0000", "128.00", "7"), True, "7 tokens, but --references has 8 words"),
    ],
)
def test_logs_that_are_refused(tmp_path: Path, words: tuple[str, ...], pieces: bool, message: str) -> None:
    with pytest.raises(UserError, match=message):
        perplexity([], Settings(TEXT, eval_lm_log=log(tmp_path, *words), pieces=pieces))
