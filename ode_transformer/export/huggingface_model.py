"""Translation models in the classes of Hugging Face's ``transformers``, for ``AutoModelForSeq2SeqLM``.

The model inside is fairseq's, built from the options that its configuration holds. ``generate`` gives it the whole
prefix at each position and reorders its caches.
"""

import math
from argparse import Namespace
from functools import partial
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList, PretrainedConfig, PreTrainedModel
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Concatenate, WeightConverter
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.utils import SAFE_WEIGHTS_NAME, cached_file

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.checkpoints.admission import admitted_model, limited_parameters
from ode_transformer.checkpoints.reading import check_sizes, check_tensors
from ode_transformer.models.model_from_options import build_from_options

BOS, PAD, EOS, UNK = range(4)  # fairseq's special symbols, the first of each dictionary
SPECIAL_TOKENS = {"bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": EOS}

# Arguments of from_pretrained that say where a file lies
_SOURCE = ("cache_dir", "force_download", "proxies", "token", "revision", "local_files_only", "subfolder")

# Folders of earlier versions keep the projections of an attention apart (see nn.older_parameters).
_OF_SELF_ATTENTION = r"(?<!encoder_attn\.)(?<!encoder_attn\.\d\.)function\."
register_checkpoint_conversion_mapping(
    "ode_transformer",
    [
        WeightConverter(
            [f"{_OF_SELF_ATTENTION}{letter}_proj" for letter in "qkv"], "function.in_proj", [Concatenate(dim=0)]
        ),
        WeightConverter([r"function\.k_proj", r"function\.v_proj"], "function.kv_proj", [Concatenate(dim=0)]),
    ],
    overwrite=True,  # a program may load the module twice
)


class ODETransformerConfig(PretrainedConfig):
    """Options of fairseq's model and sizes of its dictionaries.

    :param options: the options by name, ``arch`` among them
    """

    model_type = "ode_transformer"

    def __init__(
        self, options: dict[str, Any] | None = None, source_size: int = 4, target_size: int = 4, **settings: Any
    ) -> None:
        self.options = options or {}
        self.source_size, self.target_size = source_size, target_size
        self.vocab_size = target_size
        super().__init__(**{"is_encoder_decoder": True, **SPECIAL_TOKENS, **settings})


