"""Encoders and decoders of :mod:`ode_transformer.nn` with the interface of fairseq's.

An adapter is the plain stack and at the same time fairseq's class, so that parameters have the names of checkpoints.
fairseq's tensors have the batch as their second axis, [T, B, C], and lie in dictionaries of lists.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from fairseq.models import FairseqEncoder, FairseqIncrementalDecoder
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import AdaptiveSoftmax
from fairseq.utils import eval_str_list
from torch import Tensor, nn

from ode_transformer.nn import (
    Decoder,
    Encoder,
    EncoderOutput,
    GridDecoder,
    SearchState,
    SegmentEncoder,
    SourceEncoder,
    Stack,
    SubLayerKind,
    TransformerSizes,
    equal_runs,
    seen_padding,
    select_entries,
)
from ode_transformer.support.errors import OptionError

# fairseq's dictionary of an encoder's output
EncoderOut = dict[str, list[Any]]


@contextmanager
def option_errors() -> Iterator[None]:
    """Let a refusal of the plain model end fairseq's command in one line."""
    try:
        yield
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(str(error)) from error


class FairseqStack(Stack):
    """What adapters of all stacks have in common; base of an adapter, before the plain stack and fairseq's class."""

    # Called with the logarithms of the probabilities [B, T, words] that a criterion reads.
    see_log_probabilities: Callable[[Tensor], None] | None = None
    if TYPE_CHECKING:  # attributes of fairseq's encoders and decoders

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, cfg: TransformerConfig, dictionary: Any, words: nn.Embedding, *others: Any, **more: Any) -> None:
        """Build the plain stack, and set what fairseq's class and a training need.

        :param cfg: from :func:`ode_transformer.models.depth_options.read_model_options`
        :param words: embeddings
        :param others: further arguments of the plain stack, as ``more``
        """
        super().__init__(cfg.sizes(cfg, dictionary), getattr(cfg, self.stack).depth, words, *others, **more)
        self.cfg, self.dictionary = cfg, dictionary
        self.trains_in_bfloat16 = cfg.cpu_bf16 and not cfg.ode_options_saved
        self.trained_version.may_change = cfg.ode_options_saved or bool(getattr(cfg, "finetune_from_model", None))

    @contextmanager
    def training_precision(self) -> Iterator[None]:
        """Multiply in bfloat16 on a CPU in training, if ``--cpu-bf16`` says so.

        Parameters, their gradients and the layers' states stay in float32, as with fairseq's ``--amp`` on a GPU.
        """
        in_bfloat16 = self.training and self.trains_in_bfloat16
        with torch.autocast("cpu", torch.bfloat16) if in_bfloat16 else nullcontext():
            yield

    @property
    def is_observed(self) -> bool:
        """True if somebody wants to see the probabilities."""
        return self.see_log_probabilities is not None

    def is_replayable(self, positions: int) -> bool:
        """Tell whether a training step may be replayed whose rows times lengths of source and target are ``positions``.

        Nobody would see the probabilities, an adaptive softmax selects by value, and what activation checkpointing
        computes again would get another dropout.
        """
        adaptive = getattr(self, "adaptive_softmax", None) is not None
        return not (self.is_observed or adaptive or (self.recompute and self.drops_out))

    @property
    def drops_out(self) -> bool:
        """True if training draws random numbers."""
        sizes = self.sizes
        return any((sizes.dropout, sizes.attention_dropout, sizes.activation_dropout, sizes.word_dropout))


