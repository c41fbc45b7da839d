"""Encoder of a source text. Axes: B batch, S source positions, C channels."""

from typing import NamedTuple

from torch import Tensor, nn

from ode_transformer.nn.attention_scores import attention_mask
from ode_transformer.nn.build_layers import plan_sublayers
from ode_transformer.nn.context import Context, SubLayerKind
from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.key_value_cache import equal_runs, select_entries
from ode_transformer.nn.sizes import PADDING, TransformerSizes
from ode_transformer.nn.stack import Stack, seen_padding
from ode_transformer.numerics import SPLITTINGS


class EncoderOutput(NamedTuple):
    """What a decoder attends to.

    :param output: [B/k, S, C]
    :param padding: [B/k, S], True at padding
    :param run: k rows in turn share an entry, as the hypotheses of a beam do
    """

    output: Tensor
    padding: Tensor
    run: int = 1

    def select(self, rows: Tensor, shares_rows: bool = True) -> "EncoderOutput":
        """Return the output for other rows, which keeps once what k rows in turn share.

        :param rows: number of the row that each row is replaced by, [B]
        :param shares_rows: False to keep each row by itself
        """
        if not shares_rows:
            return EncoderOutput(self.output.index_select(0, rows), self.padding.index_select(0, rows))
        entries, run = equal_runs(rows // self.run, len(self.output))
        return EncoderOutput(select_entries(self.output, entries), select_entries(self.padding, entries), run)

    def for_rows(self, rows: int) -> "EncoderOutput":
        """Return the output with an entry of its own for each of ``rows`` rows."""
        run = rows // len(self.output)
        if run == 1:
            return self
        return EncoderOutput(self.output.repeat_interleave(run, 0), self.padding.repeat_interleave(run, 0))


class Encoder(Stack):
    """Encoder that steps the embedded source through its layers; a call encodes texts [B, S]."""

    stack = "encoder"
    shares_rows = True  # the hypotheses of a sentence can share its output

    def __init__(self, sizes: TransformerSizes, choice: DepthChoice, embed_tokens: nn.Embedding) -> None:
        plan = plan_sublayers(SPLITTINGS[choice.splitting], cross_attention=False)
        super().__init__(sizes, choice, embed_tokens, plan)

    def forward(self, source: Tensor) -> EncoderOutput:
        """Encode texts.

        :param source: numbers of words, padding behind or before them, [B, S]
        """
        return self.encode(source, self.embed_words(source))[0]

    def encode(self, source: Tensor, words: Tensor, keep_states: bool = False) -> tuple[EncoderOutput, list[Tensor]]:
        """Encode texts of embedded words.

        :param words: from :meth:`embed_words`, [B, S, C]
        :param keep_states: also return what each layer and the end read
        """
        padding = source.eq(PADDING)
        y = self.add_positions(words, self.positions(source)).masked_fill(padding.unsqueeze(-1), 0)
        length, choice = source.size(1), self.choice.attention
        mask = attention_mask(length, length, y.device, seen_padding(padding), choice=choice, dtype=y.dtype)
        context = Context({SubLayerKind.SELF_ATTENTION: mask}, padding=padding)
        y, states = self.step_layers(y, context, keep_states)
        return EncoderOutput(self.normalize(y), padding), states
