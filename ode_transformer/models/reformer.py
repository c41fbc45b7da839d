"""Reformer (Li et al. 2020): translation over a joint representation; its options and registration.

The encoder's options are those of the PreNet (no layers: Reformer-base), the decoder's those of the joint layers.
"""

import argparse
from typing import Any

import torch
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from ode_transformer.models.architectures import register_architectures
from ode_transformer.models.depth_options import add_choice_arguments
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.models.stacks import ReformerDecoder, ReformerEncoder, encoder_output
from ode_transformer.nn import GridChoice


@register_model("reformer")
class ReformerModel(ODETransformerModel):
    """A PreNet over the source, and joint layers over a source × target grid; no encoder–decoder attention."""

    kind = "reformer"

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        add_choice_arguments(parser, GridChoice)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Embedding) -> ReformerEncoder:
        cfg = TransformerConfig.from_namespace(args)
        return ReformerEncoder(cfg, src_dict, embed_tokens, cfg.grid)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> ReformerDecoder:
        cfg = TransformerConfig.from_namespace(args)
        return ReformerDecoder(cfg, tgt_dict, embed_tokens, cfg.grid)

    @torch.no_grad()
    def attention_maps(
        self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor
    ) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """Return the maps of :meth:`GridDecoder.attention_maps`."""
        encoded = encoder_output(self.encoder(src_tokens, src_lengths))
        maps: dict[str, tuple[tuple[str, ...], Tensor]] = self.decoder.attention_maps(prev_output_tokens, encoded)
        return maps


register_architectures("reformer")
