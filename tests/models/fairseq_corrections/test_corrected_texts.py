"""Faults of the pinned fairseq's dictionaries, each shown in its own function and gone with the correction."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import EOS, PAD
from commands_for_tests import USER_DIR, Text, run, train
from fairseq.data import (
    Dictionary,
)
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.checkpoints.stored_sizes import MAX_LETTERS
from ode_transformer.cli.command import main
from ode_transformer.models.trained_model import load_trained_model
from ode_transformer.support.errors import OptionError, UserError


def test_a_dictionary_with_two_lines_swapped_is_refused(text: Text, tmp_path: Path) -> None:
    checkpoint = train(text, tmp_path, "ode_transformer_rk2_tiny", 1)
    data = Path(shutil.copytree(text.data, tmp_path / "data"))
    lines = (data / "dict.de.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "dict.de.txt").write_text("".join([lines[1], lines[0], *lines[2:]]), encoding="utf-8")
    message = f"the model was trained with another target dictionary than that of {data}"
    words = ("--user-dir", USER_DIR, "--cpu", "--path", checkpoint, "--gen-subset", "valid")
    assert run("generate", data, *words).stderr.splitlines()[-1] == f"error: {message}"
    with pytest.raises(UserError, match=f"checkpoint_last.pt: {message}"):
        load_trained_model(checkpoint, data)
    load_trained_model(checkpoint, text.data)
    assert load_checkpoint(checkpoint)["task_state"]["languages"] == {"source_lang": "en", "target_lang": "de"}
    shutil.copy(checkpoint, data.parent / "model.pt")
    for language in ("en", "de"):
        shutil.copy(text.data / f"dict.{language}.txt", data.parent)
    load_trained_model(data.parent / "model.pt", data.parent)  # where no other file's name tells the languages


def test_a_task_remembers_its_dictionaries(pinned: Callable[[Any, str], None]) -> None:
    def task(*words: str) -> TranslationTask:
        source = Dictionary()
        for word in words:
            source.add_symbol(word)
        return TranslationTask(TranslationConfig(data="data"), source, Dictionary())

    state = task("a", "b").state_dict()
    task("a", "b").load_state_dict(state)
    with pytest.raises(OptionError, match="trained with another source dictionary than that of data"):
        task("b", "a").load_state_dict(state)
    pinned(FairseqTask, "load_state_dict")
    task("b", "a").load_state_dict(state)
    pinned(FairseqTask, "state_dict")
    assert not {"dictionaries", "languages"} & task("a", "b").state_dict().keys()


@pytest.mark.parametrize("command", ["generate", "interactive", "validate", "translate"])
def test_languages_in_the_other_direction_are_refused(command: str, untrained: Path, capsys) -> None:
    """With a joint dictionary, whose words are those of both directions."""
    folder, languages = untrained.parent, ("--source-lang", "de", "--target-lang", "en")
    if command == "translate":
        assert main(["translate", "--path", str(untrained), "--input", __file__, *languages]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
    else:
        words = (
            "--user-dir",
            USER_DIR,
            "--cpu",
            "--path",
            untrained,
            "--task",
            "translation",
            "--batch-size",
            1,
            *languages,
        )
        done = run(command, folder, *words, stdin="a\n")
        assert done.returncode != 0
        line = done.stderr.splitlines()[-1]
    message = "error: --source-lang de --target-lang en: the model translates en to de"
    assert line.replace(f"{untrained}: ", "").endswith(message)


def test_names_of_symbols_in_a_text_are_unknown_words(pinned: Callable[[Any, str], None]) -> None:
    words = Dictionary()
    word, unknown = words.add_symbol("a"), words.unk()
    line = "<pad> a </s> <unk> a<pad> <s>"
    expected = [unknown, word, unknown, unknown, unknown, unknown, EOS]
    assert words.encode_line(line, add_if_not_exist=False).tolist() == expected
    with_symbols = [words.bos(), word, EOS]  # as RoBERTa's interface writes them
    assert words.encode_line("<s> a </s>", append_eos=False).tolist() == with_symbols
    pinned(Dictionary, "encode_line")
    assert words.encode_line(line, add_if_not_exist=False).tolist()[:3] == [PAD, word, EOS]


def test_a_dictionary_is_a_file_of_lines(pinned: Callable[[Any, str], None], tmp_path: Path) -> None:
    endless = tmp_path / "dict.en.txt"
    endless.write_text(f"{'a' * MAX_LETTERS} 1\n")
    with pytest.raises(UserError, match="refused: line 1 has more than"):
        Dictionary.load(str(endless))
    with pytest.raises(UserError, match="not a regular file"):
        Dictionary.load(os.devnull)
    pinned(Dictionary, "add_from_file")
    assert len(Dictionary.load(str(endless))) == 5
    assert len(Dictionary.load(os.devnull)) == 4
