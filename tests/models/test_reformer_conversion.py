"""Variants of the released Reformer without a recording, by loops written from the description of that code."""

from argparse import Namespace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, multi_head_attention_forward

from ode_transformer.models.conversion import convert_checkpoint, convert_options
from ode_transformer.models.model_from_options import build_from_options
from ode_transformer.support.errors import UserError

D, F, HEADS, LAYERS = 8, 12, 2, 2
CHAIN = "attn1d:dec+ffn2d:dec+attn1d:enc+ffn2d:enc"
SOURCES, TARGETS = [[5, 9, 4, 17, 8, 2], [7, 11, 2, 1, 1, 1]], [[2, 6, 14, 3, 9], [2, 20, 8, 1, 1]]

Parameters = dict[str, Tensor]


def released(**changes: object) -> tuple[Namespace, Parameters]:
    """A checkpoint as the released code lays it out for these options."""
    options: dict = {"arch": "reformer_fast_iwslt_de_en", "layer_chain": CHAIN, "src_tgt_embed": False}
    options |= {"decoder_input_layer": "add", "decoder_output_layer": "attn", "encoder_layers": LAYERS}
    options |= {"decoder_layers": LAYERS, "share_all_embeddings": False, "share_decoder_input_output_embed": False}
    for stack in ("encoder", "decoder"):
        options |= {f"{stack}_embed_dim": D, f"{stack}_ffn_embed_dim": F, f"{stack}_attention_heads": HEADS}
        options |= {f"{stack}_normalize_before": True}
    options |= changes
    width = 2 * D if options["decoder_input_layer"] == "cat" else D
    shapes: dict[str, tuple[int, ...]] = {"encoder.version": (1,), "decoder.version": (1,)}

    def attention(place: str, dim: int) -> None:
        shapes.update({f"{place}.in_proj_weight": (3 * dim, dim), f"{place}.in_proj_bias": (3 * dim,)})
        shapes.update({f"{place}.out_proj.weight": (dim, dim), f"{place}.out_proj.bias": (dim,)})

    def network(place: str, dim: int) -> None:
        shapes.update({f"{place}.fc1.weight": (F, dim), f"{place}.fc1.bias": (F,)})
        shapes.update({f"{place}.fc2.weight": (dim, F), f"{place}.fc2.bias": (dim,)})

    def norm(place: str, dim: int) -> None:
        shapes.update({f"{place}.weight": (dim,), f"{place}.bias": (dim,)})

    for layer in range(options["encoder_layers"]):
        attention(f"encoder.layers.{layer}.self_attn", D)
        network(f"encoder.layers.{layer}", D)
        for number in (0, 1):
            norm(f"encoder.layers.{layer}.layer_norms.{number}", D)
    if options["encoder_layers"] and options["encoder_normalize_before"]:
        norm("encoder.layer_norm", D)
    for layer in range(LAYERS):
        for number in range(4):
            place = f"decoder.layers.{layer}.sublayers.{number}"
            norm(f"{place}.layer_norm", width)
            if number % 2:
                network(place, width)
            else:
                attention(f"{place}.self_attn", width)
    norm("decoder.output_layer.reduction.layer_norm", width)
    if options["decoder_output_layer"] == "attn":
        shapes["decoder.output_layer.reduction.weights"] = (width, width)
    if options["decoder_normalize_before"]:
        norm("decoder.layer_norm", width)
    if width != D:
        shapes["decoder.project_out_dim.weight"] = (D, width)
    shapes |= {"encoder.embed_tokens.weight": (20, D), "decoder.embed_tokens.weight": (22, D)}
    shapes["decoder.embed_out"] = (22, D)
    generator = torch.Generator().manual_seed(0)
    return Namespace(**options), {name: torch.randn(shape, generator=generator) / 2 for name, shape in shapes.items()}


