"""A small file of a stranger holds no machine: every door answers in one line, within five seconds and a gigabyte."""

import codecs
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batches import split_projections
from changed_checkpoints import as_args, rewrite
from doors import FAIRSEQS_DOORS, open_model
from limited_functions import answer

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.checkpoints.stored_sizes import MAX_LETTERS
from ode_transformer.cli import main

State = dict[str, Any]


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untrained.parent, tmp_path / "model"))


class Call:
    """Unpickled, it is the result of a function."""

    state: object = None

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[object, ...]:
        return self.call if self.state is None else (*self.call, self.state)


def doubled(times: int) -> list[Any]:
    """A list that holds another twice, which holds another twice, so many times."""
    nested: list[Any] = []
    for _ in range(times):
        nested = [nested, nested]
    return nested


def in_model(state: State, **options: Any) -> None:
    vars(state["cfg"]["model"]).update(options)


def older_projections(state: State) -> None:
    state["model"] = split_projections(state["model"])
    for name, tensor in state["model"].items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            state["model"][name] = torch.zeros(1, 1).expand(10**8, tensor.size(1))


def many_names(state: State) -> None:
    large = torch.zeros(10**6)
    state["model"] |= {f"encoder.more.{number}": large for number in range(25_000)}


def empty_array(shape: tuple[int, ...]) -> Call:
    """An array of NumPy without a number, as its pickle."""
    array = Call(np._core.multiarray._reconstruct, np.ndarray, (0,), b"b")
    array.state = (1, shape, np.dtype("f8"), False, Call(codecs.encode, "", "latin1"))
    return array


def change_options(**options: Any) -> Callable[[State], None]:
    return lambda state: in_model(state, **options)


def put(value: object) -> Callable[[State], None]:
    return lambda state: state.update(extra_state=value)


STATES: dict[str, tuple[Callable[[State], object], str]] = {
    "repeated numbers": (
        lambda state: state["model"].update({"encoder.layer_norm.bias": torch.zeros(1).expand(10**9)}),
        "encoder.layer_norm.bias has 1,000,000,000 numbers, of which it stores fewer",
    ),
    "repeated numbers of an earlier version": (older_projections, "of which it stores fewer"),
    "repeated numbers of the optimizer": (put({"exp_avg": [torch.zeros(1).expand(10**9)]}), "exp_avg has "),
    "many names": (many_names, "each of its tensors has more than 64 names"),
    "a claimed tensor": (put(Call(torch.FloatTensor, 10**9)), "it calls torch FloatTensor"),
    "no numbers": (
        lambda state: state["model"].update({"encoder.layer_norm.bias": torch.empty(10**12, device="meta")}),
        "encoder.layer_norm.bias is no plain tensor",
    ),
    "nested options": (change_options(encoder_layers=doubled(60)), "what is nested in it has no end"),
    "nested options of old files": (lambda state: as_args(state, dropout=doubled(60)), "nested in it has no end"),
    "nested metrics": (put(doubled(60)), "what is nested in it has no end"),
    "zeros": (put(Call(bytearray, 10**10)), "it holds bytearray"),
    "copies": (put((large := list(range(50_000))) and [Call(set, large) for _ in range(5000)]), "has no end"),
    "lists of nothing": (put(empty_array((10**9, 0))), ""),
    "many parameters": (change_options(encoder_ffn_embed_dim=2**16), "its options describe far more parameters"),
}


def change_archive(path: Path, change: Callable[[zipfile.ZipFile, list[tuple[str, bytes]]], None]) -> None:
    """Write a checkpoint's archive anew from its records, by their names."""
    with zipfile.ZipFile(path) as archive:
        records = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w") as archive:
        change(archive, records)


def compress(method: int) -> Callable[[zipfile.ZipFile, list[tuple[str, bytes]]], None]:
    def change(archive: zipfile.ZipFile, records: list[tuple[str, bytes]]) -> None:
        for name, content in [*records, (f"{records[0][0]}/zeros", bytes(10**8))]:
            archive.writestr(name, content, method)

    return change


def overlap(archive: zipfile.ZipFile, records: list[tuple[str, bytes]]) -> None:
    for name, content in [*records, ("model/large", bytes(10**6))]:
        archive.writestr(name, content)
    for number in range(20_000):
        again = zipfile.ZipInfo(f"model/{number:05}")
        large = archive.getinfo("model/large")
        for name in ("header_offset", "CRC", "compress_size", "file_size"):
            setattr(again, name, getattr(large, name))
        archive.filelist.append(again)


def twice(archive: zipfile.ZipFile, records: list[tuple[str, bytes]]) -> None:
    for name, content in [*records, (records[0][0].upper(), records[0][1])]:
        archive.writestr(name, content)


def replace_pickle(content: bytes) -> Callable[[zipfile.ZipFile, list[tuple[str, bytes]]], None]:
    def change(archive: zipfile.ZipFile, records: list[tuple[str, bytes]]) -> None:
        for name, old in records:
            archive.writestr(name, content if name.endswith("data.pkl") else old)

    return change


