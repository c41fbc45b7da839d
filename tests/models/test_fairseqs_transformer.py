"""The plain model of a checkpoint of fairseq's own architectures computes what fairseq's does."""

from pathlib import Path

import pytest
import torch
from checkpoint_for_tests import make_model
from fairseq import checkpoint_utils

from ode_transformer.checkpoints.plain_model import build_plain_model
from ode_transformer.checkpoints.reading import load_checkpoint


@pytest.mark.parametrize("norm", ["post-norm", "pre-norm"])
@torch.no_grad()
def test_fairseqs_own_transformer(norm: str, tmp_path: Path) -> None:
    flags = ["--encoder-normalize-before", "--decoder-normalize-before"] if norm == "pre-norm" else []
    path = make_model(tmp_path, "--arch", "transformer_tiny", *flags)
    (theirs,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(tmp_path)})
    sizes = len(task.source_dictionary), len(task.target_dictionary)
    ours = build_plain_model(load_checkpoint(path), *sizes)
    source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[2, 8, 9]])
    expected, _ = theirs.double().eval()(source, torch.tensor([4]), target)
    # In double precision but for fairseq's softmax; in single, processors round these logits differently.
    torch.testing.assert_close(ours.double()(source, target), expected, rtol=0, atol=1e-5)