class Description:
    """What the released model computes of one sentence pair."""

    def __init__(self, options: Namespace, parameters: Parameters) -> None:
        self.options = options
        self.parameters = {name: tensor.double() for name, tensor in parameters.items()}

    def __call__(self, source: list[int], target: list[int]) -> Tensor:
        """[S], [T] -> logits [T, V]."""
        s = self.prenet(self.embed("encoder", source)[:, None])[:, 0]
        t = self.embed("decoder", target)
        concatenated = self.options.decoder_input_layer == "cat"
        cells = [[torch.cat([a, b]) if concatenated else a + b for a in s] for b in t]
        x = torch.stack([torch.stack(line) for line in cells])  # T x S x C
        for layer in range(LAYERS):
            for number, sublayer in enumerate((self.over_past, self.network, self.over_source, self.network)):
                place = f"decoder.layers.{layer}.sublayers.{number}"
                x = self.residual(f"{place}.layer_norm", at(sublayer, place), x, "decoder")
        y = self.reduce(x)
        if self.options.decoder_normalize_before:
            y = self.norm("decoder.layer_norm", y)
        if concatenated:
            y = linear(y, self.parameters["decoder.project_out_dim.weight"])
        return linear(y, self.parameters["decoder.embed_out"])

    def embed(self, stack: str, tokens: list[int]) -> Tensor:
        rows = []
        for number, token in enumerate(tokens):
            angles = [(2 + number) * 10000 ** -(j / (D // 2 - 1)) for j in range(D // 2)]
            position = torch.cat([torch.tensor(angles).sin(), torch.tensor(angles).cos()])
            rows.append(D**0.5 * self.parameters[f"{stack}.embed_tokens.weight"][token] + position)
        return torch.stack(rows)

    def norm(self, place: str, x: Tensor) -> Tensor:
        weight, bias = self.parameters[f"{place}.weight"], self.parameters[f"{place}.bias"]
        return layer_norm(x, (x.size(-1),), weight, bias)

    def residual(self, norm: str, function, x: Tensor, stack: str) -> Tensor:
        if getattr(self.options, f"{stack}_normalize_before"):
            return x + function(self.norm(norm, x))
        return self.norm(norm, x + function(x))

    def prenet(self, x: Tensor) -> Tensor:
        for layer in range(self.options.encoder_layers):
            place = f"encoder.layers.{layer}"
            attend = at(self.over_target, place)
            x = self.residual(f"{place}.layer_norms.0", attend, x, "encoder")
            x = self.residual(f"{place}.layer_norms.1", at(self.network, place), x, "encoder")
        closed = self.options.encoder_layers and self.options.encoder_normalize_before
        return self.norm("encoder.layer_norm", x) if closed else x

    def network(self, place: str, x: Tensor) -> Tensor:
        inner = linear(x, self.parameters[f"{place}.fc1.weight"], self.parameters[f"{place}.fc1.bias"]).relu()
        return linear(inner, self.parameters[f"{place}.fc2.weight"], self.parameters[f"{place}.fc2.bias"])

    def over_target(self, place: str, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[T, S, C] -> [T, S, C], each of the S columns by itself; ``mask`` says which keys a query does not see."""
        sizes = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
        before, bias, after, out_bias = (self.parameters[f"{place}.self_attn.{name}"] for name in sizes)
        settings = (x.size(-1), HEADS, before, bias, None, None, False, 0.0, after, out_bias)
        return multi_head_attention_forward(x, x, x, *settings, need_weights=False, attn_mask=mask)[0]

    def over_past(self, place: str, x: Tensor) -> Tensor:
        return self.over_target(place, x, torch.ones(len(x), len(x)).triu(1).bool())

    def over_source(self, place: str, x: Tensor) -> Tensor:
        return self.over_target(place, x.transpose(0, 1)).transpose(0, 1)

    def reduce(self, x: Tensor) -> Tensor:
        place, before = "decoder.output_layer.reduction", self.options.decoder_normalize_before
        x = self.norm(f"{place}.layer_norm", x) if before else x
        if self.options.decoder_output_layer == "max":
            y = x.max(dim=1).values
        else:
            y = (linear(x, self.parameters[f"{place}.weights"]).softmax(1) * x).sum(1)
        return y if before else self.norm(f"{place}.layer_norm", y)


def at(function, place: str):
    return lambda x: function(place, x)


POST = {"encoder_normalize_before": False, "decoder_normalize_before": False}
VARIANTS = {
    "fast": {},
    "base": {"encoder_layers": 0, "arch": "reformer_base_iwslt_de_en"},
    "post-norm": POST,
    "concat-max": {"decoder_input_layer": "cat", "decoder_output_layer": "max"},
    "base-concat-post-norm": {"decoder_input_layer": "cat", "encoder_layers": 0, "arch": "reformer_base"} | POST,
    "max-post-norm": {"decoder_output_layer": "max"} | POST,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_released_reformer(variant: str) -> None:
    options, parameters = released(**VARIANTS[variant])
    converted = convert_checkpoint({"args": options, "model": parameters})
    ours = build_from_options(converted["args"], 20, 22).double().eval()
    ours.load_state_dict({name: tensor.double() for name, tensor in converted["model"].items()})
    source, target = torch.tensor(SOURCES), torch.tensor(TARGETS)
    describe = Description(options, parameters)
    with torch.no_grad():
        logits = ours(source, None, target)[0]
        incremental_state: dict = {}
        encoder_out = ours.encoder(source, None)
        steps = [
            ours.decoder(target[:, :length], encoder_out=encoder_out, incremental_state=incremental_state)[0]
            for length in range(1, target.size(1) + 1)
        ]
    for row, (src, tgt) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = describe([token for token in src if token != 1], [token for token in tgt if token != 1])
        # fairseq's table of positions is in float32.
        torch.testing.assert_close(logits[row, : len(expected)], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(torch.cat(steps, dim=1)[row, : len(expected)], expected, rtol=1e-5, atol=1e-5)


def test_the_options_say_what_is_computed() -> None:
    options, parameters = released(**VARIANTS["concat-max"], relu_dropout=0.1, dropout=0.3)
    ours = convert_options(options, parameters)
    assert (ours.arch, ours.encoder_layers, ours.joint_input) == ("reformer_fast", LAYERS, "released")
    assert (ours.joint_combination, ours.joint_reduction) == ("concat", "max")
    assert (ours.dropout, ours.activation_dropout, ours.encoder_ode_scheme) == (0.3, 0.1, "euler")
    assert convert_options(*released(**VARIANTS["base"])).arch == "reformer_base"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_chain": "attn1d:dec+ffn2d:enc"}, "layer_chain 'attn1d:dec.* is not supported; known are attn1d"),
        ({"decoder_output_layer": "attn-v5"}, "decoder_output_layer 'attn-v5' is not supported; known are attn, max"),
        ({"decoder_input_layer": "mul"}, "decoder_input_layer 'mul' is not supported; known are add, cat"),
        ({"src_tgt_embed": True}, "src_tgt_embed True is not supported; known are False"),
        ({"arch": "transformer"}, "architecture transformer is not converted; known are those of reformer"),
    ],
)
def test_what_we_do_not_have_is_refused(changes: dict, message: str) -> None:
    options, parameters = released()
    with pytest.raises(UserError, match=message):
        convert_options(Namespace(**(vars(options) | changes)), parameters)
    parameters["decoder.layers.0.sublayers.4.fc1.bias"] = torch.ones(F)
    with pytest.raises(UserError, match=r"sublayers\.4\.fc1\.bias belongs to none of the released models"):
        convert_checkpoint({"args": options, "model": parameters})
