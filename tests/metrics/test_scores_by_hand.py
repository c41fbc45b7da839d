"""ROUGE, error rates and perplexity by hand; tests/system/test_language_model_run.py has a real run of the last."""

from pathlib import Path

import pytest

from ode_transformer.cli.command import main
from ode_transformer.metrics.error_rates import phoneme_error_rate, word_error_rate
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.perplexity import perplexity
from ode_transformer.metrics.rouge import rouge
from ode_transformer.support.errors import UserError

# In per cent: twice the matches over the numbers of both sides. Words of up to three letters are not stemmed.
CASES = {
    "unigrams and bigrams, by document": (["a bb ccc", "a"], ["a bb d1", "bb"], "period", (100 / 3, 25, 100 / 3)),
    "sentences in any order": (["a b . c d ."], ["c d . a b ."], "period", (100, 200 / 3, 100)),
    "one sentence: c d, or a b": (["a b . c d ."], ["c d . a b ."], "none", (100, 200 / 3, 50)),
    # The example of Lin (2004), section 3.2: of w1 ... w5, one sentence has w1 w2, the other w1 w3 w5.
    "the union of subsequences": (
        ["w1 w2 w6 w7 w8 . w1 w3 w8 w9 w5 ."],
        ["w1 w2 w3 w4 w5 ."],
        "period",
        (200 * 4 / 15, 200 / 13, 200 * 4 / 15),
    ),
}


@pytest.mark.parametrize(("hypotheses", "references", "sentences", "expected"), CASES.values(), ids=CASES)
def test_scores_by_hand(hypotheses: list[str], references: list[str], sentences: str, expected: tuple) -> None:
    scores = rouge(hypotheses, Settings(references, sentences=sentences))
    assert [score.value for score in scores] == pytest.approx(expected)
    assert {score.sentences for score in scores} == {len(references)}


def test_error_rates() -> None:
    hypotheses = ["K AE T", "D AA G Z", ""]  # none, a substitution and an insertion, three deletions
    settings = Settings(["K AE T", "D AO G", "B ER D"])
    (per,), (wer,) = phoneme_error_rate(hypotheses, settings), word_error_rate(hypotheses, settings)
    assert (per.value, per.detail) == (pytest.approx(500 / 9), "5 edits in 9 phonemes")
    assert (wer.value, wer.detail) == (pytest.approx(200 / 3), "2 of 3 words wrong")
    assert phoneme_error_rate(["A B C D"], Settings(["X"]))[0].value == 400


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