PAIR_OF_PAIRS = b")q\x00" + b"h\x00\x86q\x00" * 60  # a tuple that holds another twice, which holds another twice …
ARCHIVES: dict[str, tuple[Callable[[zipfile.ZipFile, list[tuple[str, bytes]]], None], str]] = {
    "deflated": (compress(zipfile.ZIP_DEFLATED), "it is compressed"),
    "bzip2": (compress(zipfile.ZIP_BZIP2), "it is compressed"),
    "overlapping": (overlap, "its records overlap"),
    "two of one name": (twice, "two of its records have one name"),
    "a nested key": (replace_pickle(b"\x80\x02}" + PAIR_OF_PAIRS + b"K\x01s."), "nested in it has no end"),
    "a nested function": (replace_pickle(b"\x80\x02" + PAIR_OF_PAIRS + b")R."), "it calls what is no function"),
}


def command(*words: object) -> Callable[[Path], object]:
    """A command of ours; "FILE" is the checkpoint."""
    return lambda path: main([str(path) if word == "FILE" else str(word) for word in words])


def open_by(door: str) -> Callable[[Path], object]:
    return lambda path: open_model(door, path.parent)


OUTPUT = "output.pt"
DOORS: dict[str, Callable[[Path], object]] = {
    "verify": command("checkpoint", "verify", "FILE"),
    "average": command("checkpoint", "average", "FILE", "--output", OUTPUT),
    "convert": command("checkpoint", "convert", "FILE", "--output", OUTPUT),
    "translate": command("translate", "--path", "FILE", "--input", os.devnull),
    "export": command("export", "--to", "huggingface", "--path", "FILE", "--output", OUTPUT),
    "serve": command("serve", "FILE", "--port", "0"),
    **{door: open_by(door) for door in FAIRSEQS_DOORS},
}
BUILDING = ("translate", "export", "serve", *FAIRSEQS_DOORS)


def check_doors(path: Path, message: str, doors: dict[str, Callable[[Path], object]]) -> None:
    for door, enter in doors.items():
        said = answer(lambda enter=enter: enter(path)).strip()
        assert message in said, door
        assert (f"{path}: refused: " in said) == bool(message), door
        assert "\n" not in said, door
    assert not Path(OUTPUT).exists()


@pytest.mark.parametrize("name", STATES)
def test_what_a_checkpoint_claims(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    change, message = STATES[name]
    rewrite(folder, change)
    assert (folder / "model.pt").stat().st_size < 10**7
    doors = DOORS if name in ("repeated numbers", "nested options") else {"verify": DOORS["verify"]}
    if name == "many parameters":
        doors = {door: DOORS[door] for door in BUILDING}
    check_doors(folder / "model.pt", message, doors)


@pytest.mark.parametrize("name", ARCHIVES)
def test_what_an_archive_claims(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    change, message = ARCHIVES[name]
    change_archive(folder / "model.pt", change)
    check_doors(folder / "model.pt", message, {"verify": DOORS["verify"]})


def test_parameters_with_many_names_and_parts_of_one_storage_are_read(folder: Path) -> None:
    """A multilingual model has a name for each of its pairs of languages; a flat tensor has one for each parameter."""
    flat = torch.arange(1000.0)
    parts = {f"part.{number}": part.view(10, 10) for number, part in enumerate(flat.split(100))}
    shared = {f"models.pair{number}.weight": flat for number in range(40)}
    rewrite(folder, lambda state: state["model"].update(parts | shared))
    model = load_checkpoint(folder / "model.pt")["model"]
    assert all(torch.equal(model[name], tensor) for name, tensor in (parts | shared).items())


DICTIONARIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "one line": (lambda path: path.write_bytes(b"a" * 10**8), f"refused: line 1 has more than {MAX_LETTERS:,} bytes"),
}


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    make, message = DICTIONARIES[name]
    dictionary = folder / "dict.de.txt"
    dictionary.unlink()
    make(dictionary)
    for door in BUILDING:
        said = answer(lambda door=door: DOORS[door](folder / "model.pt")).strip()
        assert f"{dictionary}: {message}" in said, door
        assert "\n" not in said, door


def test_words_of_any_length_that_has_a_reason(folder: Path) -> None:
    """An address is a word of word-level text."""
    with open(folder / "dict.de.txt", "a", encoding="utf-8") as dictionary:
        dictionary.write(f"https://example.org/{'a' * 2000} 1\n")
    rewrite(folder, lambda state: state["model"].update(enlarged(state["model"])))
    assert open_model("translate", folder)


def enlarged(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Matrices of the decoder's words, with a word more."""
    names = [name for name in parameters if name.startswith("decoder.") and "embed_tokens" in name]
    names += [name for name in parameters if name == "decoder.output_projection.weight"]
    return {name: torch.cat([parameters[name], parameters[name][-1:]]) for name in names}
