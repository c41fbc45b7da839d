"""Translation models in the classes of Hugging Face's ``transformers``, for ``AutoModelForSeq2SeqLM``.

The model inside is a plain :class:`ode_transformer.nn.Transformer`, built from the options that its configuration
holds. ``generate`` gives it the whole prefix at each position and reorders its caches.
"""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList, PretrainedConfig, PreTrainedModel
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Concatenate, WeightConverter
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.utils import SAFE_WEIGHTS_NAME, cached_file

from ode_transformer.checkpoints.parameters import check_finite
from ode_transformer.checkpoints.plain_model import NeedsFairseq, build, model_kind, model_options
from ode_transformer.checkpoints.reading import check_sizes
from ode_transformer.checkpoints.stored_sizes import LIMIT, check_tensor_count, limited_parameters
from ode_transformer.export.huggingface_search import (
    DecodingState,
    EndAtLimit,
    EndOfBlankSource,
    SourceEncoder,
    known_source,
    without_masked,
)
from ode_transformer.nn import BEGIN, END, PADDING, SinusoidalPositions, Transformer, seen_padding
from ode_transformer.support.errors import FAIRSEQ_MISSING, UserError

SPECIAL_TOKENS = {"bos_token_id": BEGIN, "pad_token_id": PADDING, "eos_token_id": END, "decoder_start_token_id": END}

# Arguments of from_pretrained that say where a file lies
_SOURCE = ("cache_dir", "force_download", "proxies", "token", "revision", "local_files_only", "subfolder")

MAX_TENSORS, MAX_NUMBERS = 10_000, 10**9  # of a model that is built from its options alone

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
        check_sizes({"num_labels": settings.get("num_labels")})  # transformers names each of them
        super().__init__(**{"is_encoder_decoder": True, **SPECIAL_TOKENS, **settings})


