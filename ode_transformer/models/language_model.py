"""ODE Transformer language models (Li et al. 2021, 2022, Table 5): a decoder without an encoder.

``--task language_modeling`` trains them, fairseq-eval-lm computes their perplexity, and fairseq-generate continues
texts. The scheme is set by ``--decoder-ode-scheme``.
"""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import Embedding
from fairseq.models.transformer_lm import DEFAULT_MAX_TARGET_POSITIONS, TransformerLanguageModel

from ode_transformer.checkpoints.reading import SafeFromPretrained
from ode_transformer.models.architectures import (
    LANGUAGE_MODEL_OPTIONS,
    complete_transformer_options,
    register_architecture,
)
from ode_transformer.models.decoder import ODETransformerDecoder
from ode_transformer.models.depth_log import log_depth
from ode_transformer.models.depth_options import add_depth_arguments, check_task, read_model_options
from ode_transformer.models.module_lists import ModuleLists

# Options that our language models do not implement, with the value that means "off".
UNSUPPORTED_LM_OPTIONS = dict.fromkeys(
    ("character_embeddings", "scale_fc", "scale_attn", "scale_heads", "scale_resids"), False
)


@register_model("ode_transformer_lm")
class ODELanguageModel(SafeFromPretrained, ModuleLists, FairseqLanguageModel):
    """A decoder whose layers are vector fields, stepped by a numerical scheme."""

    stacks = ("decoder",)

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add the flags of fairseq's Transformer language model, and ours."""
        TransformerLanguageModel.add_args(parser)
        add_depth_arguments(parser, cls.stacks)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> ODELanguageModel:
        """Build the model from fairseq's options."""
        if getattr(args, "max_target_positions", None) is None:
            args.max_target_positions = getattr(args, "tokens_per_sample", DEFAULT_MAX_TARGET_POSITIONS)
        complete_transformer_options(args)
        check_task(args, task, "language_modeling")
        cfg = read_model_options(args, cls.stacks, UNSUPPORTED_LM_OPTIONS)
        dictionary = task.source_dictionary
        embed_tokens = Embedding(len(dictionary), args.decoder_input_dim, dictionary.pad())
        model = cls(ODETransformerDecoder(cfg, task.target_dictionary, embed_tokens, no_encoder_attn=True))
        args.ode_options_saved = True
        log_depth(model, args.log_depth_interval)
        return model


for _scheme, _options in LANGUAGE_MODEL_OPTIONS.items():
    register_architecture(f"ode_transformer_lm_{_scheme}", _options, {"decoder_layers": 1}, model="ode_transformer_lm")
