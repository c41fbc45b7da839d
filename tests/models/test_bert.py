"""BERT and Macaron BERT: sizes, segments, identity with fairseq's RoBERTa, heads, tasks that are refused."""

from argparse import Namespace
from typing import Any

import pytest
import torch
from batches import EOS, PAD, split_projections
from fairseq.models.roberta import RobertaEncoder
from models_for_tests import RENAMED, count_parameters, small_model

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.models.model_from_options import build_from_options, build_outline
from ode_transformer.nn.masked_language_model import segments
from ode_transformer.numerics import RECURRENCES

BOS = 0
BASE, FINAL_NORM = 85_017_600, 2 * 768  # experiments sheet, section 6


def build(arch: str = "macaron_bert_base", **options: Any) -> Any:
    model = small_model(arch=arch, **({"max_relative_positions": 0} | options))
    with torch.no_grad():
        model.encoder.sentence_encoder.embed_tokens.weight[PAD] = 0
    return model


def texts(*lengths: int) -> torch.Tensor:
    """Two texts a row, each closed by EOS: [B, longest]."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = torch.randint(4, 30, (length,), generator=generator)
        row[0], row[length // 2], row[length - 1] = BOS, EOS, EOS
    return tokens


@pytest.mark.parametrize(
    ("arch", "plain", "count"),
    [("ode_bert_base", True, BASE), ("macaron_bert_base", False, BASE + 12 * 2 * FINAL_NORM + 27_648)],
)
def test_parameters_of_the_base_size(arch: str, plain: bool, count: int) -> None:
    model = build_outline(Namespace(arch=arch, layer_norm_without_affine=plain), [32_768])
    encoder = model.encoder.sentence_encoder
    assert count_parameters(encoder.layers) == count
    beside = (32_768 + 2) * 768 + (0 if plain else FINAL_NORM)  # words and segments; sinusoids have no parameters
    assert count_parameters(encoder) == count + beside
    head = 768 * 768 + 768 + FINAL_NORM + 32_768  # the projection is the embeddings'
    assert count_parameters(model) == count + beside + head


def test_segments() -> None:
    rows = [[BOS, 5, EOS, 6, 7, EOS, PAD], [BOS, 5, EOS, EOS, 7, EOS, 8], [BOS, 5, 6, EOS, PAD, PAD, PAD]]
    wanted = [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0]]
    for row, expected in zip(segments(torch.tensor(rows), EOS).tolist(), wanted, strict=True):
        assert row[: len(expected)] == expected


@pytest.mark.parametrize("scheme", ["rk2", "repeat", "multistep", "iiet"])
def test_padding_changes_nothing(scheme: str) -> None:
    history = "none" if scheme in RECURRENCES else "dlcl"
    model = build(encoder_ode_scheme=scheme, max_relative_positions=3, encoder_layer_history=history)
    model.register_classification_head("h", num_classes=3)
    model.double().eval()
    tokens, head = texts(9, 5), {"classification_head_name": "h"}
    torch.testing.assert_close(model(tokens)[0][1:, :5], model(tokens[1:, :5])[0])
    torch.testing.assert_close(model(tokens, **head)[0][1:], model(tokens[1:, :5], **head)[0])


@pytest.mark.parametrize("learned", [False, True])
def test_it_is_fairseqs_roberta_where_there_are_no_segments(learned: bool) -> None:
    """Pre-norm Transformer layers, the same weights: encoder, masked head and classes agree."""
    options = {"encoder_learned_pos": learned, "no_scale_embedding": True, "encoder_normalize_before": True}
    ours = build("ode_bert_base", **options)
    with torch.no_grad():
        ours.encoder.sentence_encoder.embed_segments.weight.zero_()
    theirs = RobertaEncoder(ours.args, ours.encoder.dictionary).double().eval()
    state = {}
    for name, value in split_projections(ours.encoder.state_dict()).items():
        for mine, other in RENAMED.items():
            name = name.replace(f".{mine}", f".{other}")
        state[name] = value
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not missing
    ours_alone = {"embed_segments.weight", "trained_version._extra_state"}
    assert set(unexpected) == {f"sentence_encoder.{name}" for name in ours_alone}
    tokens = texts(9, 6)
    real = tokens.ne(PAD)
    torch.testing.assert_close(ours(tokens)[0][real], theirs(tokens)[0][real])
    masked = tokens.eq(EOS)
    torch.testing.assert_close(ours(tokens, masked_tokens=masked)[0], theirs(tokens, masked_tokens=masked)[0])


def test_weights_start_as_berts_and_those_of_a_scheme_as_it_says() -> None:
    options = {"arch": "macaron_bert_tiny", "encoder_ode_scheme": "rk2", "ode_coefficients": "gate"}
    encoder = build_from_options(Namespace(**options), 300).encoder.sentence_encoder
    for weight in (encoder.layers[0]["ffn_down"].function.fc1.weight, encoder.embed_tokens.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert all(not parameter.any() for parameter in encoder.scheme.parameters())
    args = Namespace(arch="macaron_bert_tiny", encoder_ode_scheme="multistep", encoder_layer_history="none")
    assert build_from_options(args, 300).encoder.sentence_encoder.scheme.k.eq(1).all()
