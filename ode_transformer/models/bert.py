"""BERT and Macaron Net's BERT (Lu et al. 2019, 4.1): masked language models with heads for whole texts.

Encoder, head and interface are fairseq's RoBERTa with our layers inside: ``--task masked_lm`` pre-trains,
``--task sentence_prediction`` fine-tunes. The inner size is that of a Transformer layer; the two feed-forward networks
of a Macaron layer have half of it each.
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta import base_architecture as roberta_architecture
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.models.transformer import TransformerConfig
from torch import nn

from ode_transformer.models.ode_transformer import PLAIN, add_depth_arguments, check, defaults
from ode_transformer.models.saved_model import load_pretrained
from ode_transformer.models.saved_options import check_build_options
from ode_transformer.models.segment_encoder import SegmentEncoder
from ode_transformer.models.tasks import refuse_task

STACKS = ("encoder",)

# Options of fairseq's RoBERTa that reach into layers of its own, with the value that means "off".
_NOT_SUPPORTED = {
    "mha_reg_scale_factor": 0.0,
    "ffn_reg_scale_factor": 0.0,
    "mha_heads_to_keep": -1,
    "ffn_blocks_to_remove": -1,
}


@register_model("ode_bert")
class ODEBertModel(RobertaModel):
    """RoBERTa's interface around an encoder whose layers are vector fields, stepped by a numerical scheme."""

    def __init__(self, args: argparse.Namespace, encoder: ODEBertEncoder) -> None:
        scheme = encoder.sentence_encoder.scheme
        start = deepcopy(scheme.state_dict())
        super().__init__(args, encoder)  # starts every linear map as BERT does; learned coefficients start elsewhere
        scheme.load_state_dict(start)

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        """Nothing to download."""
        return {}

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        bpe: str = "gpt2",
        **kwargs: Any,
    ) -> RobertaHubInterface:
        """Load a model from a folder, as fairseq's RoBERTa; its checkpoint is checked first.

        :raises UserError: the folder does not exist, or the checkpoint is broken or refused
        """
        kwargs |= {"bpe": bpe, "load_checkpoint_heads": True}
        (model,), cfg, task = load_pretrained(model_name_or_path, checkpoint_file, data_name_or_path, **kwargs)
        return RobertaHubInterface(cfg, task, model)

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        RobertaModel.add_args(parser)
        add_depth_arguments(parser, STACKS)
        for name, extra in (
            ("--encoder-learned-pos", "learned positions in place of sinusoids"),
            ("--no-scale-embedding", "no factor √d on the embeddings; on with learned positions"),
            ("--layer-norm-without-affine", "no scale and shift in the encoder's normalisations, as released"),
            ("--checkpoint-activations", "compute activations again in the backward pass instead of keeping them"),
        ):
            parser.add_argument(name, action="store_true", help=extra)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> ODEBertModel:
        """Builds the model from fairseq's options.

        :raises ValueError: in one line, if options do not go together, or the task is for another kind of model
        """
        args.ode_trained = getattr(args, "ode_options_saved", False)
        if getattr(args, "max_positions", None) is None:
            args.max_positions = getattr(args, "tokens_per_sample", 512)
        complete(args)
        refuse_task(args, task, "masked_lm")
        check(args, STACKS, _NOT_SUPPORTED)
        args.ode_options_saved = True  # as in ODETransformerModel
        return cls(args, ODEBertEncoder(args, task.source_dictionary))


class ODEBertEncoder(RobertaEncoder):
    """Our encoder with the head of a masked language model, tied to the embeddings."""

    def build_encoder(self, args: argparse.Namespace, dictionary: Any, embed_tokens: nn.Embedding) -> SegmentEncoder:
        return SegmentEncoder(TransformerConfig.from_namespace(args), dictionary, embed_tokens)


def complete(args: argparse.Namespace) -> None:
    """What the architectures share, and BERT's base size for what is still open."""
    defaults(args, **PLAIN)
    defaults(
        args,
        encoder_layer_history="none",
        max_relative_positions=0,
        encoder_normalize_before=not args.post_norm,
        encoder_learned_pos=False,
        layernorm_embedding=False,
        layer_norm_without_affine=False,
        checkpoint_activations=False,
        pooler_dropout=0.1,
    )
    # Sinusoids are of size 1, BERT's embeddings start at 0.02: beside unscaled ones positions would drown the words.
    defaults(args, no_scale_embedding=args.encoder_learned_pos)
    roberta_architecture(args)


def size_of(dim: int, inner: int, heads: int, layers: int) -> dict[str, Any]:
    return {
        "encoder_embed_dim": dim,
        "encoder_ffn_embed_dim": inner,
        "encoder_attention_heads": heads,
        "encoder_layers": layers,
    }


BERT_SIZES = {"base": size_of(768, 3072, 12, 12), "tiny": size_of(128, 256, 4, 4)}
SPLITTING_OF = {"ode_bert": "lie-trotter", "macaron_bert": "strang"}


def register(name: str, **options: Any) -> None:
    """Registers an architecture of this model that has ``options``."""

    def architecture(args: argparse.Namespace) -> None:
        check_build_options(args)
        defaults(args, **options)
        complete(args)

    register_model_architecture("ode_bert", name)(architecture)


for _kind, _splitting in SPLITTING_OF.items():
    for _name, _size in BERT_SIZES.items():
        register(f"{_kind}_{_name}", layer_splitting=_splitting, **_size)
