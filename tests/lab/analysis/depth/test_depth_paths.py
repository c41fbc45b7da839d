"""Paths of a sentence through depth, and norms of activations."""

import pytest
import torch
from models_for_tests import batch, small_model, teacher_forced

from ode_transformer.lab.analysis.depth.block_flows import TRAINED, depth_paths, principal_coordinates
from ode_transformer.lab.analysis.depth.gradient_norms import activation_norms
from ode_transformer.numerics import get_tableau

TABLEAUS = {name: get_tableau(name) for name in ("euler", "rk2", "rk4")}


def sample(lengths: list[int]) -> dict:
    target = batch(lengths, 1)
    inputs = {"src_tokens": batch(lengths), "src_lengths": None, "prev_output_tokens": teacher_forced(target)}
    return {"net_input": inputs, "target": target}


@pytest.mark.parametrize("history", ["none", "dlcl"])
@pytest.mark.parametrize("scheme", ["euler", "rk4"])
def test_a_models_own_scheme_walks_its_own_path(scheme: str, history: str) -> None:
    model = small_model(encoder_ode_scheme=scheme, encoder_layer_history=history)
    before = model(**sample([5])["net_input"])[0]
    paths = depth_paths(model, "encoder", sample([5]), TABLEAUS)
    for step, own in zip(paths[scheme], paths[TRAINED], strict=True):
        torch.testing.assert_close(step[[0, -1]], own)
    assert [len(step) for step in paths["rk4"]] == [5, 5]  # the points of four stages and the end
    other = "rk4" if scheme == "euler" else "euler"
    assert (paths[other][-1][-1] - paths[TRAINED][-1][-1]).norm() > 1e-4
    starts_where_it_ended = torch.allclose(paths["euler"][1][0], paths["euler"][0][-1])
    assert starts_where_it_ended == (history == "none")
    assert torch.equal(model(**sample([5])["net_input"])[0], before)  # the scheme is the trained one again


def test_the_plane_keeps_what_differs_most() -> None:
    corners = torch.tensor([[3.0, 0, 0, 5], [-3, 0, 0, 5], [0, 1, 0, 5], [0, -1, 0, 5]])
    points, fractions = principal_coordinates(corners)
    torch.testing.assert_close(points, corners[:, :2])
    assert fractions == pytest.approx([0.9, 0.1])


def test_activation_norms_leave_padding_out() -> None:
    model = small_model(encoder_layer_history="none", decoder_layer_history="none")
    apart = [activation_norms(model, [sample([length])])["decoder"][0] for length in (5, 3)]
    together = activation_norms(model, [sample([5]), sample([3])])["decoder"][0]
    assert together == pytest.approx((5 * apart[0] + 3 * apart[1]) / 8)
    source = sample([4])["net_input"]
    output = model.encoder.forward(source["src_tokens"], None, return_all_hiddens=True)["encoder_states"][-1]
    (_, last) = activation_norms(model, [sample([4])])["encoder"]
    assert last == pytest.approx(float(output.norm(dim=-1).mean()), rel=1e-6)
