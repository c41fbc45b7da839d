"""One line of translation for each line of text, or one line of error and nothing written."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from select import select
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import sentencepiece
import torch
from changed_checkpoints import rewrite
from ended_processes import wait_for_end
from plain_models import ANY_NAME, MAX_POSITIONS, PAIRS

from ode_transformer.cli.command import main
from ode_transformer.decoding import search_processes, translator
from ode_transformer.decoding import translate as translation
from ode_transformer.support.errors import UserError
from ode_transformer.support.subword_models import SubwordEncoder, choose_subword_model

ROOT = str(Path(__file__).parents[2])
SHORT = ("--max-len-b", 12)
SOURCES = [source for source, _ in PAIRS]

Command = Callable[..., bytes]


@pytest.fixture
def command(untrained: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Runs the command on a text as standard input and returns what it wrote to standard output."""

    def run(text: str, *options: object) -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["translate", "--path", str(untrained), "--cpu", *map(str, (*SHORT, *options))]) == 0
        out, err = capsysbinary.readouterr()
        assert all(line.startswith(b"  lines translated: ") for line in err.splitlines())  # after 5 seconds
        return out

    return run


@pytest.fixture
def refused(untrained: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]):
    """Runs the command, which has to refuse its input, and returns the line of error without its beginning."""

    def run(text: str, *options: object, path: Path = untrained) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["translate", "--path", str(path), *map(str, (*SHORT, *options))]) == 2
        out, err = capsysbinary.readouterr()
        assert out == b""
        (line,) = err.decode().splitlines()
        return line.removeprefix("ode-transformer translate: error: ")

    return run


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    """A copy of the model's folder, to do harm to."""
    return shutil.copytree(untrained.parent, tmp_path / "model")


def test_a_translation_does_not_depend_on_the_other_lines(command: Command, monkeypatch, untrained: Path) -> None:
    texts = [f"{source}\n" for source in SOURCES[:3]]
    by_length = ("--max-len-a", 0.5, "--max-len-b", 3)  # which ends most of an untrained model's
    alone = [command(text, *by_length) for text in texts]
    for options in (("--batch-size", 3), ("--max-tokens", 40)):
        assert command("".join(texts), *by_length, *options) == b"".join(alone)
    monkeypatch.setattr(translation, "CHUNK_SIZE", 2)
    assert command("".join(reversed(texts)), *by_length) == b"".join(reversed(alone))


def test_a_folder_of_any_name(untrained: Path, tmp_path: Path, command: Command) -> None:
    folder = shutil.copytree(untrained.parent, tmp_path / ANY_NAME)
    assert command("a b\n", "--path", folder / "model.pt") == command("a b\n")
    assert command("a b\n", "--path", folder) == command("a b\n")


def test_models_of_other_words_are_no_ensemble(untrained: Path, folder: Path, refused) -> None:
    first, second, *rest = (folder / "dict.de.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "dict.de.txt").write_text("".join([second, first, *rest]), encoding="utf-8")
    message = refused("a\n", path=Path(f"{untrained}:{folder / 'model.pt'}"))
    assert message == f"{folder / 'model.pt'} and {untrained}: no ensemble, their languages or dictionaries differ"


def test_a_model_whose_options_name_no_languages(folder: Path, command: Command, refused) -> None:
    """fairseq infers them from the names of the data's files, and its options do not keep them."""
    path, languages = folder / "model.pt", {"source_lang": "en", "target_lang": "de"}
    rewrite(folder, lambda state: state["cfg"]["task"].update(dict.fromkeys(languages)))
    message = f"{path}: it does not say which of de and en is its source: say --source-lang and --target-lang"
    assert refused("a\n", path=path) == message
    flags = ("--source-lang", "en", "--target-lang", "de")
    assert command("a b\n", "--path", path, *flags) == command("a b\n")
    rewrite(folder, lambda state: state.update(task_state={"languages": languages}))
    assert command("a b\n", "--path", path) == command("a b\n")
    swapped = ("--source-lang", "de", "--target-lang", "en")
    assert refused("a\n", *swapped, path=path).endswith(f"{' '.join(swapped)}: the model translates en to de")


def test_several_processes_translate_the_same(command: Command, refused, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"{source}\n" for source in SOURCES[:6]) + "\n"
    expected = command(text, "--batch-size", 2, "--processes", 1)
    assert command(text, "--batch-size", 2, "--processes", 2) == expected
    monkeypatch.setattr(translation, "CHUNK_SIZE", 3)
    assert command(text, "--batch-size", 2, "--processes", 2) == expected
    monkeypatch.setattr(search_processes, "_prepare_process", lambda: os.kill(os.getpid(), signal.SIGKILL))
    message = refused(text, "--cpu", "--batch-size", 2, "--processes", 2)
    assert message == "one of 2 processes that translate was killed, perhaps for want of memory (--processes 1)"


def test_empty_lines_stay_empty_and_a_last_line_needs_no_end(command: Command, monkeypatch) -> None:
    first, second = (command(f"{source}\n") for source in SOURCES[:2])
    # U+200B and U+FEFF are nothing to sentencepiece, and control characters are spaces.
    text = f"\n{SOURCES[0]}\n \t\x85\x00\n\u200b\n\r\n{SOURCES[1]}"
    assert command(text) == b"\n" + first + b"\n\n\n" + second
    assert command(f"\ufeff{SOURCES[0]}\r\n{SOURCES[1]}\n\n") == first + second + b"\n"
    monkeypatch.setattr(translator.Translator, "generate", None)  # empty lines need no search
    assert [command(text) for text in ("", "\n \n\x0b")] == [b"", b"\n\n\n"]


def test_a_source_is_cut_as_in_training(folder: Path, command: Command) -> None:
    rewrite(folder, lambda state: state["cfg"]["task"].update(truncate_source=True))
    options = ("--path", folder / "model.pt", "--bpe", "none")
    sources = ["▁The ▁dog " * MAX_POSITIONS, "▁The ▁dog " * (MAX_POSITIONS // 2 - 1) + "▁The"]
    assert len(set(command("\n".join(sources), *options).splitlines())) == 1


def test_a_subword_model_of_another_name_is_found_and_named(folder: Path, refused, capsysbinary, monkeypatch) -> None:
    pieces = (folder / "sentencepiece.bpe.model").rename(folder / "my.model")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"The dog sleeps.\n")))
    assert main(["translate", "--path", str(folder / "model.pt"), "--cpu", *map(str, SHORT)]) == 0
    assert capsysbinary.readouterr().err == f"subword model: {pieces} (sentencepiece)\n".encode()
    hub = torch.hub.load(ROOT, "translation_model", str(folder), source="local", trust_repo=True)
    divided = sentencepiece.SentencePieceProcessor(model_file=str(pieces)).encode("The dog sleeps.", out_type=str)
    assert hub.bpe.encode("The dog sleeps.").split() == divided
    (folder / "codes.txt").write_text("#version: 0.2\nl o\n")
    message = refused("a\n", path=folder / "model.pt")
    assert message.endswith("which is the subword model, my.model, codes.txt? Name it with --bpe and --bpe-model")


