"""Averaging of checkpoints: which files, which numbers, and what stays intact when something goes wrong."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_checkpoints import flip_in_a_tensor
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ode_transformer.checkpoints.averaging import average_checkpoints, best_checkpoints, last_checkpoints
from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.cli.command import main
from ode_transformer.support.errors import UserError


def write(path: Path, model: dict[str, torch.Tensor] | None = None, maximise: bool | None = None) -> Path:
    """A small checkpoint of fairseq's form."""
    state = {
        "args": None,
        "cfg": {"model": argparse.Namespace(arch="transformer_tiny"), "checkpoint": {}},
        "model": {"weight": torch.zeros(2)} if model is None else model,
        "optimizer_history": [{"num_updates": 7}],
        "last_optimizer_state": {"state": {0: torch.zeros(1000)}},
    }
    if maximise is not None:
        state["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"] = maximise
    torch.save(state, path)
    return path


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_last_by_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    epochs, updates = (2, 9, 10), ((2, 1000), (2, 1500), (10, 9000))
    others = ("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint11.pt.tmp")
    written = [*(f"checkpoint{epoch}.pt" for epoch in epochs), *(f"checkpoint_{e}_{u}.pt" for e, u in updates)]
    for name in (*written, *others):
        (tmp_path / name).touch()
    assert names(last_checkpoints(tmp_path, 2, "epoch", None)) == ["checkpoint9.pt", "checkpoint10.pt"]
    assert names(last_checkpoints(tmp_path, 1, "update", 1499)) == ["checkpoint_2_1000.pt"]
    assert len(last_checkpoints(tmp_path, 6)) == 3
    assert "warning: " in (warning := capsys.readouterr().err)
    assert "--last 6: 3 epoch checkpoints; there are 3 of --by epoch, 3 of --by update" in warning
    with pytest.raises(UserError, match="--last 6: 0 epoch checkpoints up to epoch 1; there are 3"):
        last_checkpoints(tmp_path, 6, until=1)
    with pytest.raises(UserError, match="--best 1: 0 checkpoints of --keep-best-checkpoints"):
        best_checkpoints(tmp_path, 1)


@pytest.mark.parametrize(
    ("of_older_form", "maximise", "metric", "values", "expected"),
    [
        # Three decimals of value; the digits after them only keep names apart.
        (False, False, "nll_loss", ["9.5000", "10.0001", "12.25012"], ["10.0001", "9.5000"]),
        (False, True, "score", ["-0.5000", "-1.5000", "0.2500"], ["-0.5000", "0.2500"]),
        (True, True, "bleu", ["1.0000", "3.0000", "2.0000"], ["2.0000", "3.0000"]),
    ],
)
def test_best_goes_in_the_direction_that_the_run_saved(
    tmp_path: Path, of_older_form: bool, maximise: bool, metric: str, values: list[str], expected: list[str]
):
    for value in values:
        path = write(tmp_path / f"checkpoint.best_{metric}_{value}.pt", maximise=maximise)
        if of_older_form:
            torch.save({"args": argparse.Namespace(maximize_best_checkpoint_metric=maximise), "model": {}}, path)
    assert names(best_checkpoints(tmp_path, 2)) == [f"checkpoint.best_{metric}_{value}.pt" for value in expected]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e4, 1e4, width=16), min_size=3, max_size=3), min_size=1, max_size=5),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
@example([[6e4] * 3] * 3, torch.float16)  # whose sum would be infinite
def test_mean_in_double_precision_and_own_type(tmp_path_factory: pytest.TempPathFactory, rows, dtype):
    directory = tmp_path_factory.mktemp("mean")
    models = [{"w": torch.tensor(row, dtype=dtype)} for row in rows]
    paths = [write(directory / f"{index}.pt", model) for index, model in enumerate(models)]
    mean = average_checkpoints(paths)["model"]["w"]
    assert mean.dtype == dtype
    exact = torch.stack([model["w"].double() for model in models]).sum(0) / len(models)
    torch.testing.assert_close(mean.double(), exact.to(dtype).double(), rtol=0, atol=0)


