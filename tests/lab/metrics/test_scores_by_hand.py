"""BLEU, chrF, ROUGE, error rates and perplexity against values worked out by hand.

tests/system/test_language_model_run.py has a real run of the last.
"""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_for_tests import make_language_model
from commands_for_tests import USER_DIR, run, succeed
from plain_models import PAIRS

from ode_transformer.cli.command import main
from ode_transformer.lab.metrics.error_rates import phoneme_error_rate, word_error_rate
from ode_transformer.lab.metrics.metric import Lines, Score, Settings
from ode_transformer.lab.metrics.perplexity import perplexity
from ode_transformer.lab.metrics.rouge import rouge
from ode_transformer.lab.metrics.translation_scores import bleu, chrf, german_tokens, macaron_tokens, split_compounds
from ode_transformer.support.errors import UserError


def score(measure, hypotheses: Lines, references: Lines, **more) -> Score:
    (found,) = measure(hypotheses, Settings(references, **more))
    return found


def test_several_references_by_hand():
    """An n-gram counts as often as the reference that has it most often; the length is that of the nearest one."""
    hypotheses = ["the cat the cat sat down", "no"]
    first, second = ["the cat sat down there", "no"], ["a cat and the cat sat", "well no"]
    # Words: the 1, cat 2, sat 1, down 1, no 1 of 7; pairs: "the cat" once, "cat sat", "sat down" of 5; triples:
    # "the cat sat", "cat sat down" of 4; quadruple: "the cat sat down" of 3. 7 words against 6 and 1.
    expected = 100 * (6 / 7 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    found = score(bleu, hypotheses, first, more_references=(second,), tokenize="none")
    assert found.value == pytest.approx(expected)
    assert found.signature.startswith("nrefs:2|")
    assert found.value > score(bleu, hypotheses, first, tokenize="none").value
    assert score(chrf, ["one"], ["two"], more_references=(["one"],)).value == pytest.approx(100)
    with pytest.raises(UserError, match="1 hypotheses, but 1 and 2 references"):
        score(bleu, ["a"], ["a"], more_references=(["a", "b"],))


@pytest.mark.parametrize(
    ("function", "line", "expected"),
    [
        (split_compounds, "a-b-c", "a ##AT##-##AT## b-c"),  # b was used up
        (split_compounds, "1 - 2 -x y- --", "1 - 2 -x y- --"),
        (split_compounds, "---", "- ##AT##-##AT## -"),
        (split_compounds, "über-\u00e4 \u00a0-x", "über ##AT##-##AT## \u00e4 \u00a0 ##AT##-##AT## x"),
        (lambda line: german_tokens([line])[0], "„Ja“ – ›so‹ geht’s …", "&quot; Ja &quot; – › so ‹ geht &apos; s ..."),
        (lambda line: german_tokens([line])[0], "Ost-West: 3,5 % &", "Ost ##AT##-##AT## West : 3,5 % &amp;"),
        (lambda line: macaron_tokens([line])[0], "„Ost-West“, z.B. …", "„ Ost ##AT##-##AT## West “ , z.B. …"),
        (lambda line: macaron_tokens([line])[0], "Und „5 %“ z.B.", "Und „ 5 % “ z.B ."),
    ],
)
def test_words_of_the_scripts(function: Callable[[str], str], line: str, expected: str):
    assert function(line) == expected


def test_detokenised_hypotheses_against_text():
    hypotheses = ["Sie sagte : &quot; Das ist ein Test @-@ Fall , glaube ich . &quot;"]
    references = ['Sie sagte: "Das ist ein Test-Fall, glaube ich."']
    found = score(bleu, hypotheses, references, detokenize="de")
    assert found.value == pytest.approx(100)
    assert "|tok:13a|" in found.signature
    assert "|hypotheses:detokenised-de|sacremoses:" in found.signature
    found = score(chrf, hypotheses, references, detokenize="de")
    assert score(chrf, hypotheses, references).value < found.value == pytest.approx(100)
    assert "nc:6|nw:0" in found.signature
    assert score(chrf, ["the cat"], ["The cat"], lowercase=True).value == pytest.approx(100)


@pytest.mark.parametrize(
    ("line", "other", "tokenizer"),
    [
        ("我喜欢读书,也喜欢写字。", "我喜欢跑步,也喜欢写字。", "zh"),
        ("私は本を読むのが好きです。", "私は歌を歌うのが好きです。", "char"),  # mecab is not installed
        ("ฉันชอบอ่านหนังสือและเขียนจดหมาย", "ฉันชอบร้องเพลงและเขียนจดหมาย", "char"),
        ("Я люблю читать книги и газеты .", "Я люблю читать книги и журналы .", "13a"),
        ("The film 花样年华 is old and long.", "The film 花样年华 is new and long.", "13a"),
    ],
)
def test_words_are_those_of_the_language(line: str, other: str, tokenizer: str):
    for measure in (bleu, chrf, rouge):
        for same, similar in zip(measure([line], Settings([line])), measure([other], Settings([line])), strict=True):
            assert same.value == pytest.approx(100)
            assert 5 < similar.value < 95
            assert measure is not bleu or f"|tok:{tokenizer}|" in same.signature
    assert score(bleu, [line], [line], tokenize="13a").signature.count("tok:13a") == 1


@pytest.mark.slow
@pytest.mark.parametrize("split", [False, True])
def test_tokenised_bleu_is_that_of_fairseq(tmp_path: Path, split: bool):
    """fairseq-score counts for itself, in C++."""
    chance = random.Random(3)
    references = [f"{target[:-1]} , gut-und-gern ." for _, target in PAIRS]
    words = [word for line in references for word in line.split()]
    hypotheses = [
        " ".join(
            word if chance.random() > 0.3 else chance.choice(words) for word in line.split() if chance.random() > 0.1
        )
        for line in references
    ]
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        written = map(split_compounds, lines) if split else lines
        (tmp_path / name).write_text("".join(f"{line}\n" for line in written))
    printed = succeed("score", "--sys", tmp_path / "hypotheses", "--ref", tmp_path / "references")
    found = score(bleu, hypotheses, references, tokenize="none", compound_split=split)
    assert f"BLEU4 = {found.value:.2f}, {found.detail.split(',')[0]} (BP=" in printed
    assert 5 < found.value < 95


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


@pytest.mark.parametrize(
    ("output", "right", "lengths"),
    [("a b c d " * 50_000, "d c b a " * 50_000, "200,000 and 200,000"), ("猫" * 5001, "犬" * 5000, "5,001 and 5,000")],
)
def test_documents_too_long_for_a_table(output: str, right: str, lengths: str) -> None:
    message = f"line 2 of the output: lines of {lengths} words are too long: at most 25,000,000 pairs of words"
    with pytest.raises(UserError, match=message):
        rouge(["a", output], Settings(["a", right]))
    # An output that repeats itself to its limit, of a short reference, is honest.
    assert rouge(["a " * 100_000], Settings(["a b"]))[0].value == pytest.approx(2 * 1 / (100_000 + 2) * 100)


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


def test_perplexity_of_what_fitted_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_language_model(tmp_path)  # takes 12 tokens
    options = ("--cpu", "--sample-break-mode", "complete", "--tokens-per-sample", 14)
    done = run("eval-lm", tmp_path, "--user-dir", USER_DIR, "--path", path, "--gen-subset", "valid", *options)
    (tmp_path / "log").write_text(done.stdout + done.stderr)
    assert main(["score", "--metric", "perplexity", "--eval-lm-log", str(tmp_path / "log")]) == 2
    assert re.search(r"log: \d+ samples were not scored", capsys.readouterr().err)
