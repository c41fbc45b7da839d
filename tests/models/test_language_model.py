"""Language models of one stack: counts, what a position sees, decoding step by step, identity with fairseq's own."""

from argparse import Namespace
from typing import Any

import pytest
import torch
from batches import PAD, batch, teacher_forced
from fairseq.models.transformer_lm import base_lm_architecture
from models_for_tests import SMALL, fairseqs_names, small_model

from ode_transformer.models.model_from_options import build_from_options

ARCH = "ode_transformer_lm_euler"


def language_model(**parts: Any) -> Any:
    return small_model(**({"arch": ARCH} | parts))


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
