"""Commands of recipes: an error takes one line and leaves no files."""

import subprocess
from pathlib import Path

import pytest
from commands_for_tests import COMMANDS
from fairseq.tokenizer import tokenize_line

from ode_transformer.cli import main
from ode_transformer.support.subword_models import SubwordEncoder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, on a machine without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the last line of a command that has to fail and to leave no files."""
    try:
        status = main(words)
    except SystemExit as error:  # argparse's
        status = error.code
    assert status == 2
    assert not Path("experiments").exists()
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "multi31k"], "train: error: multi31k: no such recipe; there are bert_pretraining, cnn_dm"),
        (["train", "ptb", "--arch", "macaron"], "train: error: --arch macaron: no architecture for language_modeling"),
        (["reproduce", "ptb", "--table", "Table 5"], "--table Table 5: not among the published results of ptb: Li"),
        (["train", "ptb", "--gpus", "1"], "train: error: --gpus 1: this machine has 0"),
        (["train", "ptb", "--", "--drop-out=0.2"], "arguments: --drop-out=0.2 (did you mean --dropout?)"),
        (["train", "ptb"], "train: error: experiments/ptb/corpus: not there; run ode-transformer prepare"),
    ],
)
def test_what_cannot_be_done(words: list[str], message: str, capsys) -> None:
    assert message in refused(capsys, *words)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"a\nb\rc\nd\n", "source: line 2 holds a carriage return, where fairseq-preprocess begins a new line"),
        (b"a\nb\n", "sides of different length: source has 2, target has 3"),
    ],
)
def test_raw_text_that_would_not_stay_parallel(source: bytes, message: str, capsys) -> None:
    Path("source").write_bytes(source)
    Path("target").write_bytes(b"a\r\nb\r\nd")
    assert message in refused(capsys, "prepare", "--check", "source", "target")
    assert main(["prepare", "--check", "target", "target"]) == 0
    assert capsys.readouterr().out == "3 lines each, as fairseq-preprocess counts them\n"


def test_words_that_fairseq_reads_as_symbols_are_named(capfd) -> None:
    Path("the text").write_text("a <pad>\nb\n</s> </s> <pad>\n<unk> x<s>\n", encoding="utf-8")
    assert main(["prepare", "--check", "the text"]) == 0
    errors = capfd.readouterr().err.splitlines()
    for symbol, numbers, line in zip(("</s>", "<pad>"), ("3", "1, 3"), errors, strict=True):
        assert line.startswith(f"warning: the text: {symbol} in line {numbers}, which fairseq reads as its symbol")
        subprocess.run(line[line.index("sed -i") :], shell=True, check=True)
    assert Path("the text").read_text() == "a <unk>\nb\n<unk> <unk> <unk>\n<unk> x<s>\n"


def test_spaces_at_which_subword_nmt_does_not_divide_are_named(tmp_path: Path, capfd) -> None:
    """Its pieces of "Nummer 28" with a no-break space, read by fairseq and joined, are one word; the advice helps."""
    words = "Nummer\xa028 x\u3000y\t!\n"
    texts = ["Hund Hund\n", words, "Hund\n", words]
    Path("the text").write_text("".join(texts), encoding="utf-8")
    subprocess.run(f"{COMMANDS}/subword-nmt learn-bpe --symbols 1 < 'the text' > codes", shell=True, check=True)
    encoder = SubwordEncoder("subword_nmt", Path("codes"))

    def as_fairseq_reads(line: str) -> str:
        return encoder.decode(" ".join(tokenize_line(encoder.encode(line))))

    assert as_fairseq_reads(words) == "Nummer28 xy!"
    capfd.readouterr()  # what subword-nmt printed
    assert main(["prepare", "--check", "the text"]) == 0
    out, err = capfd.readouterr()
    assert out == "4 lines each, as fairseq-preprocess counts them\n"
    for code, line in zip(("0009", "00A0", "3000"), err.splitlines(), strict=True):
        begin = f"warning: the text: U+{code} in line 2, 4, a space to fairseq and none to subword-nmt"
        assert line.startswith(begin)
        subprocess.run(line[line.index("sed -i") :], shell=True, check=True)
    cleaned = Path("the text").read_text(encoding="utf-8").splitlines()
    assert as_fairseq_reads(cleaned[1]) == "Nummer 28 x y !"
    assert main(["prepare", "--check", "the text"]) == 0
    assert capfd.readouterr().err == ""
