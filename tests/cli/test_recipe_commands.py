"""Commands of recipes: an error takes one line and leaves no files."""

from pathlib import Path

import pytest

from ode_transformer.cli import main


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
