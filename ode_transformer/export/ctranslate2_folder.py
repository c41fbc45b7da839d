"""Folder of CTranslate2, a library that decodes Transformers in C++.

CTranslate2 reads weights under the names of a specification, not code: only a model whose layers are plain Transformer
layers, one after the other, can be exported. A layer that a scheme applies several times is written as often; its
arrays are stored once.

Its relative positions have two forms. ``relative_position_keys`` count from the current position when a decoder works
step by step, but a first layer that has them switches absolute positions off. ``relative_asymmetric_position_keys``
leave absolute positions on, but count from the start of the sentence. So encoder layers have the second form, and
decoder layers the first, above a narrow layer of zeros that has none and adds nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ctranslate2 import Translator
from ctranslate2.specs import attention_spec, common_spec, model_spec, transformer_spec
from numpy.typing import NDArray
from torch import Tensor, nn

from ode_transformer.decoding.trained_model import TrainedModel
from ode_transformer.nn import STACKS, DepthChoice, GridDecoder, SubLayer, Transformer
from ode_transformer.nn.layer import copies_of
from ode_transformer.numerics import ButcherTableau

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "tanh": common_spec.Activation.Tanh,
}
ZERO_LAYER_WIDTH = 1  # inner width of the feed-forward network of the layer of zeros


def refusal(trained: TrainedModel) -> str | None:
    """Return the flag that CTranslate2 cannot express and what it could express instead; None if there is none."""
    problem = _problem(trained.model, trained.options)
    return None if problem is None else f"CTranslate2 cannot express {problem}"


def _problem(model: Any, options: Any) -> str | None:
    architecture = options.get("arch") or options.get("_name", "its architecture")
    if not isinstance(model, Transformer) or isinstance(model.decoder, GridDecoder):
        return f"--arch {architecture}, only ode_transformer_* and other models of encoder and decoder layers"
    if model.sizes.activation not in ACTIVATIONS:
        return f"--activation-fn {model.sizes.activation}, only {', '.join(ACTIVATIONS)}"
    if model.decoder.project_in_dim is not None or model.decoder.project_out_dim is not None:
        return "--decoder-input-dim and --decoder-output-dim, only the width of the decoder"
    for stack in STACKS:
        problem = stack_refusal(getattr(model, stack).choice, stack)
        if problem is not None:
            return problem
    if model.decoder.layer_norm is None:
        return "--no-decoder-final-norm, only a decoder that ends with a normalisation"
    return None


def stack_refusal(choice: DepthChoice, stack: str) -> str | None:
    """Return the flags of a stack that CTranslate2 cannot express and what it could instead; None if there are none."""
    several, tableau, options = choice.stages > 1, choice.rule, choice.options()
    sums_all = isinstance(tableau, ButcherTableau) and (not several or all_ones(tableau.a))
    one_each = choice.coefficients == "ones" or (
        choice.coefficients == "tableau" and isinstance(tableau, ButcherTableau) and all_ones([tableau.b])
    )
    can_express = {"scheme": sums_all, "coefficients": one_each or not several}
    if not several:
        can_express |= {"function": True, "scope": True}
    allowed = {"scheme": f"euler, repeat, repeat4, and rk2 with --{options['coefficients'].flag} ones"}
    allowed["coefficients"] = "ones"
    problems = []
    for name, option in options.items():
        value = choice.value(option)
        if not can_express.get(name, option.exported or value == option.default):
            flag = f"{stack}-{option.flag}" if option.own_flag_only else option.flag
            problems.append(f"--{flag} {value}, only {allowed.get(name, option.default)}")
    return "; ".join(problems) or None


def all_ones(rows: Any) -> bool:
    """Tell whether every number of every row is 1."""
    return all(number == 1 for row in rows for number in row)


def write(model: TrainedModel, folder: Path, quantization: str | None) -> None:
    """Write ``model.bin``, ``config.json`` and the vocabularies into an empty folder."""
    specification = build_specification(model)
    specification.validate()
    specification.optimize(quantization=quantization)
    specification.save(str(folder))


def scores(model: TrainedModel, folder: Path, sources: list[Tensor], targets: list[Tensor]) -> list[list[float]]:
    """Return log p of the words of each target, as the folder computes them."""
    source, target = model.source_dictionary, model.target_dictionary
    results = Translator(str(folder), device="cpu").score_batch(
        [[source[number] for number in tokens[:-1]] for tokens in sources],
        [[target[number] for number in tokens[:-1]] for tokens in targets],
    )
    return [result.log_probs for result in results]


def plain_layers(stack: Any) -> list[dict[str, SubLayer]]:
    """Return the sub-layers of the layers of a stack as they are applied, one layer for each stage of each layer."""
    choice, stepped = stack.choice, stack.choice.stepped_layers(len(stack.layers))
    layers = []
    for index, layer in enumerate(stack.layers):
        copies_by_name = {name: copies_of(sublayer) for name, sublayer in layer.items()}
        for stage in range(choice.stages if index in stepped else 1):
            layers.append({name: copies[stage % len(copies)] for name, copies in copies_by_name.items()})
    return layers


@torch.no_grad()
def build_specification(model: TrainedModel) -> transformer_spec.TransformerSpec:
    """Return CTranslate2's specification of a model, with its weights."""
    encoder, decoder = model.model.encoder, model.model.decoder
    activation = ACTIVATIONS[encoder.sizes.activation]
    stacks = [stack_specification(stack, activation) for stack in (encoder, decoder)]
    specification = transformer_spec.TransformerSpec(*stacks)
    source, target = model.source_dictionary, model.target_dictionary
    specification.register_source_vocabulary(list(source.symbols))
    specification.register_target_vocabulary(list(target.symbols))
    config, (source_lang, target_lang) = specification.config, model.languages or (None, None)
    config.bos_token, config.unk_token = target.bos_word, target.unk_word
    config.decoder_start_token = config.eos_token = target.eos_word
    config.add_source_eos = True
    for name, value in {  # for translate; CTranslate2 does not read them
        "source_lang": source_lang,
        "target_lang": target_lang,
        "max_source_positions": int(encoder.max_positions()),
        "max_target_positions": int(decoder.max_positions()),
    }.items():
        config.add_attribute(name, value)
    return specification


