"""ODE Transformer language models (Li et al. 2021, 2022, Table 5): a decoder without an encoder to read.

``--task language_modeling`` trains them, fairseq-eval-lm measures them, and fairseq-generate continues texts. The
scheme is the decoder's.
"""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import Embedding, TransformerConfig
from fairseq.models.transformer_lm import DEFAULT_MAX_TARGET_POSITIONS, TransformerLanguageModel

from ode_transformer.models.decoder import ODETransformerDecoder
from ode_transformer.models.depth_log import log_depth
from ode_transformer.models.ode_transformer import (
    METHODS,
    add_depth_arguments,
    add_log_argument,
    check,
    complete,
    register,
)
from ode_transformer.models.saved_model import SafeFromPretrained
from ode_transformer.models.tasks import refuse_task

STACKS = ("decoder",)

# Options that a language model of ours does not carry out, with the value that means "off".
_NOT_SUPPORTED = {
    "character_embeddings": False,
    "tie_adaptive_weights": False,
    "tie_adaptive_proj": False,
    "scale_fc": False,
    "scale_attn": False,
    "scale_heads": False,
    "scale_resids": False,
    "dlstm_merge": "add",  # of the attentions of a layer, which has one
}


@register_model("ode_transformer_lm")
class ODELanguageModel(SafeFromPretrained, FairseqLanguageModel):
    """A decoder whose layers are vector fields, stepped by a numerical scheme."""

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        TransformerLanguageModel.add_args(parser)
        add_depth_arguments(parser, STACKS)
        add_log_argument(parser)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> ODELanguageModel:
        """Builds the model from fairseq's options.

        :raises ValueError: in one line, if options do not go together, or the task is for another kind of model
        """
        args.ode_trained = getattr(args, "ode_options_saved", False)
        if getattr(args, "max_target_positions", None) is None:
            args.max_target_positions = getattr(args, "tokens_per_sample", DEFAULT_MAX_TARGET_POSITIONS)
        complete(args)
        refuse_task(args, task, "language_modeling")
        check(args, STACKS, _NOT_SUPPORTED)
        args.ode_options_saved = True  # as in ODETransformerModel
        words = task.source_dictionary
        embed_tokens = Embedding(len(words), args.decoder_input_dim, words.pad())
        cfg = TransformerConfig.from_namespace(args)
        model = cls(ODETransformerDecoder(cfg, task.target_dictionary, embed_tokens, no_encoder_attn=True))
        log_depth(model, args.log_depth_interval)
        return model


for _method, _options in METHODS.items():
    _of_decoder = {name.replace("encoder", "decoder"): value for name, value in _options.items()}
    register(f"ode_transformer_lm_{_method}", _of_decoder, {"decoder_layers": 1}, model="ode_transformer_lm")