class FairseqEncoderStack(FairseqStack, Encoder, FairseqEncoder):
    """Interface of fairseq's encoders around a plain one."""

    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> EncoderOut:
        """Encode a batch; the result has the keys of fairseq's encoders.

        :param src_tokens: [B, S]
        :param return_all_hiddens: also return the input of each layer and the output of the last, ``encoder_states``
        :param token_embeddings: [B, S, C] in place of those of ``src_tokens``
        """
        with self.training_precision():
            words = self.embed_words(src_tokens, token_embeddings)
            encoded, states = self.encode(src_tokens, words, return_all_hiddens)
        return {
            "encoder_out": [encoded.output.transpose(0, 1)],  # [S, B, C]
            "encoder_padding_mask": [encoded.padding],  # [B, S]
            "encoder_embedding": [words],  # [B, S, C]
            "encoder_states": [x.transpose(0, 1) for x in states],
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [encoded.padding.logical_not().sum(dim=1, keepdim=True).int()],  # [B, 1]
        }

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """Select rows as fairseq's encoders do, but keep once what k rows in turn share, as the hypotheses of a beam.

        The result's tensors then have B/k rows, which the decoder accepts; its entry ``rows_per_entry`` is k.
        """
        entries: Tensor | None = new_order
        run = 1
        if self.shares_rows:
            per_entry, count = encoder_out.get("rows_per_entry", [1])[0], encoder_out["encoder_out"][0].size(1)
            entries, run = equal_runs(new_order // per_entry, count)
        batch_axes = {"encoder_out": 1, "encoder_states": 1}
        selected = {
            name: [select_entries(x, entries, batch_axes.get(name, 0)) for x in tensors]
            for name, tensors in encoder_out.items()
            if name not in ("fc_results", "rows_per_entry")
        }
        return {"fc_results": [], **selected, "rows_per_entry": [run]}


def encoder_output(encoder_out: EncoderOut) -> EncoderOutput:
    """Return what a plain decoder reads of fairseq's dictionary."""
    output = encoder_out["encoder_out"][0].transpose(0, 1)
    padding = next(iter(encoder_out["encoder_padding_mask"]), None)
    if padding is None:
        padding = torch.zeros(output.shape[:2], dtype=torch.bool, device=output.device)
    return EncoderOutput(output, padding, encoder_out.get("rows_per_entry", [1])[0])


class ODETransformerEncoder(FairseqEncoderStack):
    """Encoder that steps the embedded source through its layers by the scheme of the options."""


class ODESegmentEncoder(FairseqEncoderStack, SegmentEncoder):
    """Encoder of BERT."""


class ReformerEncoder(FairseqEncoderStack, SourceEncoder):
    """Encoder of the source part of every position of a grid."""


class FairseqDecoderStack(FairseqStack, Decoder, FairseqIncrementalDecoder):
    """Interface of fairseq's incremental decoders around a plain one."""

    reports_alignment = True
    adaptive_softmax: nn.Module | None

    def __init__(self, cfg: TransformerConfig, dictionary: Any, words: nn.Embedding, *others: Any, **more: Any) -> None:
        output = adaptive_softmax(cfg, cfg.sizes(cfg, dictionary))
        super().__init__(cfg, dictionary, words, *others, output=output, **more)
        self.onnx_trace = False
        self.init_incremental_state()

    def build_output(self, output: nn.Module | None) -> None:
        """Build the output; an adaptive softmax of fairseq, ``output``, reads the features themselves."""
        super().build_output(None if output is None else nn.Identity())
        self.adaptive_softmax = output

    def forward(  # type: ignore[override]
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut | None = None,
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        src_lengths: Any = None,
        return_all_hiddens: bool = False,
    ) -> tuple[Tensor, dict[str, list[Any]]]:
        """Return the scores of the words [B, T, words], or the features [B, T, C], and what else is asked for.

        :param prev_output_tokens: [B, T]
        :param incremental_state: fairseq's decoding cache, updated in place; then T of the result is 1
        :param alignment_layer: layer whose attention over the source is returned, the last by default
        :param alignment_heads: number of heads to average, all by default
        :returns: also ``attn`` [B, T, S], but not in training, nor in decoding that was prepared without it, unless it
            is requested; ``inner_states`` [T, B, C] each
        """
        with self.training_precision():
            features, extra = self.extract_features(
                prev_output_tokens,
                encoder_out,
                incremental_state,
                full_context_alignment,
                alignment_layer,
                alignment_heads,
                return_all_hiddens,
            )
            return features if features_only else self.output_layer(features), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut | None = None,
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        return_all_hiddens: bool = False,
    ) -> tuple[Tensor, dict[str, list[Any]]]:
        """Return the features of the target positions, only of the last one in step-by-step decoding."""
        aligned = self.num_layers - 1 if alignment_layer is None else alignment_layer
        reported = not self.training and (self.reports_alignment or incremental_state is None)
        weights: list[Tensor] = []
        asked = {(aligned, SubLayerKind.CROSS_ATTENTION): weights} if reported or alignment_layer is not None else {}
        source = None if encoder_out is None else encoder_output(encoder_out)
        states: Sequence[Tensor] = ()
        if incremental_state is None:
            with option_errors():
                features, states = self.features(
                    prev_output_tokens, source, not full_context_alignment, asked, return_all_hiddens
                )
        else:
            state = self.search_state(incremental_state)
            state.length = prev_output_tokens.size(1) - 1
            padding = seen_padding(prev_output_tokens.eq(self.padding_idx))
            features = self.step(prev_output_tokens[:, -1:], source, state, padding, asked)
        attention = weights[-1][:, :alignment_heads].mean(dim=1) if weights else None  # [B, T, S]
        return features, {"attn": [attention], "inner_states": [x.transpose(0, 1) for x in states]}

    def output_layer(self, features: Tensor) -> Tensor:
        """Return the scores of the words, [B, T, words], or the features themselves for an adaptive softmax."""
        return self.scores(features)

    def make_generation_fast_(self, need_attn: bool | str | None = True, **_: Any) -> None:
        """Prepare for decoding; fairseq calls this on every module."""
        self.reports_alignment = bool(need_attn)

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: dict[str, Any] | None = None
    ) -> Tensor:
        """Return the probabilities [B, T, words] from which a criterion computes the loss."""
        probabilities = super().get_normalized_probs(net_output, log_probs, sample)
        if log_probs and self.see_log_probabilities is not None:
            self.see_log_probabilities(probabilities)
        return probabilities

    def search_state(self, incremental_state: dict[str, Any]) -> SearchState:
        """Return what the decoder keeps during a search; the first call builds it."""
        key = self._get_full_incremental_state_key("search")
        if key not in incremental_state:
            incremental_state[key] = SearchState()
        state: SearchState = incremental_state[key]
        return state

    def reorder_incremental_state_scripting(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Reorder all caches in place to the rows that beam search has chosen; fairseq's looks in every module."""
        self.search_state(incremental_state).reorder(new_order)


class ODETransformerDecoder(FairseqDecoderStack):
    """Decoder that steps the embedded target prefix through its layers by the scheme of the options."""


class ReformerDecoder(FairseqDecoderStack, GridDecoder):
    """Decoder that steps a grid of encoder output × target prefix through its layers."""

    def is_replayable(self, positions: int) -> bool:
        divided = positions > self.grid.max_cells > 0
        return super().is_replayable(positions) and not (divided and self.drops_out)


def adaptive_softmax(cfg: TransformerConfig, sizes: TransformerSizes) -> nn.Module | None:
    """Build fairseq's adaptive softmax if the options ask for one."""
    if cfg.adaptive_softmax_cutoff is None:
        return None
    module: nn.Module = AdaptiveSoftmax(
        sizes.target_words,
        sizes.output_dim,
        eval_str_list(cfg.adaptive_softmax_cutoff, type=int),
        dropout=cfg.adaptive_softmax_dropout,
        factor=cfg.adaptive_softmax_factor,
    )
    return module
