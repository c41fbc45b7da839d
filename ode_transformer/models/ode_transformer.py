"""ODE Transformer for translation (Li et al. 2021, 2022): model and architectures."""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, TransformerModel
from torch import nn

from ode_transformer.models.architectures import (
    SCHEME_OPTIONS,
    TRANSLATION_SIZES,
    complete_transformer_options,
    register_architecture,
)
from ode_transformer.models.decoder import ODETransformerDecoder
from ode_transformer.models.depth_log import log_depth
from ode_transformer.models.encoder import ODETransformerEncoder
from ode_transformer.models.options import add_depth_arguments, add_log_argument, check_options
from ode_transformer.models.pretrained import SafeFromPretrained
from ode_transformer.models.supported_tasks import check_task
from ode_transformer.nn import STACKS


@register_model("ode_transformer")
class ODETransformerModel(SafeFromPretrained, TransformerModel):
    """Encoder and decoder whose layers are vector fields, stepped by a numerical scheme."""

    stacks = STACKS

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add fairseq's flags of a Transformer, and ours."""
        super().add_args(parser)
        add_depth_arguments(parser, cls.stacks)
        add_log_argument(parser)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> ODETransformerModel:
        """Build the model from fairseq's options.

        :raises OptionError: options do not go together, or the task has no source and target
        """
        args.ode_trained = getattr(args, "ode_options_saved", False)
        complete_transformer_options(args)
        check_task(args, task, "translation")
        cls.check(args)
        args.ode_options_saved = True  # saved with the options: a checkpoint's are recognised by it
        model: ODETransformerModel = super().build_model(args, task)
        log_depth(model, args.log_depth_interval)
        return model

    @classmethod
    def check(cls, args: argparse.Namespace) -> None:
        """Refuse options that do not go together.

        :raises OptionError: names the flag and what is allowed
        """
        check_options(args, cls.stacks)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Embedding) -> ODETransformerEncoder:
        """Build the encoder for fairseq's ``build_model``."""
        return ODETransformerEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> ODETransformerDecoder:
        """Build the decoder for fairseq's ``build_model``."""
        return ODETransformerDecoder(TransformerConfig.from_namespace(args), tgt_dict, embed_tokens)


for _scheme, _options in SCHEME_OPTIONS.items():
    for _suffix, _size in TRANSLATION_SIZES.items():
        register_architecture(f"ode_transformer_{_scheme}{_suffix}", _options, _size)
