"""Checkpoints of earlier versions, whose attentions kept Q, K and V apart: parameters and averages."""

from pathlib import Path
from typing import Any

import pytest
import torch
from batches import perturb, split_projections
from plain_models import make_plain_model, small_plain_model

from ode_transformer.checkpoints.averaging import average_checkpoints
from ode_transformer.nn import MaskedLanguageModel

BERT = "ode_bert_tiny"


def build_perturbed(seed: int, arch: str, **options: Any) -> torch.nn.Module:
    if arch == BERT:
        torch.manual_seed(seed)
        return perturb(MaskedLanguageModel.named(arch, vocabulary=30))
    return small_plain_model(seed, arch, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"arch": "ode_transformer_rk2", "ode_stage_parameters": "separate"},
        {"arch": "macaron", "relative_values": True},
        {"arch": "dlstm"},
        {"arch": "reformer_fast"},
        {"arch": "ode_transformer_lm_rk2"},
        {"arch": BERT},
    ],
)
@torch.no_grad()
def test_an_older_state_dict_gives_the_same_output(options: dict[str, Any]) -> None:
    saved, loaded = (build_perturbed(seed, **options) for seed in (1, 2))
    older = split_projections(saved.state_dict())
    assert len(older) > len(saved.state_dict())
    nn_load = torch.nn.Module.load_state_dict(loaded, older)
    assert nn_load.missing_keys == nn_load.unexpected_keys == []
    for ours, theirs in zip(loaded.parameters(), saved.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_average_of_old_and_new_is_that_of_new_ones(tmp_path: Path) -> None:
    new = make_plain_model(tmp_path)
    old = tmp_path / "old.pt"
    old.write_bytes(new.read_bytes())
    state = torch.load(old, weights_only=False)
    torch.save(state | {"model": split_projections(state["model"])}, old)
    average, expected = (average_checkpoints(paths)["model"] for paths in ([old, new], [new, new]))
    assert list(average) == list(expected)
    assert all(torch.equal(average[name], expected[name]) for name in expected)
