"""Complete models: encoder–decoder, language model, masked language model, and Reformer's grid.

    model = Transformer(TransformerSizes(vocabulary=10_000), encoder=DepthChoice("rk2", coefficients="gate"))
    scores = model(source, target)              # [B, S], [B, T] -> [B, T, words]
    words = model.generate(source, beam=4)      # [B, longest translation]

Texts are numbers of words. 1 is padding, 2 ends a text and begins each target. Names of parameters are those of
checkpoints. Axes: B batch, S source, T target, C channels.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ode_transformer.nn.architectures import read_architecture
from ode_transformer.nn.beam_search import BeamSearch, SearchOptions, padded_words
from ode_transformer.nn.context import SubLayerKind
from ode_transformer.nn.decoder import Decoder, SearchState
from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.embedding import word_embedding
from ode_transformer.nn.encoder import Encoder, EncoderOutput
from ode_transformer.nn.grid_stacks import GridDecoder, SourceEncoder
from ode_transformer.nn.masked_language_model import MaskedEncoder
from ode_transformer.nn.model_options import check_choices
from ode_transformer.nn.sizes import GridChoice, TransformerSizes

RESIDUAL = DepthChoice()  # plain residual layers
MOST_WORDS = 200  # of a generated text, unless a caller says otherwise


class _Model(nn.Module):
    """What models with a decoder have in common."""

    sizes: TransformerSizes
    decoder: Decoder
    attends: ClassVar[bool]  # to a source
    kind: ClassVar[str]  # of architectures

    @property
    def max_target_positions(self) -> int:
        """Number of tokens of the longest target, with its end."""
        return self.decoder.max_positions()

    def step(self, words: Tensor, source: EncoderOutput | None, state: SearchState) -> Tensor:
        """Return the scores of the word that follows each row's last one, [R, words].

        :param words: last word of each row, [R, 1]
        :param source: of the same rows; None for a language model
        :param state: of the search, a new :class:`SearchState` at its beginning
        """
        return self.decoder.scores(self.decoder.step(words, source, state))[:, -1]

    def generate(self, texts: Tensor, beam: int = 5, max_words: int | None = None, **options: Any) -> Tensor:
        """Return the best translation of each text, or the text with its best continuation, [B, longest].

        Behind each stand its end symbol and padding.

        :param texts: [B, S], sources with their end symbols; beginnings of one length have none
        :param max_words: of a translation, or of a continuation
        :param options: further ones of :class:`SearchOptions`
        """
        most = MOST_WORDS if max_words is None else max_words
        search = BeamSearch([self], SearchOptions(beam=beam, max_len_b=most, **options))
        was_training = self.training
        self.eval()
        try:
            return padded_words(search.search(texts) if self.attends else search.continue_texts(texts))
        finally:
            self.train(was_training)


class Transformer(_Model):
    """Encoder–decoder whose layers are steps of a scheme; a Reformer if a ``grid`` is given.

    :param encoder: what moves the encoder's layers through depth
    :param decoder: what moves those of the decoder
    :param grid: options of a source × target grid in place of cross-attention
    """

    attends, kind = True, "translation"

    def __init__(
        self,
        sizes: TransformerSizes,
        encoder: DepthChoice = RESIDUAL,
        decoder: DepthChoice = RESIDUAL,
        grid: GridChoice | None = None,
    ) -> None:
        super().__init__()
        check_choices(sizes, {"encoder": encoder, "decoder": decoder}, grid)
        self.sizes = sizes
        source = word_embedding(sizes.vocabulary, sizes.dim)
        target = source if sizes.share == "all" else word_embedding(sizes.target_words, sizes.target_dim)
        self.encoder: Encoder = (
            Encoder(sizes, encoder, source) if grid is None else SourceEncoder(sizes, encoder, source, grid)
        )
        self.decoder: Decoder = (
            Decoder(sizes, decoder, target) if grid is None else GridDecoder(sizes, decoder, target, grid)
        )

    @classmethod
    def of_parts(cls, encoder: Encoder, decoder: Decoder) -> "Transformer":
        """Return the model of an encoder and a decoder, whose parameters it shares."""
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        model.sizes, model.encoder, model.decoder = decoder.sizes, encoder, decoder
        return model

    @classmethod
    def named(cls, name: str, vocabulary: int, target_vocabulary: int | None = None, **sizes: Any) -> "Transformer":
        """Build an architecture of the papers, such as ``ode_transformer_rk2_wmt_en_de``.

        :param sizes: fields of :class:`TransformerSizes` that replace those of the architecture
        :raises ValueError: there is no such architecture
        """
        chosen, choices, grid = read_architecture(name, cls.kind, vocabulary, target_vocabulary)
        return cls(replace(chosen, **sizes), choices["encoder"], choices["decoder"], grid)

    def encode(self, source: Tensor) -> EncoderOutput:
        """Return what the decoder attends to.

        :param source: [B, S], padding on one side
        """
        return self.encoder.encode(source, self.encoder.embed_words(source))[0]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the scores of the word that follows each target position, [B, T, words].

        :param source: [B, S]
        :param target: the words before each predicted one, of which the first is the end symbol, [B, T]
        """
        return self.decoder.scores(self.decoder.features(target, self.encode(source))[0])

    @torch.no_grad()
    def attention_maps(self, source: Tensor, target: Tensor) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """Return the attention over the source, the mean of the last layer's heads; the maps of a grid are others.

        :returns: for each map the names of its axes, the last one attended over, and weights [B, *axes]
        """
        encoded = self.encode(source)
        if isinstance(self.decoder, GridDecoder):
            return self.decoder.attention_maps(target, encoded)
        weights: list[Tensor] = []
        self.decoder.features(
            target, encoded, weights={(self.decoder.num_layers - 1, SubLayerKind.CROSS_ATTENTION): weights}
        )
        return {"attention over the source": (("target", "source"), weights[-1].mean(dim=1))}