class ODETransformerForSeq2SeqLM(PreTrainedModel, GenerationMixin):
    """A translation model of this package.

    :raises UserError: an option is refused
    """

    config_class = ODETransformerConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _keys_to_ignore_on_load_unexpected = [r"embed_positions\.weights$"]  # noqa: RUF012 (of earlier versions' folders)

    def __init__(self, config: ODETransformerConfig) -> None:
        super().__init__(config)
        check_sizes({"source_size": config.source_size, "target_size": config.target_size})
        if LIMIT.get() is None:
            with torch.device("meta"), limited_parameters() as limit:  # without any memory
                limit.allow(MAX_TENSORS, MAX_NUMBERS)
                build_model(config)
        with torch.device("cpu"):  # transformers builds models without numbers, but not everything is a parameter
            self.model = build_model(config)
        self.gradient_checkpointing = False
        for stack in (self.model.encoder, self.model.decoder):
            # The configuration says what the parameters were trained for.
            stack.trained_version = nn.Identity()  # type: ignore[assignment]
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

        :raises UserError: its configuration describes far more parameters than it stores, an option is refused, or a
            parameter is missing or no number
        """
        source = {name: settings[name] for name in _SOURCE if name in settings}
        path = cached_file(pretrained_model_name_or_path, SAFE_WEIGHTS_NAME, **source)
        with safe_open(path, "pt") as file:
            sizes = [math.prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
        check_tensor_count(len(sizes))
        with limited_parameters() as limit:
            limit.allow_for(len(sizes), sum(sizes))
            wants_report = settings.pop("output_loading_info", False)
            settings["output_loading_info"] = True
            model, report = super().from_pretrained(pretrained_model_name_or_path, *arguments, **settings)
        if missing := sorted(report["missing_keys"]):
            raise UserError(f"{path}: has no {missing[0]}, which its configuration describes")
        stored = {name: tensor for name, tensor in model.named_parameters() if tensor.device.type != "meta"}
        check_finite(Path(path), stored)
        return (model, report) if wants_report else model

    def _init_weights(self, module: nn.Module) -> None:
        """Compute tables of positions, which no folder stores; leave parameters as fairseq's model starts with them."""
        if isinstance(module, SinusoidalPositions):
            device: Any = module.weights.device
            module.fill()
            module.to(device, self.dtype)

    def _set_gradient_checkpointing(self, enable: bool = True, *arguments: Any, **settings: Any) -> None:
        """Let the layers recompute their activations in the backward pass, or keep them."""
        super()._set_gradient_checkpointing(enable, *arguments, **settings)
        for stack in (self.model.encoder, self.model.decoder):
            stack.recompute = enable

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the model has caches of its own

    def get_encoder(self, *_: Any, **__: Any) -> SourceEncoder:
        return SourceEncoder(self.model)

    def get_input_embeddings(self) -> nn.Module:
        embeddings: nn.Module = self.model.encoder.embed_tokens
        return embeddings

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return ``labels`` [B, T] one position later, behind the end symbol that begins each target."""
        target = labels.masked_fill(labels == -100, PADDING)
        return torch.cat([torch.full_like(target[:, :1], END), target[:, :-1]], 1)

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
        num_items_in_batch: Tensor | int | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Compute the scores of the words at the target positions, only of the last one with ``use_cache``.

        :param input_ids: source [B, S], each line with its end symbol
        :param attention_mask: 0 where the source is padding [B, S]; by default where it is the padding symbol
        :param decoder_input_ids: the whole target prefix [B, T]; by default ``labels``, shifted
        :param labels: target [B, T], -100 where it does not count
        :param num_items_in_batch: words by which the sum of the loss is divided, which Trainer counts in all batches of
            an update; by default the words of ``labels``
        :raises UserError: neither ``decoder_input_ids`` nor ``labels`` is given
        """
        if decoder_input_ids is None:
            if labels is None:
                advice = "DataCollatorForSeq2Seq makes them from labels if it is given the model"
                raise UserError(f"decoder_input_ids or labels: one of them is needed; {advice}")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        previous = without_masked(decoder_input_ids, decoder_attention_mask)
        if past_key_values is None:
            if encoder_outputs is None:
                assert input_ids is not None, "input_ids or encoder_outputs: one of them is needed"
                encoder_outputs = SourceEncoder(self.model).forward(input_ids, attention_mask)
            state = DecodingState(self.model, known_source(encoder_outputs, input_ids, attention_mask))
        else:
            state = past_key_values
        decoder = self.model.decoder
        if use_cache:
            for end in range(state.search.length + 1, previous.size(1) + 1):  # several for a prefix that a caller gives
                padding = seen_padding(previous[:, :end].eq(PADDING))
                features = decoder.step(previous[:, end - 1 : end], state.source, state.search, padding)
        else:
            features = decoder.features(previous, state.source)[0]
        if (adaptive_softmax := getattr(decoder, "adaptive_softmax", None)) is not None:  # of fairseq
            logits = adaptive_softmax.get_log_prob(features, None)
        else:
            logits = decoder.scores(features)  # [B, T, words]
        loss = None
        if labels is not None:
            reduction = "mean" if num_items_in_batch is None else "sum"
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction=reduction)
            if num_items_in_batch is not None:
                loss = loss / num_items_in_batch
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=state if use_cache else None,
            encoder_last_hidden_state=state.source.output,
        )

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, past_key_values: DecodingState | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Return what :meth:`forward` reads in a search: the whole prefix, whose end alone is new."""
        return {
            "decoder_input_ids": input_ids,
            "past_key_values": past_key_values,
            **{name: kwargs.get(name) for name in ("attention_mask", "encoder_outputs", "use_cache")},
        }

    def _get_logits_processor(
        self, generation_config: Any, *, logits_processor: LogitsProcessorList | None = None, **settings: Any
    ) -> LogitsProcessorList:
        # The caller's processors come before those of sampling, which may remove the end symbol.
        own: list[LogitsProcessor] = [EndAtLimit(generation_config.max_length)]
        if settings["input_ids_seq_length"] == 1:  # no prefix that the caller gives
            source = settings["encoder_input_ids"]
            own.append(EndOfBlankSource((source.eq(END) | source.eq(PADDING)).all(dim=1)))
        processors: LogitsProcessorList = super()._get_logits_processor(
            generation_config, logits_processor=LogitsProcessorList([*(logits_processor or []), *own]), **settings
        )
        return processors


def build_model(config: ODETransformerConfig) -> Transformer:
    """Build the model that a configuration describes.

    :raises UserError: an option is refused, or the model needs fairseq, which is not installed
    """
    sizes = config.source_size, config.target_size
    try:
        kind = model_kind(config.options)
        model = build(kind, model_options(config.options, kind), *sizes)
    except NeedsFairseq as reason:
        if find_spec("fairseq") is None:
            raise UserError(f"{reason}; {FAIRSEQ_MISSING}") from reason
        from ode_transformer.models.model_from_options import build_admitted

        model = build_admitted(config.options, *sizes).plain()
    if not isinstance(model, Transformer):
        raise UserError(f"architecture {config.options.get('arch')} is no translation model")
    return model
