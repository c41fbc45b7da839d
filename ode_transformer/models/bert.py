"""BERT and Macaron Net's BERT (Lu et al. 2019, 4.1): masked language models with heads for whole texts.

Encoder, head and interface are fairseq's RoBERTa with our layers inside: ``--task masked_lm`` pre-trains,
``--task sentence_prediction`` fine-tunes. The inner size given is that of a Transformer layer; each of a Macaron
layer's two feed-forward networks has half of it.
"""

import argparse
from copy import deepcopy
from typing import Any

from fairseq.models import register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta import base_architecture as roberta_architecture
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from ode_transformer.checkpoints.reading import load_pretrained
from ode_transformer.models import depth_options
from ode_transformer.models.architectures import register_architecture, stack_sizes
from ode_transformer.models.encoder import ODETransformerEncoder
from ode_transformer.models.module_lists import ModuleLists
from ode_transformer.nn import LSTM
from ode_transformer.support.errors import OptionError

SEGMENTS = 2


def segments(tokens: Tensor, separator: int) -> Tensor:
    """Return the segment of each position: the number of separators before it, at most 1.

    ``<s> A </s> B </s>`` is 0 0 0 1 1, and so is RoBERTa's ``<s> A </s> </s> B </s>`` from its second separator on.

    :param tokens: [B, S], as the result
    """
    separators = tokens.eq(separator).long()
    return (separators.cumsum(dim=1) - separators).clamp(max=SEGMENTS - 1)


class SegmentEncoder(ODETransformerEncoder):
    """Encoder that adds the embedding of its segment to each word's embedding, as BERT does.

    :param cfg: with ``layer_norm_without_affine``, no layer normalisation scales and shifts, as in the released Macaron
    """

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = dictionary.eos()
        self.embed_segments = nn.Embedding(SEGMENTS, embed_tokens.embedding_dim)
        if cfg.layer_norm_without_affine:
            for module in self.modules():
                if isinstance(module, nn.LayerNorm):
                    module.elementwise_affine = False
                    module.register_parameter("weight", None)
                    module.register_parameter("bias", None)

    def forward_embedding(self, src_tokens: Tensor, token_embedding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the input of the layers, and the embeddings of words and segments alone, [B, S] -> [B, S, C] each."""
        if token_embedding is None:
            token_embedding = self.embed_tokens(src_tokens)
        segment_embedding = self.embed_segments(segments(src_tokens, self.separator))
        return super().forward_embedding(src_tokens, token_embedding + segment_embedding)


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
        if getattr(args, "max_positions", None) is None:
            args.max_positions = getattr(args, "tokens_per_sample", 512)
        complete_bert_options(args)
        depth_options.check_task(args, task, "masked_lm")
        model = cls(args, ODEBertEncoder(args, task.source_dictionary))
        args.ode_options_saved = True
        return model


class ODEBertEncoder(RobertaEncoder):
    """Our encoder with the head of a masked language model, tied to the embeddings."""

    def build_encoder(self, args: argparse.Namespace, dictionary: Any, embed_tokens: nn.Embedding) -> SegmentEncoder:
        cfg = depth_options.read_model_options(args, ODEBertModel.stacks, UNSUPPORTED_BERT_OPTIONS)
        if args.layer_norm_without_affine and cfg.encoder.depth.is_lstm:
            raise OptionError(f"--layer-norm-without-affine: --encoder-ode-scheme {LSTM} scales and shifts its gates")
        return SegmentEncoder(cfg, dictionary, embed_tokens)


def complete_bert_options(args: argparse.Namespace) -> None:
    """Set what is still open to the defaults of our BERT models, in BERT's base size."""
    depth_options.set_defaults(args, **depth_options.DEPTH_DEFAULTS)
    depth_options.set_defaults(
        args,
        encoder_layer_history="none",
        encoder_normalize_before=not args.post_norm,
        encoder_learned_pos=False,
        layernorm_embedding=False,
        layer_norm_without_affine=False,
        checkpoint_activations=False,
        pooler_dropout=0.1,
    )
    # Sinusoids reach 1, BERT's embeddings start at 0.02: without the factor √d positions would drown the words.
    depth_options.set_defaults(args, no_scale_embedding=args.encoder_learned_pos)
    roberta_architecture(args)


BERT_SIZES = {"base": stack_sizes(768, 3072, 12, encoder=12), "tiny": stack_sizes(128, 256, 4, encoder=4)}

for _model, _splitting in (("ode_bert", "lie-trotter"), ("macaron_bert", "strang")):
    for _name, _size in BERT_SIZES.items():
        _options = {"layer_splitting": _splitting, **_size}
        register_architecture(f"{_model}_{_name}", _options, model="ode_bert", complete=complete_bert_options)
