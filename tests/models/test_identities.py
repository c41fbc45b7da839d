"""What the papers claim of whole stacks, on the real encoder."""

import pytest
import torch
from batches import PAD, batch, teacher_forced
from models_for_tests import SMALL, build_model, fairseqs_names, small_model

from ode_transformer.nn import AttentionChoice, AttentionMask, Context, SubLayerKind, attention_mask
from ode_transformer.numerics import SPLITTINGS, split_step

OPTIONS = {"max_relative_positions": 0, "encoder_layer_history": "none", "decoder_layer_history": "none"}


def encode(encoder, source) -> torch.Tensor:
    with torch.no_grad():
        return encoder(source, None)["encoder_out"][0]


def context(mask: AttentionMask) -> Context:
    return Context({SubLayerKind.SELF_ATTENTION: mask})


# Released code: without a scheme, the layers as they are.
POST_NORM = {"post_norm": True, "ode_function": "layer-output"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"layernorm_embedding": True, "no_scale_embedding": True, "activation_fn": "gelu"},
        {"no_token_positional_embeddings": True, "no_decoder_final_norm": True},
        {"encoder_learned_pos": True, "decoder_learned_pos": True},
        POST_NORM,
    ],
    ids=lambda more: "-".join(more) or "plain",
)
def test_one_stage_is_fairseqs_own_transformer(more: dict) -> None:
    """Same weights, same encoder output, logits and attention."""
    ours = small_model(**OPTIONS, **more)
    norms = {} if more is POST_NORM else {"encoder_normalize_before": True, "decoder_normalize_before": True} | more
    sizes = {name: value for name, value in SMALL.items() if name != "max_relative_positions"}
    stock = build_model("transformer", **sizes, **norms).double()
    stock.load_state_dict(fairseqs_names(ours))
    source, previous = batch([6, 4, 2]), teacher_forced(batch([5, 7, 2], seed=1))
    real, written = source.ne(PAD).t(), previous.ne(PAD)
    # fairseq computes gelu in float32.
    gelu = {"rtol": 0, "atol": 1e-6} if "activation_fn" in more else {}
    torch.testing.assert_close(encode(ours.encoder, source)[real], encode(stock.encoder, source)[real], **gelu)
    with torch.no_grad():
        encoder_outs = [model.encoder(source, None) for model in (ours, stock)]
        for asked in (
            {},
            {"alignment_layer": 0},
            {"alignment_layer": 1, "alignment_heads": 1},
            {"full_context_alignment": True, "alignment_layer": 0},
            {"features_only": True},
        ):
            (out, extra), (expected, stock_extra) = (
                model.decoder(previous, encoder_out=encoder_out, **asked)
                for model, encoder_out in zip((ours, stock), encoder_outs, strict=True)
            )
            # fairseq makes its attention weights in float32
            torch.testing.assert_close(out[written], expected[written], rtol=0, atol=1e-5)
            attention, stock_attention = extra["attn"][0].double(), stock_extra["attn"][0].double()
            torch.testing.assert_close(attention[written], stock_attention[written], rtol=0, atol=1e-6)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_a_layer_is_one_step_of_its_splitting_with_euler_flows(splitting: str) -> None:
    """Diffusion by attention, convection by feed-forward networks, each of which moves y by its share of the step."""
    layer = small_model(layer_splitting=splitting).encoder.layers[0]
    mask = attention_mask(4, 4, torch.device("cpu"), choice=AttentionChoice(3))
    networks = iter([layer[name] for name in layer if name.startswith("ffn")])

    def diffusion(y: torch.Tensor, h: float) -> torch.Tensor:
        attention = layer["self_attn"]
        return y + h * attention.function(attention.layer_norm(y), mask)

    def convection(y: torch.Tensor, h: float) -> torch.Tensor:
        network = next(networks)
        return y + h * network.function(network.layer_norm(y))

    y = torch.randn(2, 4, 16, dtype=torch.float64)
    expected = split_step({"diffusion": diffusion, "convection": convection}, SPLITTINGS[splitting], y)
    torch.testing.assert_close(y + layer.increment(y, 0, context(mask), list(layer)), expected)
