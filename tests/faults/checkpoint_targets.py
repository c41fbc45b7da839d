"""Fuzzing of checkpoints: their bytes, and their structure."""

from __future__ import annotations

import copy
import io
import random
import tempfile
import zipfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from checkpoint_for_tests import make_model
from text_targets import file_target

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.checkpoints.verification import verify_checkpoint
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.models import ODETransformerModel

_FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-checkpoints-")
STATE: dict[str, Any] = {
    "args": Namespace(arch="ode_transformer_rk2_tiny", lr=[0.1], encoder_layers=2),
    "cfg": {"task": {"_name": "translation"}, "common": {"seed": 1}},
    "model": {"a": torch.ones(3), "b": torch.ones(2, 2).half(), "c": torch.tensor([1, 2])},
    "optimizer_history": [{"num_updates": 3}],
    "extra_state": {"epoch": 1},
}
# Values that no option, part or parameter of a training has, and some that other ones have.
VALUES: Sequence[Any] = (
    *(None, True, 0, -1, 2, 10**9, 10**18, -(10**9), 10**30, -1.5, 1e300, float("inf"), float("nan")),
    *("", "x", "1", "(1, 2)", "{}", "a.b", "\0", "x" * 10**6, "${oc.env:HOME}", "__import__('os')", "print(1)"),
    *("rk4", "dlstm", "transformer", "fconv_iwslt_de_en", "language_modeling"),
    *([], {}, [1], ["a"], {"a": 1}, {"_name": "fconv"}, (1, 2), {1: 2}, [[[[]]]], Namespace(), Namespace(arch="fconv")),
    *(torch.ones(2), torch.tensor(1), torch.zeros(0), torch.tensor(float("nan")), torch.ones(1).expand(10**9)),
    *(torch.ones(2).to_sparse(), torch.ones(2, dtype=torch.complex64), torch.ones(2, device="meta")),
)
NAMES: Sequence[Any] = (3, "", "new", "layers", "encoder", "embed_dim", "__class__", ("a",), None)


def saved_bytes(zipped: bool) -> bytes:
    """Return a small checkpoint in torch's format since version 1.6, or before."""
    buffer = io.BytesIO()
    torch.save(STATE, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def read_pickle(data: bytes) -> object:
    """Read a checkpoint whose pickle is ``data``, in an archive with the right checksums."""
    path = Path(_FOLDER.name) / "pickle.pt"
    with zipfile.ZipFile(io.BytesIO(saved_bytes(True))) as whole, zipfile.ZipFile(path, "w") as archive:
        for entry in whole.infolist():
            archive.writestr(entry.filename, data if entry.filename.endswith("data.pkl") else whole.read(entry))
    return load_checkpoint(path)


def pickle_of_checkpoint() -> bytes:
    """Return the pickle of :data:`STATE`."""
    with zipfile.ZipFile(io.BytesIO(saved_bytes(True))) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        return archive.read(name)


@cache
def whole_model() -> Path:
    """Return a folder with a model that translates."""
    return make_model(Path(_FOLDER.name)).parent


def load_in_every_way(data: bytes) -> None:
    """Change a whole checkpoint as ``data`` chooses, and open it in every way that builds a model.

    :raises UserError: whichever way raises it first
    """
    generator, folder = random.Random(data), whole_model()
    state = copy.deepcopy(torch.load(folder / "model.pt"))
    if generator.random() < 0.3:
        languages = {"source_lang": "en", "target_lang": "de"}
        state["args"] = Namespace(**(vars(state["cfg"]["model"]) | languages))
    for _ in range(generator.choice([1, 1, 1, 2, 3])):
        change(state, generator)
    path = folder / "changed.pt"
    torch.save(state, path)
    ways: list[Callable[[], object]] = [
        lambda: load_trained_model(path, folder, "en", "de"),
        lambda: ODETransformerModel.from_pretrained(folder, path.name),
        lambda: verify_checkpoint(path),
    ]
    generator.shuffle(ways)
    for way in ways:
        way()


def change(state: dict[str, Any], generator: random.Random) -> None:
    """Delete, replace or add a value somewhere in a checkpoint."""
    groups = list(nested_groups(state))
    group = generator.choices(groups, [5 if len(group) > 100 else 1 for group in groups])[0]
    action = generator.random()
    if action < 0.15 and group:
        del group[generator.choice(list(group))]
    elif action < 0.25 or not group:
        group[generator.choice(NAMES)] = generator.choice(VALUES)
    else:
        group[generator.choice(list(group))] = generator.choice(VALUES)


def nested_groups(part: Any) -> list[dict[Any, Any]]:
    """Return the mappings within a checkpoint, namespaces as mappings."""
    group = vars(part) if isinstance(part, Namespace) else part
    if isinstance(group, dict):
        return [group, *(inner for value in list(group.values()) for inner in nested_groups(value))]
    return [inner for value in part for inner in nested_groups(value)] if isinstance(part, list) else []


TARGETS = {
    "checkpoint": file_target([saved_bytes(True)], load_checkpoint, "input.pt"),
    "checkpoint before torch 1.6": file_target([saved_bytes(False)], load_checkpoint, "input.pt"),
    "checkpoint, its pickle": ([pickle_of_checkpoint()], read_pickle),
    "checkpoint, its structure": ([b"bytes that choose the changes"], load_in_every_way),
}