def stack_specification(stack: Any, activation: common_spec.Activation) -> Any:
    """Return the specification of encoder or decoder, with its weights, and the layer of zeros where it is needed."""
    layers, heads = plain_layers(stack), stack.heads
    is_decoder = stack.stack == "decoder"
    zero_layers = int(is_decoder and stack.choice.attention.max_relative_positions > 0)
    build = transformer_spec.TransformerDecoderSpec if is_decoder else transformer_spec.TransformerEncoderSpec
    specification: Any = build(
        zero_layers + len(layers),
        heads,
        activation=activation,
        layernorm_embedding=stack.layernorm_embedding is not None,
    )
    set_embedding(specification, specification.embeddings if is_decoder else specification.embeddings[0], stack)
    if is_decoder:
        set_linear(specification.projection, stack.output_projection)
    for layer_spec in specification.layer[:zero_layers]:
        set_zero_layer(layer_spec, heads, stack.embed_dim, stack.sizes.encoder.dim)
    for layer_spec, layer in zip(specification.layer[zero_layers:], layers, strict=True):
        set_layer(layer_spec, layer, asymmetric=not is_decoder)
    return specification


def set_embedding(specification: Any, embeddings: Any, stack: Any) -> None:
    """Set what a stack has beside its layers: embeddings, positions and normalisations."""
    embeddings.weight = array(stack.embed_tokens.weight)
    specification.scale_embeddings = float(stack.embed_scale)
    specification.position_encodings.encodings = array(position_table(stack))
    set_layer_norm(specification.layer_norm, stack.layer_norm)
    if stack.layernorm_embedding is not None:
        set_layer_norm(specification.layernorm_embedding, stack.layernorm_embedding)


