"""The ODE Transformer (Li et al. 2021, 2022), and the architectures of Macaron and depth-wise LSTM.

Language models (2022, Table 5) are a decoder without an encoder: ``--task language_modeling`` trains them,
fairseq-eval-lm computes their perplexity, and fairseq-generate continues texts.
"""

import argparse
from typing import Any

from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import DEFAULT_MAX_SOURCE_POSITIONS, Embedding, TransformerConfig, TransformerModel
from fairseq.models.transformer_lm import DEFAULT_MAX_TARGET_POSITIONS, TransformerLanguageModel
from torch import nn

from ode_transformer.checkpoints.reading import SafeFromPretrained
from ode_transformer.models.architectures import (
    LANGUAGE_MODEL_OPTIONS,
    PLAIN_LAYERS,
    SCHEME_OPTIONS,
    TRANSLATION_SIZES,
    complete_transformer_options,
    register_architecture,
    stack_sizes,
)
from ode_transformer.models.decoder import ODETransformerDecoder
from ode_transformer.models.depth_log import log_depth
from ode_transformer.models.depth_options import add_depth_arguments, check_task, read_model_options
from ode_transformer.models.encoder import ODETransformerEncoder
from ode_transformer.models.module_lists import ModuleLists
from ode_transformer.models.sample_log import log_samples
from ode_transformer.nn import LSTM, STACKS


@register_model("ode_transformer")
class ODETransformerModel(SafeFromPretrained, ModuleLists, TransformerModel):
    """Encoder and decoder whose layers are vector fields, stepped by a numerical scheme."""

    stacks = STACKS
    encoder_class: type[ODETransformerEncoder] = ODETransformerEncoder
    decoder_class: type[ODETransformerDecoder] = ODETransformerDecoder

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        add_depth_arguments(parser, cls.stacks)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "ODETransformerModel":
        complete_transformer_options(args)
        check_task(args, task, "translation")
        cfg = cls.read_options(args)
        # On the configuration, because fairseq saves ``args``.
        for name in ("max_source_positions", "max_target_positions"):
            if getattr(args, name, None) is None:
                setattr(cfg, name, DEFAULT_MAX_SOURCE_POSITIONS)
        model: ODETransformerModel = super().build_model(cfg, task)
        args.ode_options_saved = True
        log_depth(model, args.log_depth_interval)
        log_samples(model, args.log_samples)
        return model

    @classmethod
    def read_options(cls, args: argparse.Namespace) -> TransformerConfig:
        """Return fairseq's configuration, with the choice of each stack."""
        return read_model_options(args, cls.stacks)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Embedding) -> ODETransformerEncoder:
        return cls.encoder_class(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> ODETransformerDecoder:
        return cls.decoder_class(TransformerConfig.from_namespace(args), tgt_dict, embed_tokens)


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

for _scheme, _options in SCHEME_OPTIONS.items():
    for _suffix, _size in TRANSLATION_SIZES.items():
        register_architecture(f"ode_transformer_{_scheme}{_suffix}", _options, _size)

# Macaron Net (Lu et al. 2019): layers are a Strang–Marchuk splitting. The inner size given is that of a Transformer
# layer; each of a Macaron layer's two feed-forward networks has half of it.
MACARON_OPTIONS: dict[str, Any] = {"layer_splitting": "strang", **PLAIN_LAYERS}
MACARON_SIZES = {suffix: TRANSLATION_SIZES[suffix] for suffix in ("", "_tiny", "_wmt_en_de", "_wmt_en_de_big")} | {
    # 4.1: the inner size is four times the width in all settings
    "_iwslt_de_en": stack_sizes(512, 2048, 4, encoder=6, decoder=6),
    "_iwslt_de_en_released": TRANSLATION_SIZES["_iwslt_de_en"],
}

for _suffix, _size in MACARON_SIZES.items():
    register_architecture(f"macaron{_suffix}", MACARON_OPTIONS, _size)

# Depth-wise LSTM (Xu et al. 2020): attention layers connected by an LSTM over depth. In the paper's sizes the hidden
# computation is as wide as a Transformer's feed-forward network and its input is twice as wide, so that a model of base
# size has 36% more parameters outside the embeddings than its baseline. dlstm_matched* have as many as the baseline.
DLSTM_OPTIONS: dict[str, Any] = {
    "encoder_ode_scheme": LSTM,
    "decoder_ode_scheme": LSTM,
    "activation_fn": "gelu",
    # The LSTM normalises its input; gradients stay even without further normalisation (docs/depth_wise_lstm.md).
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    **PLAIN_LAYERS,
}
_DLSTM_NAMES = ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")
DLSTM_SIZES = {suffix: TRANSLATION_SIZES[suffix] for suffix in _DLSTM_NAMES}


def matched_inner_dim(size: dict[str, Any]) -> int:
    """Return the inner size f', a multiple of 8, that gives the layers as many parameters as a Transformer's.

    With M and N layers, of 4(d² + d) parameters in an attention and 2d in a normalisation:

        Transformer       M attentions + 2N attentions + (M + N)(2df + f + d) + (2M + 3N) normalisations
        depth-wise LSTM   M attentions + 2N attentions + (M + N)(3df' + 3f' + d) + 2(6d² + 9d)
    """
    d, f = size["encoder_embed_dim"], size["encoder_ffn_embed_dim"]
    encoder, decoder = size["encoder_layers"], size["decoder_layers"]
    layers = encoder + decoder
    available = layers * (2 * d * f + f) + (2 * encoder + 3 * decoder) * 2 * d - 2 * (6 * d * d + 9 * d)
    return 8 * round(available / (layers * (3 * d + 3)) / 8)


for _suffix, _size in DLSTM_SIZES.items():
    register_architecture(f"dlstm{_suffix}", DLSTM_OPTIONS, _size)
    _inner_dim = matched_inner_dim(_size)
    _matched_size = _size | {"encoder_ffn_embed_dim": _inner_dim, "decoder_ffn_embed_dim": _inner_dim}
    register_architecture(f"dlstm_matched{_suffix}", DLSTM_OPTIONS, _matched_size)
