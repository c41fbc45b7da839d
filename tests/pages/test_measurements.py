"""What a report measures on a model."""

import pytest
from models_for_tests import batch, build_model, perturb, small_model, teacher_forced

from ode_transformer.analysis.depth.coefficients import stage_weights
from ode_transformer.analysis.one_sentence import word_weights
from ode_transformer.models.model_from_options import count_forward_operations


@pytest.mark.parametrize(("arch", "blocks"), [("ode_transformer_rk2", 4), ("reformer_base", 0)])
def test_weights_by_word_are_those_of_words(arch: str, blocks: int) -> None:
    """A block of a grid has weights at cells instead."""
    stack = {"decoder_ode_scheme": "rk2", "decoder_ode_coefficients": "gate"}
    model = small_model(arch=arch, **stack, **({"encoder_layers": 0} if arch.startswith("reformer") else {}))
    source, target = batch([7]), teacher_forced(batch([5]))
    texts = {"src_tokens": source, "src_lengths": source.ne(1).sum(1), "prev_output_tokens": target}
    found = word_weights(model, {"net_input": texts}, only_varying=False)
    assert len(found) == blocks
    assert {entry.weights.size(1) for entry in found if entry.block.startswith("encoder")} <= {7}
    assert {entry.weights.size(1) for entry in found if entry.block.startswith("decoder")} <= {5}


def test_weights_by_word_of_several_steps_are_their_mean() -> None:
    model = perturb(small_model(arch="ode_transformer_rk2", ode_steps=2))
    source, target = batch([7]), teacher_forced(batch([5]))
    texts = {"src_tokens": source, "src_lengths": source.ne(1).sum(1), "prev_output_tokens": target}
    found = {entry.block: entry.weights for entry in word_weights(model, {"net_input": texts}, only_varying=False)}
    assert [weights.shape for weights in found.values()] == [(2, 7)] * len(found)
    for row in stage_weights(model, [{"net_input": texts}]):
        assert found[row.block].mean(dim=1).tolist() == pytest.approx(row.mean)


def test_an_adaptive_softmax_counts_its_words() -> None:
    plain, adaptive, larger = (
        count_forward_operations(build_model("ode_transformer_euler_tiny", words, **options))
        for words, options in (
            (1000, {}),
            (1000, {"adaptive_softmax_cutoff": "500"}),
            (5000, {"adaptive_softmax_cutoff": "500"}),
        )
    )
    assert 0.5 * plain < adaptive < plain  # the second half of the words has narrower vectors
    assert larger > adaptive