def test_bad_text(tmp_path: Path, refused, monkeypatch) -> None:
    # Nothing is translated before everything is checked.
    monkeypatch.setattr(translator.Translator, "generate", None)
    file, output = tmp_path / "text", tmp_path / "output"
    file.write_bytes(b"good\nb\xffd\n")
    output.write_bytes(b"old")
    files = ("--input", file, "--output", output)
    assert refused("", "--bpe", "none", *files) == f"{file}: line 2 is not UTF-8: byte 2 of it is 0xff"
    assert output.read_bytes() == b"old"


def test_a_line_that_is_too_long_has_an_empty_output(
    untrained: Path, command: Command, capsysbinary, tmp_path: Path
) -> None:
    file, output, options = tmp_path / "text", tmp_path / "output", ("--bpe", "none", "--cpu", *map(str, SHORT))
    lines, long = ["▁The ▁dog", "", "▁a"], "▁The " * MAX_POSITIONS
    expected = command("".join(f"{line}\n" for line in lines), "--bpe", "none").decode().splitlines()
    file.write_text("\n".join([long, *lines, "▁The " * (MAX_POSITIONS - 1), long]))
    words = ["translate", "--path", str(untrained), "--input", str(file), "--output", str(output), *options]
    assert main(words) == 0
    first, *short, at_the_limit, last = output.read_text().splitlines()
    assert (first, short, last) == ("", expected, "")
    assert at_the_limit
    limit = f"the model takes at most {MAX_POSITIONS} with the end symbol"
    warning = f"warning: {file}: too many tokens in line 1, 6, {limit}: empty output\n"
    assert capsysbinary.readouterr().err.decode() == warning
    assert main([*words, "--max-tokens", "3"]) == 0
    warning = f"warning: {file}: too many tokens in line 1, 5, 6, more than --max-tokens 3 with the end symbol"
    assert f"{warning}: empty output\n" in capsysbinary.readouterr().err.decode()
    assert output.read_text() == "".join(f"{line}\n" for line in ["", *expected, "", ""])


def test_files_instead_of_standard_input_and_output(tmp_path: Path, command: Command) -> None:
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_text("The dog sleeps.\n\nThe cat sleeps.")
    expected = command(text.read_text())
    output.write_bytes(b"old")
    assert command("not this", "--input", text, "--output", output) == b""
    assert output.read_bytes() == expected
    assert sorted(os.listdir(tmp_path)) == ["output", "text"]


