"""BERT and Macaron Net's BERT (Lu et al. 2019, 4.1): masked language models with heads for whole texts.

Encoder, head and interface are fairseq's RoBERTa with our layers inside: ``--task masked_lm`` pre-trains,
``--task sentence_prediction`` fine-tunes. The inner size given is that of a Transformer layer; each of a Macaron
layer's two feed-forward networks has half of it.
"""

import argparse
from copy import copy, deepcopy
from typing import Any

from fairseq.models import register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from torch import nn

from ode_transformer.models import depth_options
from ode_transformer.models.architectures import complete_arguments, register_architectures
from ode_transformer.models.module_lists import ModuleLists
from ode_transformer.models.pretrained import load_pretrained
from ode_transformer.models.stacks import ODESegmentEncoder, option_errors
from ode_transformer.nn import LSTM
from ode_transformer.support.errors import OptionError

# Options of fairseq's RoBERTa that work on fairseq's own layers
UNSUPPORTED_BERT_OPTIONS = "mha_reg_scale_factor", "ffn_reg_scale_factor", "mha_heads_to_keep", "ffn_blocks_to_remove"


@register_model("ode_bert")
class ODEBertModel(ModuleLists, RobertaModel):
    """RoBERTa's interface around an encoder whose layers are vector fields, stepped by a numerical scheme."""

    stacks = ("encoder",)

    def __init__(self, args: argparse.Namespace, encoder: "ODEBertEncoder") -> None:
        scheme = encoder.sentence_encoder.depth_scheme
        initial_state = deepcopy(scheme.state_dict())
        super().__init__(args, encoder)  # initialises every linear map for BERT, those of learned coefficients too
        scheme.load_state_dict(initial_state)

    @classmethod
    def from_pretrained(cls, *arguments: Any, bpe: str = "gpt2", **options: Any) -> RobertaHubInterface:
        """Load a model from a folder, as fairseq's RoBERTa, by :func:`load_pretrained`."""
        cfg, task, models = load_pretrained(*arguments, bpe=bpe, load_checkpoint_heads=True, **options)
        return RobertaHubInterface(cfg, task, models[0])

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        RobertaModel.add_args(parser)
        depth_options.add_depth_arguments(parser, cls.stacks)
        for name, description in (
            ("--encoder-learned-pos", "learned positions instead of sinusoids"),
            ("--no-scale-embedding", "do not multiply the embeddings by √d; the default with learned positions"),
            ("--layer-norm-without-affine", "no scale and shift in the encoder's normalisations, as released"),
            ("--checkpoint-activations", "recompute activations in the backward pass instead of keeping them"),
        ):
            parser.add_argument(name, action="store_true", help=description)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "ODEBertModel":
        if getattr(args, "max_positions", None) is None:  # as fairseq's own RoBERTa; checkpoints have to keep it
            args.max_positions = getattr(args, "tokens_per_sample", 512)
        args = copy(args)
        complete_arguments(args, "ode_bert")
        depth_options.check_task(args, task, "masked_lm")
        return cls(args, ODEBertEncoder(args, task.source_dictionary))


class ODEBertEncoder(RobertaEncoder):
    """Our encoder with the head of a masked language model, tied to the embeddings."""

    def build_encoder(self, args: argparse.Namespace, dictionary: Any, embed_tokens: nn.Embedding) -> ODESegmentEncoder:
        cfg = depth_options.read_model_options(args, ODEBertModel.stacks, UNSUPPORTED_BERT_OPTIONS)
        affine = not args.layer_norm_without_affine
        if not affine and cfg.encoder.depth.is_lstm:
            raise OptionError(f"--layer-norm-without-affine: --encoder-ode-scheme {LSTM} scales and shifts its gates")
        with option_errors():
            return ODESegmentEncoder(cfg, dictionary, embed_tokens, affine)


register_architectures("ode_bert")
