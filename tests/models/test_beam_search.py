"""Our beam search against fairseq's."""

from typing import Any

import pytest
import torch
from batches import EOS, PAD, batch
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given, settings
from hypothesis import strategies as st
from models_for_tests import small_model

from ode_transformer.nn import BeamSearch, SearchOptions

SENTENCES = batch([6, 3, 1, 5])


# Names of the options of our search in fairseq's
FAIRSEQS = {"beam": "beam_size", "length_penalty": "len_penalty", "unknown_penalty": "unk_penalty"}


def assert_same_hypotheses(models: list[Any], source: torch.Tensor = SENTENCES, **options: Any) -> list[list[int]]:
    """Compare both searches; return the lengths of the hypotheses of each sentence."""
    theirs = {FAIRSEQS.get(name, name): value for name, value in options.items()}
    generator = SequenceGenerator(models, models[0].decoder.dictionary, **theirs)
    expected = generator.generate(models, {"net_input": {"src_tokens": source}})
    ours = BeamSearch([model.plain() for model in models], SearchOptions(**options)).search(source)
    for found, others in zip(ours, expected, strict=True):
        assert [h["tokens"].tolist() for h in found] == [h["tokens"].tolist() for h in others]
        assert not any(x.is_inference() for h in found for x in h.values())
        for name in ("score", "positional_scores"):
            torch.testing.assert_close([h[name] for h in found], [h[name] for h in others])
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
            {"max_len_b": 6, "min_len": 3},
        ]
    ),
    other=st.sampled_from(
        [{}, {"length_penalty": 0.3}, {"unknown_penalty": 2.0}, {"length_penalty": 0.0}, {"temperature": 3.0}]
    ),
    ends=st.sampled_from([1.0, 2.0]),
)
def test_hypotheses_are_those_of_fairseq(seed: int, beam: int, lengths: dict, other: dict, ends: float) -> None:
    model = model_with_ends(ends, seed)
    assert_same_hypotheses([model], beam=beam, **lengths, **other)


def test_sentences_leave_at_different_positions_and_several_models_are_averaged() -> None:
    models = [model_with_ends(3.0, seed) for seed in (2, 3)]
    lengths = assert_same_hypotheses(models, beam=3, max_len_b=30)
    assert len({max(of_sentence) for of_sentence in lengths}) > 1


def test_a_grid_is_searched_as_by_fairseq() -> None:
    assert_same_hypotheses([small_model(arch="reformer_fast")], beam=3, max_len_b=9)


@pytest.mark.parametrize("a", [1.0, 1.3])
def test_limits_grow_with_each_sentence(a: float) -> None:
    """fairseq's are those of the longest sentence of a batch."""
    model = model_with_ends(0.1, 2)
    for length in (3, 6):
        assert_same_hypotheses([model], batch([length]), beam=3, max_len_a=a, max_len_b=2)
    both = BeamSearch([model.plain()], SearchOptions(3, max_len_a=a, max_len_b=2)).search(batch([6, 3]))
    longest = [max(len(h["tokens"]) for h in of_sentence) for of_sentence in both]
    assert longest == [int(a * 6 + 2) + 1, int(a * 3 + 2) + 1]


def test_a_text_is_continued_as_by_fairseq_with_a_prefix() -> None:
    """fairseq is given the text as the beginning of each hypothesis; its limit counts the whole."""
    model, texts = small_model(arch="ode_transformer_lm_rk2"), batch([4, 4, 4])[:, :3]
    dictionary = model.decoder.dictionary
    sample = {"net_input": {"src_tokens": texts, "src_lengths": torch.full((3,), 4)}}
    theirs = SequenceGenerator([model], dictionary, beam_size=3, max_len_b=9)
    expected = theirs.generate([model], sample, prefix_tokens=texts)
    found = BeamSearch([model.plain()], SearchOptions(beam=3, max_len_b=6)).continue_texts(texts)
    for ours, others in zip(found, expected, strict=True):
        assert [h["tokens"].tolist() for h in ours] == [h["tokens"].tolist() for h in others]
        torch.testing.assert_close([h["score"] for h in ours], [h["score"] for h in others])


def test_drawn_words_come_as_often_as_their_probabilities_say() -> None:
    """The first words of 4,000 translations of one sentence, among the four likeliest."""
    model = small_model().plain()
    torch.manual_seed(1)
    source = SENTENCES[:1].expand(4000, -1)
    search = BeamSearch([model], SearchOptions(max_len_b=2, sampling=True, sampling_topk=4))
    words = torch.stack([of_sentence[0]["tokens"][0] for of_sentence in search.search(source)])
    with torch.no_grad():
        scores = model(SENTENCES[:1], torch.tensor([[EOS]]))[0, 0]
    scores[[PAD, EOS]] = -torch.inf  # a translation has a word
    values, likeliest = scores.topk(4)
    shares = torch.stack([words.eq(word).double().mean() for word in likeliest])
    torch.testing.assert_close(shares, values.softmax(0), rtol=0, atol=0.03)
    assert torch.isin(words, likeliest).all()
