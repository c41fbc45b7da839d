"""Recordings of the authors' released code: those of tests/recordings, or of the folder in ``$ODE_GOLDEN_DIR``."""

import os
from pathlib import Path

import numpy as np
import torch

RECORDINGS = Path(os.environ.get("ODE_GOLDEN_DIR", Path(__file__).parents[1] / "recordings"))


def read_recording(case: str) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in np.load(RECORDINGS / case / f"{case}.npz").items()}


def part(recorded: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in recorded.items() if name.startswith(prefix)}
