"""Language models of one stack: counts, what a position sees, decoding step by step, identity with fairseq's own."""

from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.models.transformer_lm import base_lm_architecture
from models_for_tests import PAD, SMALL, batch, build_model, fairseqs_names, small_model, teacher_forced

from ode_transformer.models.architectures import SCHEME_OPTIONS
from ode_transformer.models.model_from_options import build_from_options

ARCH = "ode_transformer_lm_euler"
D, K, HEADS = 512, 8, 8
LAYER = 3_152_384  # 4(d² + d) of an attention, 2df + f + d of a feed-forward network, 4d of two normalisations


def language_model(**parts: Any) -> Any:
    return small_model(**({"arch": ARCH} | parts))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("method", SCHEME_OPTIONS)
def test_parameters(method: str, layers: int) -> None:
    def count(**options: Any) -> int:
        options |= {"share_decoder_input_output_embed": True, "decoder_layers": layers}
        model = build_model(f"ode_transformer_lm_{method}", 10_000, **options)
        return sum(parameter.numel() for parameter in model.parameters())

    plain = 10_000 * D + layers * LAYER + 2 * D  # embeddings, tied with the output; layers; the last normalisation
    history, relative = (layers + 1) ** 2 + layers * 2 * D, layers * (2 * K + 1) * D // HEADS
    gates = {"rk2": layers * (2 * D + 1), "pcformer": 1}.get(method, 0)
    if method in ("pcformer", "iiet"):  # a history of their own: W, W', two normalisations of each layer
        gates, history = gates + 2 * history, 0
    if method == "ones":
        history = 0
    if method == "normalized":
        gates = layers * 2 * D
    assert count() == plain + history + relative + gates
    assert count(decoder_layer_history="none", max_relative_positions=0) == plain + gates


@torch.no_grad()
def run(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens, src_lengths=tokens.ne(PAD).sum(1))[0]


@pytest.mark.parametrize("more", [{}, {"share_decoder_input_output_embed": True, "no_scale_embedding": True}])
def test_euler_is_fairseqs_own_language_model(more: dict[str, Any]) -> None:
    """Pre-norm, the same weights."""
    options = {name: value for name, value in SMALL.items() if name.startswith("decoder") or "dropout" in name} | more
    ours = language_model(decoder_layer_history="none", **more | {"max_relative_positions": 0})
    args = Namespace(arch="transformer_lm", **options)
    base_lm_architecture(args)
    theirs = build_from_options(args, 30).double().eval()
    theirs.load_state_dict(fairseqs_names(ours))
    tokens = teacher_forced(batch([6, 3, 4]))
    written = tokens.ne(PAD)
    torch.testing.assert_close(run(ours, tokens)[written], run(theirs, tokens)[written], rtol=0, atol=1e-5)