class DecodingState:
    """Caches of a search, as ``generate`` keeps them in ``past_key_values``.

    :param encoder_out: fairseq's encoder output, a row for each hypothesis
    """

    is_compileable = False

    def __init__(self, model: Any, encoder_out: dict[str, list[Any]]) -> None:
        self.model, self.encoder_out = model, encoder_out
        self.incremental_state: dict[str, Any] = {}
        self.length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of target positions that the caches hold."""
        return self.length

    def reorder_cache(self, rows: Tensor) -> None:
        """Replace the hypotheses by those with the numbers ``rows``."""
        self.model.decoder.reorder_incremental_state_scripting(self.incremental_state, rows)
        self.encoder_out = self.model.encoder.reorder_encoder_out(self.encoder_out, rows)


class SourceEncoder:
    """Encoder of a model with the call that ``generate`` makes."""

    main_input_name = "input_ids"

    def __init__(self, model: Any) -> None:
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> BaseModelOutput:
        """Encode token numbers [B, S], of which those with a mask of 0 are padding; the result is [B, S, C]."""
        output = self.model.encoder(without_masked(input_ids, attention_mask), None)["encoder_out"][0]
        return BaseModelOutput(last_hidden_state=output.transpose(0, 1))

    __call__ = forward


class EndAtLimit(LogitsProcessor):
    """Leaves only the end symbol at the last position, with its own score: so fairseq ends hypotheses.

    :param max_length: greatest number of tokens, with the first one and the end symbol
    """

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.size(1) < self.max_length - 1:
            return scores
        return torch.full_like(scores, -math.inf).index_copy(1, input_ids.new_tensor([EOS]), scores[:, [EOS]])


class ODETransformerForSeq2SeqLM(PreTrainedModel, GenerationMixin):
    """A translation model of this package.

    :raises UserError: an option is refused
    """

    config_class = ODETransformerConfig
    base_model_prefix = ""
    main_input_name = "input_ids"

    def __init__(self, config: ODETransformerConfig) -> None:
        super().__init__(config)
        check_sizes({"source_size": config.source_size, "target_size": config.target_size})
        options = Namespace(**admitted_model(config.options))
        with torch.device("cpu"):  # transformers builds models without numbers, but not everything is a parameter
            self.model = build_from_options(options, config.source_size, config.target_size)
        for module in self.model.modules():
            # Else transformers would replace tables of positions by empty ones.
            module._non_persistent_buffers_set.clear()
        for stack in (self.model.encoder, self.model.decoder):
            stack.trained_version = nn.Identity()  # the configuration says what the parameters were trained for
        first_names: dict[Tensor, str] = {}
        self._tied_weights_keys = {
            name: first_names[parameter]
            for name, parameter in self.named_parameters(remove_duplicate=False)
            if first_names.setdefault(parameter, name) != name
        }
        config.tie_word_embeddings = bool(self._tied_weights_keys)
        self.post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *arguments: Any, **settings: Any) -> Any:
        """Load a folder, or a repository of a hub, as transformers does.

        :raises UserError: its configuration describes far more parameters than it stores, or an option is refused
        """
        source = {name: settings[name] for name in _SOURCE if name in settings}
        path = cached_file(pretrained_model_name_or_path, SAFE_WEIGHTS_NAME, **source)
        with safe_open(path, "pt") as file:
            sizes = [math.prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
        check_tensors(len(sizes))
        with limited_parameters(len(sizes), sum(sizes)):
            return super().from_pretrained(pretrained_model_name_or_path, *arguments, **settings)

    def _init_weights(self, module: nn.Module) -> None:
        """Leave parameters as fairseq's model starts with them."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the model has caches of its own

    def get_encoder(self, *_: Any, **__: Any) -> SourceEncoder:
        return SourceEncoder(self.model)

    def get_input_embeddings(self) -> nn.Module:
        embeddings: nn.Module = self.model.encoder.embed_tokens
        return embeddings

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        past_key_values: DecodingState | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Compute the scores of the words at the target positions, only of the last one with ``use_cache``.

        :param input_ids: source [B, S], each line with its end symbol
        :param attention_mask: 0 where the source is padding [B, S]; by default where it is the padding symbol
        :param decoder_input_ids: the whole target prefix [B, T]; by default ``labels``, shifted
        :param labels: target [B, T], -100 where it does not count
        """
        if decoder_input_ids is None:
            assert labels is not None, "decoder_input_ids or labels: one of them is needed"
            target = labels.masked_fill(labels == -100, PAD)
            decoder_input_ids = torch.cat([torch.full_like(target[:, :1], EOS), target[:, :-1]], 1)
        previous = without_masked(decoder_input_ids, decoder_attention_mask)
        if past_key_values is None:
            if encoder_outputs is None:
                assert input_ids is not None, "input_ids or encoder_outputs: one of them is needed"
                encoder_outputs = SourceEncoder(self.model).forward(input_ids, attention_mask)
            state = DecodingState(self.model, self._encoder_out(encoder_outputs[0], input_ids, attention_mask))
        else:
            state = past_key_values
        decode = partial(self.model.decoder, encoder_out=state.encoder_out, features_only=True)
        if use_cache:
            for end in range(state.length + 1, previous.size(1)):  # of a prefix that the caller gives
                decode(previous[:, :end], incremental_state=state.incremental_state)
        features, _extra = decode(previous, incremental_state=state.incremental_state if use_cache else None)
        state.length = previous.size(1) if use_cache else 0
        if self.model.decoder.adaptive_softmax is not None:
            logits = self.model.get_normalized_probs((features, None), log_probs=True, sample=None)
        else:
            logits = self.model.decoder.output_layer(features)  # [B, T, words]
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=state if use_cache else None,
            encoder_last_hidden_state=state.encoder_out["encoder_out"][0].transpose(0, 1),
        )

    def _encoder_out(
        self, output: Tensor, input_ids: Tensor | None, attention_mask: Tensor | None
    ) -> dict[str, list[Any]]:
        """Return fairseq's dictionary of an encoder output [B, S, C]."""
        if attention_mask is not None:
            padding = attention_mask.eq(0)
        elif input_ids is not None:
            padding = input_ids.eq(PAD)
        else:
            padding = torch.zeros(output.shape[:2], dtype=torch.bool, device=output.device)
        absent = ("encoder_embedding", "encoder_states", "fc_results", "src_tokens", "src_lengths")
        return {"encoder_out": [output.transpose(0, 1)], "encoder_padding_mask": [padding], **{k: [] for k in absent}}

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, past_key_values: DecodingState | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Return what :meth:`forward` reads in a search: the whole prefix, whose end alone is new."""
        return {
            "decoder_input_ids": input_ids,
            "past_key_values": past_key_values,
            **{name: kwargs.get(name) for name in ("attention_mask", "encoder_outputs", "use_cache")},
        }

    def _get_logits_processor(self, generation_config: Any, *arguments: Any, **settings: Any) -> LogitsProcessorList:
        processors: LogitsProcessorList = GenerationMixin._get_logits_processor(
            cast(Any, self), generation_config, *arguments, **settings
        )
        processors.append(EndAtLimit(generation_config.max_length))
        return processors


def without_masked(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return token numbers with the padding symbol where the mask is 0."""
    return tokens if mask is None else tokens.masked_fill(mask.eq(0), PAD)