def position_table(stack: Any) -> Tensor:
    """Return what is added to the embeddings of the positions, [positions, C]; zeros for a stack without."""
    limit, positions = int(stack.max_positions()), stack.embed_positions
    if positions is None:
        return torch.zeros(limit, stack.layer_norm.normalized_shape[0])
    table: Tensor = positions.rows(limit)
    return table


def set_layer(layer_spec: Any, layer: Mapping[str, SubLayer], asymmetric: bool) -> None:
    """Set the weights of one layer, with relative positions in the asymmetric form or the other, see above."""
    attention: Any = layer["self_attn"].function
    if attention.relative_keys is not None:
        layer_spec.self_attention = relative_specification(attention, asymmetric)
    set_attention(layer_spec.self_attention, layer["self_attn"], attention.in_proj)
    if "encoder_attn" in layer:
        attention = layer["encoder_attn"].function
        set_attention(layer_spec.attention, layer["encoder_attn"], attention.q_proj, attention.kv_proj)
    network: Any = layer["ffn"].function
    set_layer_norm(layer_spec.ffn.layer_norm, layer["ffn"].layer_norm)
    set_linear(layer_spec.ffn.linear_0, network.fc1)
    set_linear(layer_spec.ffn.linear_1, network.fc2)


def relative_specification(attention: Any, asymmetric: bool) -> attention_spec.MultiHeadAttentionSpec:
    """Return the specification of a self-attention with relative positions, and their tables."""
    specification = attention_spec.MultiHeadAttentionSpec(
        self_attention=True, relative_position=True, relative_asymmetric_position=asymmetric
    )
    table = array(attention.relative_keys.weight)
    if asymmetric:
        clip = np.int32(attention.relative_keys.clip)
        specification.relative_asymmetric_position_keys = table
        specification.relative_left_max_position = specification.relative_right_max_position = clip
        specification.relative_position_keys = model_spec.OPTIONAL
    else:
        specification.relative_position_keys = table
    values = attention.relative_values
    specification.relative_position_values = model_spec.OPTIONAL if values is None else array(values.weight)
    return specification


def set_attention(specification: Any, sublayer: SubLayer, *projections: nn.Linear) -> None:
    set_layer_norm(specification.layer_norm, sublayer.layer_norm)
    function: Any = sublayer.function
    for linear_spec, module in zip(specification.linear, [*projections, function.out_proj], strict=True):
        set_linear(linear_spec, module)


def set_linear(specification: Any, module: nn.Linear) -> None:
    specification.weight = array(module.weight)
    if module.bias is not None:
        specification.bias = array(module.bias)


def set_layer_norm(specification: Any, module: Any) -> None:
    specification.gamma, specification.beta = array(module.weight), array(module.bias)


def set_zero_layer(layer_spec: Any, heads: int, dim: int, encoder_dim: int) -> None:
    """Make a layer of zeros, which adds nothing: one channel for each head, and as narrow a feed-forward network."""
    layer_spec.self_attention = attention_spec.MultiHeadAttentionSpec(self_attention=True, head_dim=1)
    layer_spec.attention = attention_spec.MultiHeadAttentionSpec(head_dim=1)
    shapes = {
        layer_spec.self_attention: [(3 * heads, dim), (dim, heads)],
        layer_spec.attention: [(heads, dim), (2 * heads, encoder_dim), (dim, heads)],
    }
    for specification, shapes_of in shapes.items():
        for linear_spec, shape in zip(specification.linear, shapes_of, strict=True):
            linear_spec.weight = np.zeros(shape, np.float32)
    layer_spec.ffn.linear_0.weight = np.zeros((ZERO_LAYER_WIDTH, dim), np.float32)
    layer_spec.ffn.linear_1.weight = np.zeros((dim, ZERO_LAYER_WIDTH), np.float32)
    for specification in (layer_spec.self_attention, layer_spec.attention, layer_spec.ffn):
        specification.layer_norm.gamma = specification.layer_norm.beta = np.zeros(dim, np.float32)


def array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())