class LanguageModel(_Model):
    """Language model whose layers are steps of a scheme."""

    attends, kind = False, "language_modeling"

    def __init__(self, sizes: TransformerSizes, decoder: DepthChoice = RESIDUAL) -> None:
        super().__init__()
        check_choices(sizes, {"decoder": decoder})
        self.sizes = sizes
        self.decoder = Decoder(sizes, decoder, word_embedding(sizes.target_words, sizes.target_dim), attends=False)

    @classmethod
    def of_part(cls, decoder: Decoder) -> "LanguageModel":
        """Return the model of a decoder, whose parameters it shares."""
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        model.sizes, model.decoder = decoder.sizes, decoder
        return model

    @classmethod
    def named(cls, name: str, vocabulary: int, **sizes: Any) -> "LanguageModel":
        """Build an architecture of the papers, such as ``ode_transformer_lm_rk4``; see :meth:`Transformer.named`."""
        chosen, choices, _ = read_architecture(name, cls.kind, vocabulary)
        return cls(replace(chosen, **sizes), choices["decoder"])

    def encode(self, source: Tensor) -> None:
        """Return None: there is no source."""

    def forward(self, text: Tensor) -> Tensor:
        """Return the scores of the word that follows each position, [B, T] -> [B, T, words]."""
        return self.decoder.scores(self.decoder.features(text)[0])


class MaskedLanguageModel(nn.Module):
    """BERT whose layers are steps of a scheme: the scores of the words that masked positions hide.

    :param affine: layer normalisations of the encoder scale and shift
    """

    kind = "masked_lm"

    def __init__(self, sizes: TransformerSizes, encoder: DepthChoice = RESIDUAL, affine: bool = True) -> None:
        super().__init__()
        check_choices(sizes, {"encoder": encoder})
        self.sizes = sizes
        self.encoder = MaskedEncoder(sizes, encoder, word_embedding(sizes.vocabulary, sizes.dim), affine)

    @classmethod
    def named(cls, name: str, vocabulary: int, **sizes: Any) -> "MaskedLanguageModel":
        """Build an architecture such as ``macaron_bert_base``; see :meth:`Transformer.named`."""
        chosen, choices, _ = read_architecture(name, cls.kind, vocabulary)
        return cls(replace(chosen, **sizes), choices["encoder"])

    def forward(self, text: Tensor) -> Tensor:
        """Return the scores of the words at all positions, [B, S] -> [B, S, words]."""
        scores: Tensor = self.encoder(text)
        return scores
