"""What a report measures on a model."""

import pytest
from models_for_tests import batch, perturb, small_model, teacher_forced

from ode_transformer.analysis.depth.coefficients import stage_weights
from ode_transformer.analysis.one_sentence import word_weights


def test_weights_by_word_of_several_steps_are_their_mean() -> None:
    model = perturb(small_model(arch="ode_transformer_rk2", ode_steps=2))
    source, target = batch([7]), teacher_forced(batch([5]))
    texts = {"src_tokens": source, "src_lengths": source.ne(1).sum(1), "prev_output_tokens": target}
    found = {entry.block: entry.weights for entry in word_weights(model, {"net_input": texts}, only_varying=False)}
    assert [weights.shape for weights in found.values()] == [(2, 7)] * len(found)
    for row in stage_weights(model, [{"net_input": texts}]):
        assert found[row.block].mean(dim=1).tolist() == pytest.approx(row.mean)
