"""The ODE Transformer (Li et al. 2021, 2022), and the architectures of Macaron and depth-wise LSTM.

Language models (2022, Table 5) are a decoder without an encoder: ``--task language_modeling`` trains them,
fairseq-eval-lm computes their perplexity, and fairseq-generate continues texts.
"""

import argparse
from copy import copy
from typing import Any

from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import DEFAULT_MAX_SOURCE_POSITIONS, Embedding, TransformerConfig, TransformerModel
from fairseq.models.transformer_lm import DEFAULT_MAX_TARGET_POSITIONS, TransformerLanguageModel
from torch import Tensor, nn

from ode_transformer.models.architectures import complete_arguments, register_architectures
from ode_transformer.models.depth_log import log_depth
from ode_transformer.models.depth_options import add_depth_arguments, check_task, read_model_options
from ode_transformer.models.module_lists import ModuleLists
from ode_transformer.models.pretrained import SafeFromPretrained
from ode_transformer.models.sample_log import log_samples
from ode_transformer.models.stacks import ODETransformerDecoder, ODETransformerEncoder, option_errors
from ode_transformer.nn import STACKS, LanguageModel, Transformer


@register_model("ode_transformer")
class ODETransformerModel(SafeFromPretrained, ModuleLists, TransformerModel):
    """Encoder and decoder whose layers are vector fields, stepped by a numerical scheme."""

    stacks = STACKS
    kind = "ode_transformer"  # of architectures

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        add_depth_arguments(parser, cls.stacks)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "ODETransformerModel":
        args = copy(args)  # the caller may build another model from the options
        complete_arguments(args, cls.kind)
        check_task(args, task, "translation")
        cfg = cls.read_options(args)
        for name in ("max_source_positions", "max_target_positions"):
            if getattr(args, name, None) is None:
                setattr(cfg, name, DEFAULT_MAX_SOURCE_POSITIONS)
        with option_errors():
            model: ODETransformerModel = super().build_model(cfg, task)
        log_depth(model, args.log_depth_interval)
        log_samples(model, args.log_samples)
        return model

    @classmethod
    def read_options(cls, args: argparse.Namespace) -> TransformerConfig:
        """Return fairseq's configuration, with the choice of each stack."""
        return read_model_options(args, cls.stacks, has_grid=cls.kind == "reformer")

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Embedding) -> ODETransformerEncoder:
        cfg = TransformerConfig.from_namespace(args)
        return ODETransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> ODETransformerDecoder:
        cfg = TransformerConfig.from_namespace(args)
        return ODETransformerDecoder(cfg, tgt_dict, embed_tokens)

    def plain(self) -> Transformer:
        """Return the plain model, which shares all parameters."""
        return Transformer.of_parts(self.encoder, self.decoder)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None,
        prev_output_tokens: Tensor,
        return_all_hiddens: bool = False,
        features_only: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> Any:
        """Return the decoder's output; fairseq's own model keeps the states between layers unless it is told not to."""
        return super().forward(
            src_tokens,
            src_lengths,
            prev_output_tokens,
            return_all_hiddens,
            features_only,
            alignment_layer,
            alignment_heads,
        )


# Options of fairseq's language models that ours do not implement
UNSUPPORTED_LM_OPTIONS = "character_embeddings", "scale_fc", "scale_attn", "scale_heads", "scale_resids"


@register_model("ode_transformer_lm")
class ODELanguageModel(SafeFromPretrained, ModuleLists, FairseqLanguageModel):
    """A decoder whose layers are vector fields, stepped by a numerical scheme."""

    stacks = ("decoder",)

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        TransformerLanguageModel.add_args(parser)
        add_depth_arguments(parser, cls.stacks)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "ODELanguageModel":
        args = copy(args)
        if getattr(args, "max_target_positions", None) is None:
            args.max_target_positions = getattr(args, "tokens_per_sample", DEFAULT_MAX_TARGET_POSITIONS)
        complete_arguments(args, "ode_transformer_lm")
        check_task(args, task, "language_modeling")
        cfg = read_model_options(args, cls.stacks, UNSUPPORTED_LM_OPTIONS)
        words = task.target_dictionary
        embed_tokens = Embedding(len(task.source_dictionary), args.decoder_input_dim, task.source_dictionary.pad())
        with option_errors():
            decoder = ODETransformerDecoder(cfg, words, embed_tokens, attends=False)
        model = cls(decoder)
        log_depth(model, args.log_depth_interval)
        return model

    def plain(self) -> LanguageModel:
        """Return the plain model, which shares all parameters."""
        return LanguageModel.of_part(self.decoder)


register_architectures("ode_transformer_lm")
register_architectures("ode_transformer")
