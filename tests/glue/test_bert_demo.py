"""The task of the BERT demonstration, and a complete demonstration on a small text."""

import random
from pathlib import Path

import pytest
import yaml
from forked_commands import run_quickly

from ode_transformer.cli import main
from ode_transformer.glue import bert_demo
from ode_transformer.glue.bert_demo import CLASSES, label_lines, shuffle
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory

WORDS = "we you they see hear like find the a old new green small dog cat house river tree today again".split()  # noqa: SIM905


def lines(count: int) -> list[str]:
    generator = random.Random(0)
    return [f"{' '.join(generator.choices(WORDS, k=7)).capitalize()} {number}." for number in range(count)]


def test_shuffling_keeps_the_words() -> None:
    generator = random.Random(1)
    for line in [*lines(50), "a b"]:
        shuffled = shuffle(line, generator)
        assert shuffled != line
        assert sorted(shuffled.split()) == sorted(line.split())


def test_no_line_is_in_the_text_and_the_task() -> None:
    text = lines(400)
    pretraining_lines, task = label_lines([*text, text[0], "too short"], 60, 40)
    assert [len(examples) for examples in task.values()] == [60, 40]
    assert len(pretraining_lines) == 301
    sorted_words = {" ".join(sorted(line.lower().rstrip(".").split())) for line in pretraining_lines}
    labelled = [example for examples in task.values() for example in examples]
    assert not any(" ".join(sorted(example.texts[0].split())) in sorted_words for example in labelled)
    assert [example.label for example in labelled] == [*CLASSES] * 50
    original = {line.lower().rstrip(".") for line in text}
    assert all((example.texts[0] in original) == (example.label == "original") for example in labelled)
    assert label_lines(text, 60, 40)[1] == label_lines(text[::-1], 60, 40)[1]


def test_too_few_lines() -> None:
    with pytest.raises(UserError, match="90 lines of 4 different words or more are too few: 200 are needed, twice"):
        label_lines(lines(90), 60, 40)


@pytest.mark.parametrize("text", ["text.txt", "other.txt"])
def test_a_text_of_the_user_is_kept(tmp_path: Path, capsys, text: str) -> None:
    for name in ("text.txt", "other.txt"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines(30_000)))
    before = (tmp_path / "text.txt").read_bytes()
    assert main(["bert-demo", "--text", str(tmp_path / text), "--output", str(tmp_path)]) == 2
    assert "choose another --output" in capsys.readouterr().err
    assert (tmp_path / "text.txt").read_bytes() == before


@pytest.mark.parametrize("folder", ["order", "order-text"])
def test_a_folder_of_the_user_is_kept(tmp_path: Path, capsys, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "notes").touch()
    text = tmp_path / "sentences.txt"
    text.write_text("".join(f"{line}\n" for line in lines(30_000)))
    assert main(["bert-demo", "--text", str(text), "--output", str(tmp_path)]) == 2
    assert f"{folder}: no preparation has made it" in capsys.readouterr().err
    assert (tmp_path / folder / "notes").exists()
    assert not (tmp_path / "text.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "none.txt"], "--text none.txt: missing"),
        (["--arch", "macaron_tiny"], "--arch macaron_tiny: what can be pre-trained is macaron_bert_base"),
    ],
)
def test_impossible_options_are_refused(arguments: list[str], message: str, capsys) -> None:
    assert main(["bert-demo", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_folder_is_locked(tmp_path: Path, capsys) -> None:
    (tmp_path / "text").write_text("\n".join(lines(60_000)) + "\n")
    with lock_directory(tmp_path / "out", "preparing data"):
        assert main(["bert-demo", "--text", str(tmp_path / "text"), "--output", str(tmp_path / "out")]) == 2
    assert "out: another process is preparing data here" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_a_complete_demonstration(tmp_path: Path, capfd, monkeypatch) -> None:
    run_quickly(monkeypatch)
    (tmp_path / "text").write_text("\n".join(lines(600)) + "\n")
    config = yaml.safe_load(bert_demo.CONFIG.read_text()) | {"pieces": 80, "train_lines": 60, "test_lines": 40}
    config["finetuning"]["max-epoch"] = 1
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(bert_demo, "CONFIG", tmp_path / "demo.yaml")
    arguments = ["--text", str(tmp_path / "text"), "--output", str(tmp_path / "out"), "--updates", "4"]
    arguments += ["--", "--encoder-layers", "1", "--encoder-ode-scheme", "heun"]
    assert main(["bert-demo", *arguments]) == 0
    printed = capfd.readouterr().out
    tuning = [line for line in printed.splitlines() if "--task sentence_prediction" in line]
    trained = [line for line in printed.splitlines() if line.startswith("+ fairseq-train")]
    assert len(trained) == 3
    assert all("--distributed-world-size 1 " in line for line in trained)
    assert ["--finetune-from-model" in line for line in tuning] == [True, False]
    assert all("--encoder-layers 1" in line and "--encoder-ode-scheme heun" in line for line in tuning)
    assert [line.split("accuracy")[0].strip() for line in printed.splitlines()[-2:]] == ["pre-trained", "from scratch"]
    assert main(["bert-demo", *arguments]) == 0
    assert "+ fairseq-train" not in capfd.readouterr().out