@pytest.mark.parametrize("processes", [1, 2])
def test_lines_of_a_stopped_command_stay_and_the_others_follow(
    tmp_path: Path, untrained: Path, command: Command, refused, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    text, output, part = tmp_path / "a text", tmp_path / "output", tmp_path / "output.part"
    text.write_text("".join(f"{source}\n" for source in SOURCES[:6]))
    expected = command(text.read_text())
    output.write_bytes(b"old")
    options = ("--cpu", "--input", text, "--output", output, "--processes", processes)
    generate = translator.Translator.generate

    def stop_at_the_last(hub: Any, sources: list[torch.Tensor], **search: object) -> Any:
        if any(torch.equal(source, hub.encode(SOURCES[5])) for source in sources):
            raise UserError("stopped")
        return generate(hub, sources, **search)

    with monkeypatch.context() as patch:
        patch.setattr(translation, "CHUNK_SIZE", 2)
        patch.setattr(translator.Translator, "generate", stop_at_the_last)
        assert refused("", *options) == "stopped"
    assert (output.read_bytes(), part.read_bytes()) == (b"old", b"".join(expected.splitlines(keepends=True)[:4]))
    part.write_bytes(part.read_bytes() + b"the beginning")  # of a line, as a full disk may leave it
    message = refused("", *options)
    assert message.startswith(f"{part}: a stopped translation, 4 lines. To go on: truncate -s ")
    line = message.partition("To go on: ")[2].removesuffix("; or remove it")
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(["bash", "-c", line], check=True, env=environment, timeout=600)
    assert output.read_bytes() == expected
    assert sorted(os.listdir(tmp_path)) == ["a text", "output"]


def test_pieces_of_subword_nmt(tmp_path: Path) -> None:
    codes = tmp_path / "bpecodes"
    codes.write_text("#version: 0.2\nl o\nlo w</w>\n")
    for model in (choose_subword_model("subword_nmt", codes, Path("x")), choose_subword_model(None, None, tmp_path)):
        bpe = SubwordEncoder(*model)
        assert bpe.encode("low lot") == bpe.encode(translation.normalize_spaces("low\xa0lot")) == "low lo@@ t"
        assert bpe.decode("low lo@@ t") == "low lot"
    assert choose_subword_model("none", None, tmp_path) is None
    assert choose_subword_model(None, None, tmp_path / "x") is None


def test_at_a_terminal_each_line_is_answered(untrained: Path, command: Command, monkeypatch) -> None:
    expected = command("The dog sleeps.\n").replace(b"\n", b"\r\n")
    master, slave = os.openpty()
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        monkeypatch.setattr(sys, stream, os.fdopen(slave, mode, closefd=False))
    answers: list[bytes] = []

    def type_lines() -> None:
        for typed in (b"", b"The dog sleeps.\n", b"\xff\n", b"\x04"):
            os.write(master, typed)
            shown = b""
            while not shown.endswith(b"\r\n" if typed == b"\x04" else b"en> ") and select([master], [], [], 60)[0]:
                shown += os.read(master, 1000)
            answers.append(shown)

    typist = Thread(target=type_lines)
    typist.start()
    assert main(["translate", "--path", str(untrained), "--cpu", *map(str, SHORT)]) == 0
    typist.join()
    first, translated, refusal, last = answers
    assert first == b"en to de, one sentence per line; Ctrl-D ends\r\nen> "
    assert translated == b"The dog sleeps.\r\n" + expected + b"en> "
    assert b"line 1 is not UTF-8" in refusal
    assert last == b"\r\n"


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing dictionary": (lambda f: (f / "dict.de.txt").unlink(), "dict.de.txt: missing, a dictionary of .*model.pt"),
    "another dictionary": (
        lambda f: (f / "dict.de.txt").write_text("".join(f"w{n} 1\n" for n in range(50))),
        "model.pt: its parameters do not fit its options and dictionaries: .*size mismatch",
    ),
}


@pytest.mark.parametrize(("harm", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_files(folder: Path, tmp_path: Path, refused, harm: Callable[[Path], object], message: str) -> None:
    harm(folder)
    output = tmp_path / "output"
    assert re.search(message, refused("The dog sleeps.\n", "--output", output, path=folder / "model.pt"))
    assert not output.exists()


def search_without_end(numbers: Connection) -> None:
    """Search in two processes, each of which sends its number and then waits."""

    def generate(sources: list[torch.Tensor], **search: object) -> None:
        numbers.send(os.getpid())
        time.sleep(600)

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which its processes must not inherit
    hub: Any = SimpleNamespace(generate=generate, batch_size=1)
    list(search_processes.search_in_processes(hub, [torch.tensor([1])] * 2, processes=2, chunk_size=2))


def test_processes_of_a_search_end_with_the_one_that_started_them() -> None:
    processes = get_context("spawn")
    reader, writer = processes.Pipe(duplex=False)
    starter = processes.Process(target=search_without_end, args=(writer,))
    starter.start()
    writer.close()
    numbers: list[int] = []
    try:
        numbers += [reader.recv() for _ in range(2)]
        starter.kill()
        for number in numbers:
            wait_for_end(number)
    finally:
        starter.kill()
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    starter.join()
    assert starter.exitcode == -signal.SIGKILL
