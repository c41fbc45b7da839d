"""Our beam search against fairseq's."""

from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given, settings
from hypothesis import strategies as st
from models_for_tests import EOS, batch, small_model

from ode_transformer.decoding.beam_search import BeamSearch

SENTENCES = batch([6, 3, 1, 5])


def assert_same_hypotheses(models: list[Any], sample: dict[str, Any] | None = None, **options: Any) -> list[list[int]]:
    """Compare both searches; return the lengths of the hypotheses of each sentence."""
    sample = sample or {"net_input": {"src_tokens": SENTENCES}}
    searches = [kind(models, models[0].decoder.dictionary, **options) for kind in (BeamSearch, SequenceGenerator)]
    ours, theirs = (search.generate(models, sample) for search in searches)
    for found, expected in zip(ours, theirs, strict=True):
        assert [h["tokens"].tolist() for h in found] == [h["tokens"].tolist() for h in expected]
        assert not any(x.is_inference() for h in found for x in h.values())
        for name in ("score", "positional_scores", "attention"):
            torch.testing.assert_close([h[name] for h in found], [h[name] for h in expected])
    return [[len(h["tokens"]) for h in found] for found in ours]


@torch.no_grad()
def model_with_ends(factor: float, seed: int) -> Any:
    """A model that gives the end of a sentence a high score at some positions, a low one at others."""
    model = small_model(decoder_ode_scheme="rk2", seed=seed)
    model.decoder.embed_tokens.weight[EOS] *= factor
    return model


@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 9),
    beam=st.sampled_from([1, 2, 5, 40]),
    lengths=st.sampled_from(
        [
            {"max_len_b": 12},
            {"max_len_a": 1, "max_len_b": 1},
            {"max_len_b": 6, "min_len": 3},
            {"max_len_a": 1.3, "max_len_b": 2},
        ]
    ),
    other=st.sampled_from(
        [{}, {"len_penalty": 0.3}, {"unk_penalty": 2.0}, {"normalize_scores": False}, {"temperature": 3.0}]
    ),
    ends=st.sampled_from([1.0, 2.0]),
)
def test_hypotheses_are_those_of_fairseq(seed: int, beam: int, lengths: dict, other: dict, ends: float) -> None:
    model = model_with_ends(ends, seed)
    model.make_generation_fast_(need_attn=seed % 2 == 0)
    assert_same_hypotheses([model], beam_size=beam, **lengths, **other)


def test_sentences_leave_at_different_positions_and_several_models_are_averaged() -> None:
    models = [model_with_ends(3.0, seed) for seed in (2, 3)]
    lengths = assert_same_hypotheses(models, beam_size=3, max_len_b=30)
    assert len({max(of_sentence) for of_sentence in lengths}) > 1


@pytest.mark.parametrize("arch", ["ode_transformer_lm_rk2", "reformer_fast"])
def test_other_models(arch: str) -> None:
    model = small_model(arch=arch)
    assert_same_hypotheses([model], beam_size=3, max_len_b=9)


def test_what_is_left_to_fairseq() -> None:
    model = small_model()
    prefix = {"net_input": {"src_tokens": SENTENCES}}
    found = BeamSearch([model], model.decoder.dictionary, beam_size=2, max_len_b=8)
    hypotheses = found.generate([model], prefix, prefix_tokens=torch.full((len(SENTENCES), 2), 7))
    assert all(h["tokens"][:2].tolist() == [7, 7] for of_sentence in hypotheses for h in of_sentence)
    with pytest.raises(AssertionError, match="at least 9 words and at most 3"):
        BeamSearch([model], model.decoder.dictionary, min_len=9, max_len_b=3).generate([model], prefix)
