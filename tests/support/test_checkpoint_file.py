"""Reading only what is safe, and writing all or nothing."""

import argparse
import os
import pickle
import random
import stat
import zipfile
from pathlib import Path

import pytest
import torch
from checkpoint_for_tests import flip, flip_in_a_tensor

from ode_transformer.support.checkpoint_file import load_checkpoint, save_checkpoint
from ode_transformer.support.errors import UserError


class Intruder:
    """Unpickled without care, it creates the file ``path``."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


@pytest.mark.parametrize("zipped", [True, False])
def test_an_intruder_does_not_run(tmp_path: Path, zipped: bool):
    path, trace = tmp_path / "evil.pt", tmp_path / "trace"
    torch.save({"model": {}, "args": Intruder(trace)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"evil\.pt: refused: it holds \w+\.system"):
        load_checkpoint(path)
    assert not trace.exists()


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_plain_pickle_does_not_run(tmp_path: Path, protocol: int, recwarn: pytest.WarningsRecorder):
    path, trace = tmp_path / "evil.pt", tmp_path / "trace"
    path.write_bytes(pickle.dumps(Intruder(trace), protocol=protocol))
    with pytest.raises(UserError, match=r"evil\.pt"):
        load_checkpoint(path)
    assert not trace.exists()
    assert not recwarn.list
    pickle.loads(path.read_bytes())
    assert trace.exists()  # without care the file is dangerous indeed


def test_a_pickle_in_upper_case_is_looked_into(tmp_path: Path):
    path, evil = tmp_path / "model.pt", tmp_path / "evil.pt"
    torch.save({"model": {}, "args": random.Random(1)}, path)
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(evil, "w") as renamed:
        for entry in whole.infolist():
            renamed.writestr(entry.filename.replace("data.pkl", "data.PKL"), whole.read(entry))
    with pytest.raises(UserError, match=r"refused: it holds random\.Random"):
        load_checkpoint(evil)


def test_any_other_class_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "other.pt"
    torch.save({"model": {}, "args": random.Random(1)}, path)
    with pytest.raises(UserError, match=r"refused: it holds random\.Random, and loading that could run code"):
        load_checkpoint(path)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_truncated(tmp_path: Path, zipped: bool, kept: float):
    path = tmp_path / "cut.pt"
    torch.save({"model": {"w": torch.ones(500)}}, path, _use_new_zipfile_serialization=zipped)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(UserError, match=r"cut\.pt: broken or truncated"):
        load_checkpoint(path)
    path.write_text("hello world\n")
    with pytest.raises(UserError, match=r"cut\.pt: broken or truncated"):
        load_checkpoint(path)


def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path: Path):
    path, numbers = tmp_path / "flipped.pt", random.Random(1)
    weights = {"a": torch.randn(50), "b": torch.randn(5).half()}
    torch.save({"args": argparse.Namespace(arch="x"), "model": weights}, path)
    whole, refused = path.read_bytes(), 0
    for _ in range(300):
        path.write_bytes(whole)
        flip(path, numbers.randrange(8 * len(whole)))
        try:
            state = load_checkpoint(path)
        except UserError as error:
            assert str(error) == f"{path}: broken or truncated"  # noqa: PT017
            refused += 1
        else:  # in the filling between the archive's entries, or in the time of a file
            assert state["args"] == argparse.Namespace(arch="x")
            assert all(torch.equal(state["model"][name], weight) for name, weight in weights.items())
    assert 150 < refused < 300


def test_a_flipped_bit_of_a_tensor_is_noticed(tmp_path: Path):
    path = tmp_path / "flipped.pt"
    weights = torch.randn(1000)
    torch.save({"model": {"w": weights}}, path)
    flip_in_a_tensor(path)
    assert torch.load(path)["model"]["w"].ne(weights).sum() == 1  # torch itself does not
    with pytest.raises(UserError, match=r"flipped\.pt: broken or truncated"):
        load_checkpoint(path)


def test_an_entry_marked_as_a_directory_is_noticed(tmp_path: Path):
    path = tmp_path / "flipped.pt"
    torch.save({"model": {"w": torch.randn(10)}}, path)
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
    attributes = path.read_bytes().index(b"PK\x01\x02", start + 1) + 38  # of the second entry
    flip(path, 8 * attributes + 4)
    with pytest.raises(UserError, match=r"flipped\.pt: broken or truncated"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "has no 'model'"),
        ({"weight": torch.ones(1)}, "has no 'model'"),
        ({"model": {"w": 3}}, "model entry 'w' is not a tensor"),
    ],
)
def test_not_fairseq(tmp_path: Path, content: object, message: str):
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(UserError, match=message):
        load_checkpoint(tmp_path / "a.pt")


def test_written_file_is_whole_and_readable_by_others_as_usual(tmp_path: Path):
    path, usual = tmp_path / "a.pt", tmp_path / "usual"
    usual.touch()
    save_checkpoint({"model": {"w": torch.ones(2)}}, path)
    assert load_checkpoint(path)["model"]["w"].tolist() == [1, 1]
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.pt", "usual"]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (OSError(28, "No space left on device"), UserError),
        (RuntimeError("write failed"), UserError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure, raised):
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")

    def save(state, file):
        file.write(b"half")
        raise failure

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(raised, match=r"a\.pt: could not be written" if raised is UserError else None):
        save_checkpoint({"model": {}}, path)
    assert [(item.name, item.read_bytes()) for item in tmp_path.iterdir()] == [("a.pt", b"old")]