def test_tied_parameters_stay_tied_on_disk(tmp_path: Path):
    paths = []
    for index in range(2):
        shared = torch.full((100, 100), float(index))
        paths.append(write(tmp_path / f"{index}.pt", {"embed": shared, "project": shared, "own": shared.clone()}))
    output = tmp_path / "average.pt"
    assert main(["checkpoint", "average", *map(str, paths), "--output", str(output)]) == 0
    model = load_checkpoint(output)["model"]
    assert model["embed"].data_ptr() == model["project"].data_ptr() != model["own"].data_ptr()
    assert all(torch.equal(tensor, torch.full((100, 100), 0.5)) for tensor in model.values())


def test_the_last_checkpoint_stands_for_none_and_no_checkpoint_of_the_run_is_replaced(tmp_path: Path, capsys):
    last = write(tmp_path / "checkpoint_last.pt")
    words = ["checkpoint", "average", str(tmp_path), "--last", "2", "--output"]
    assert main([*words, str(tmp_path / "average.pt")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'average.pt'}: last, update 7\n"
    for epoch in (1, 2):
        write(tmp_path / f"checkpoint{epoch}.pt")
    before = last.read_bytes()
    assert main([*words, str(last)]) == 2
    assert f"--output {last}: a checkpoint's name in the folder of the run" in capsys.readouterr().err
    assert last.read_bytes() == before
    assert main([*words, str(tmp_path / "average.pt")]) == 0
    assert capsys.readouterr().out.endswith(": average of updates 7, 7\n")


def encode(value: str) -> torch.Tensor:
    return torch.tensor(list(value.encode()))


FIRST = {"w": torch.zeros(2), "b": torch.zeros(1), "e._extra_state": encode("scheme=rk4")}


def test_the_rest_is_kept_and_the_optimizer_dropped(tmp_path: Path):
    """Buffers that are no floats come from the last file."""
    numbers = [{"count": i, "mask": i == 2, "w": i / 2} for i in range(3)]
    models = [FIRST | {name: torch.tensor(value) for name, value in of_model.items()} for of_model in numbers]
    state = average_checkpoints([write(tmp_path / f"{i}.pt", model) for i, model in enumerate(models)])
    assert state["cfg"]["model"].arch == "transformer_tiny"
    assert state["optimizer_history"] == [{"num_updates": 7}]
    assert "last_optimizer_state" not in state
    assert state["averaged_from"] == [("0.pt", 7), ("1.pt", 7), ("2.pt", 7)]
    model = state["model"]
    assert (model["count"], model["mask"], model["w"]) == (torch.tensor(2), torch.tensor(True), torch.tensor(0.5))
    assert torch.equal(model["e._extra_state"], encode("scheme=rk4"))


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {  # changes of the second model, error
    "a parameter more": ({"c": torch.zeros(1)}, r"second.pt: c is float32 \(1,\), but absent in .*first.pt"),
    # Their parameters would fit; what they were trained for does not.
    "another scheme": ({"e._extra_state": encode("scheme=rk2")}, "e._extra_state is scheme=rk2, but scheme=rk4 in"),
}


@pytest.mark.parametrize(("changes", "message"), DIFFERENT.values(), ids=DIFFERENT)
def test_models_that_have_no_mean(tmp_path: Path, changes: dict[str, Any], message: str):
    paths = write(tmp_path / "first.pt", FIRST), write(tmp_path / "second.pt", FIRST | changes)
    with pytest.raises(UserError, match=message):
        average_checkpoints(paths)


def test_a_broken_checkpoint_among_good_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for epoch in (1, 2, 3):
        write(tmp_path / f"checkpoint{epoch}.pt")
    flip_in_a_tensor(tmp_path / "checkpoint2.pt")
    output = tmp_path / "average.pt"
    output.write_bytes(b"old")
    assert main(["checkpoint", "average", str(tmp_path), "--last", "3", "--output", str(output)]) == 2
    broken = tmp_path / "checkpoint2.pt"
    message = f"ode-transformer checkpoint: error: {broken}: broken or truncated, or not a checkpoint\n"
    assert capsys.readouterr() == ("", message)
    assert output.read_bytes() == b"old"
